"""Bytes that a rank has to send in a step, at least: the formula of docs/perf/ranks.md#the-lower-bound."""


def sent_to_others(size, ranks):
    """Of `size` bytes spread over `ranks` ranks: what each sends when all come to need, or have for all, the whole."""
    return size * (ranks - 1) / ranks


def lower_bound(units, row_bytes, expert, shard, replicate, recompute, rounds):
    """Bytes per rank and step, by what they are for.

    units      bytes of the whole model, {"trained", "frozen"} of "embedding", "halves", "experts", "head"
    row_bytes  of all (token, expert) rows of the step that a rank and others send to each other, once one way: the
               rank's own rows for experts elsewhere and the rows of others for its experts; a mean over the ranks
    expert, shard, replicate   the mesh
    recompute  whether weights are dropped after the forward pass and needed again in the backward pass
    rounds     micro-batches of each rank
    """
    uses = {"embedding": 1, "head": 1, "halves": 2 if recompute else 1, "experts": 2 if recompute else 1}
    copies_of_experts = shard * replicate // expert
    bound = {"gather": 0.0, "reduce": 0.0, "replicas": 0.0, "rows": 0.0}
    for kind, unit in units.items():
        # A rank keeps all of 1 / expert of the experts, divided among those that keep the same ones.
        ranks = copies_of_experts if kind == "experts" else shard
        size = {key: value / (expert if kind == "experts" else 1) for key, value in unit.items()}
        bound["gather"] += rounds * uses[kind] * sent_to_others(size["trained"] + size["frozen"], ranks)
        bound["reduce"] += rounds * sent_to_others(size["trained"], ranks)
        if kind != "experts":
            # A sum that all copies need: every part travels to one of them and back.
            bound["replicas"] += 2 * sent_to_others(size["trained"] / shard, replicate)
    # Tokens and results in the forward pass, the gradients of both in the backward pass; row_bytes is of all rounds.
    bound["rows"] = 2 * row_bytes
    bound["total"] = sum(bound.values())
    return bound


def bound_of(line):
    """The bound of a line of bench_ranks_step."""
    return lower_bound(line["units"], sum(line["row_bytes"]) / len(line["row_bytes"]), line["expert"], line["shard"],
                       line["replicate"], line["recompute"] == "blocks", -(-line["batch"] // line["world"]))
