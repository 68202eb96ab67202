"""The tables of bench/ranks, and what follows from them, out of the lines of its runs."""
import statistics

KEYS = ("program", "config", "mode", "seq", "world", "threads", "strategy", "strict", "grad_checkpointing")
TITLES = {"asterism": "Asterism", "transformers": "Hugging Face", "fsdp2": "FSDP2 + Hugging Face",
          "twinkle": "Twinkle 0.5.1"}
COLUMNS = ("program", "layout", "kept", "tokens/s", "step s", "waits", "peak MB per rank", "sent MB", "bound MB",
           "sent / bound")
MB = 1e6


def key(line):
    return tuple(line[name] for name in KEYS)


def layout(line):
    if line["world"] == 1:
        text = f"1 rank, {line['threads']} thread{'s' if line['threads'] > 1 else ''}"
    elif line["strategy"] == "apart":
        text = "2 runs apart, a row each"
    else:
        text = f"{line['world']} ranks, {line['strategy']}"
    return text + (", strict" if line["strict"] else "")


def kept(line):
    return "inputs" if line["grad_checkpointing"] else "all"


def describe(line):
    where = f"{line['config']}, {line['mode']}, S = {line['seq']}"
    return f"{TITLES[line['program']]}, {where}, {layout(line)}, keeps {kept(line)}"


class Group:
    """The runs of one row."""

    def __init__(self, lines):
        self.runs = [line for line in lines if "error" not in line]
        self.first = lines[0]
        self.errors = sorted({line["error"] for line in lines if "error" in line})

    def middle(self, value):
        return statistics.median(value(run) for run in self.runs)

    @property
    def speed(self):
        return self.middle(lambda run: run["tokens_per_s"]) if self.runs else None

    @property
    def peak(self):
        return self.middle(lambda run: run["peak_rss_mb"]) if self.runs else None

    @property
    def sent(self):
        """Bytes per rank and step, a mean over the ranks."""
        return self.middle(lambda run: statistics.mean(run["bytes_sent"]))

    @property
    def bound(self):
        return self.middle(lambda run: run["lower_bound_bytes"]["total"])


def groups_of(lines):
    found = {}
    for line in lines:
        found.setdefault(key(line), []).append(line)
    return {name: Group(group) for name, group in found.items()}


def cells(group):
    first = group.first
    head = [TITLES[first["program"]], layout(first), kept(first)]
    if not group.runs:
        return head + ["-"] * (len(COLUMNS) - len(head))
    speeds = [run["tokens_per_s"] for run in group.runs]
    spread = f" [{min(speeds):.0f}-{max(speeds):.0f}]" if len(speeds) > 1 else ""
    peaks = zip(*(run["peak_rss_mb_ranks"] for run in group.runs))
    counted = "lower_bound_bytes" in group.runs[0]
    waits = group.middle(lambda run: 100 * statistics.mean(run["wait_s"]) / run["step_s"]) if counted else None
    return head + [
        f"{group.speed:.0f}{spread}",
        f"{group.middle(lambda run: run['step_s']):.3f}",
        f"{waits:.0f} %" if counted else "",
        ", ".join(f"{statistics.median(values):.0f}" for values in peaks),
        f"{group.sent / MB:.1f}" if counted else "",
        f"{group.bound / MB:.1f}" if counted else "",
        f"{group.sent / group.bound:.3f}" if counted else ""]


def table(groups, markdown):
    rows = [list(COLUMNS)] + [cells(group) for group in groups]
    if markdown:
        rows.insert(1, ["---"] * len(COLUMNS))
        return ["| " + " | ".join(row) + " |" for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


class Answers:
    """The comparisons that the bench is for, between rows of one table."""

    def __init__(self, groups, table):
        self.groups, self.table = groups, table
        self.lines = []

    def find(self, program, world=2, threads=1, strategy=None, strict=False, checkpointing=True):
        strategy = strategy or ("one rank" if world == 1 else "expert parallel")
        group = self.groups.get((program, *self.table, world, threads, strategy, strict, checkpointing))
        return group if group and group.runs else None

    def ratio(self, text, one, other, what="speed"):
        if one and other:
            self.lines.append(f"{text}: {getattr(one, what) / getattr(other, what):.2f}")

    def compare(self):
        alone, wide = self.find("asterism", world=1), self.find("asterism", world=1, threads=2)
        gather, expert = self.find("asterism", strategy="gather experts"), self.find("asterism")
        self.ratio("expert parallel against gathering all experts, speed", expert, gather)
        self.ratio(f"the same in {TITLES['twinkle']}", self.find("twinkle"),
                   self.find("twinkle", strategy="gather experts"))
        self.efficiency(f"{TITLES['asterism']}, two ranks", expert, alone)
        self.efficiency("two runs that share the machine and nothing else",
                        self.find("asterism", strategy="apart"), alone)
        self.ratio("two ranks of one thread against one rank of two threads, speed", expert, wide)
        self.efficiency(f"{TITLES['fsdp2']}, two ranks", self.find("fsdp2", strategy="gather experts"),
                        self.find("transformers", world=1))
        self.efficiency(f"{TITLES['twinkle']}, two ranks", self.find("twinkle"), self.find("twinkle", world=1))
        self.strict("one rank", alone, self.find("asterism", world=1, strict=True))
        self.strict("gathering experts", gather,
                    self.find("asterism", strategy="gather experts", strict=True))
        self.strict("expert parallel", expert, self.find("asterism", strict=True))
        for program, strategy in (("fsdp2", "gather experts"), ("twinkle", "expert parallel")):
            for checkpointing in (True, False):
                own = self.find("asterism", checkpointing=checkpointing)
                other = self.find(program, strategy=strategy, checkpointing=checkpointing)
                keeps = "keeping inputs" if checkpointing else "keeping all"
                self.ratio(f"against {TITLES[program]}, {keeps}, speed", own, other)
                self.ratio(f"against {TITLES[program]}, {keeps}, peak memory", own, other, "peak")
        self.transport("gathering experts", gather)
        self.transport("expert parallel", expert)
        return self.lines

    def efficiency(self, text, two, one):
        if two and one:
            times = two.speed / one.speed
            self.lines.append(f"{text}, against one of one thread: {times:.2f} times the speed, efficiency "
                              f"{50 * times:.0f} %")

    def strict(self, text, fast, strict):
        if fast and strict:
            self.lines.append(f"price of strict, {text}: {100 * (fast.speed / strict.speed - 1):+.0f} % time")

    def transport(self, text, group):
        if not group:
            return
        rate = group.middle(lambda run: run["all_gather_bytes_per_s"])
        share = group.sent / rate / group.middle(lambda run: run["step_s"])
        self.lines.append(f"gloo gathers {rate / 1e9:.1f} GB/s per rank and direction here: the bytes of a step, "
                          f"{text}, take {100 * share:.0f} % of it at that rate")


def disagreement(groups):
    """Programs whose rows do not begin with one loss: they would not do the same work."""
    lines = []
    for family in (("asterism",), ("fsdp2", "transformers", "twinkle")):
        losses = [run["loss_first"] for group in groups for run in group.runs
                  if run["program"] in family and run["strategy"] != "apart"]
        if losses and max(losses) - min(losses) > 1e-5 * max(losses):
            lines.append(f"DIFFERENT first losses of {', '.join(family)}: {min(losses)} to {max(losses)}")
    return lines


def render(lines, markdown):
    """A table for each model, mode and length, and what follows from it."""
    groups = groups_of(lines)
    text = []
    for table_key in dict.fromkeys(key(line)[1:4] for line in lines):
        chosen = [group for name, group in groups.items() if name[1:4] == table_key]
        config, mode, seq = table_key
        rows = next((run["batch"] for group in chosen for run in group.runs), 0)
        title = f"{config}, {'full fine-tuning' if mode == 'full' else 'LoRA'}, S = {seq}, {rows} rows a step"
        text += ["", f"### {title}" if markdown else title, ""] + table(chosen, markdown) + [""]
        bullets = Answers(groups, table_key).compare() + disagreement(chosen)
        bullets += [f"{describe(group.first)}: {error}" for group in chosen for error in group.errors]
        text += [f"* {line}" for line in bullets]
    return text[1:]
