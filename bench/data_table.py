"""The data part of bench/run: this engine beside the package `tokenizers` and a short Python pipeline."""
import json
import subprocess
import tempfile
from pathlib import Path

import data_texts

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/bench/bench_data"
TOKENIZER = ROOT / "build/tokenizer/tokenizer.json"
LENGTH = 4096
PUBLISHED_ROWS_PER_S = 240  # of Twinkle 0.5.1's DeepSeek-V4 template on such rows, one process


def lines_of(command):
    done = subprocess.run([str(word) for word in command], cwd=ROOT / "bench", capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        reason = (done.stderr.strip() or "no output").splitlines()[-1]
        return [{"error": reason, "command": " ".join(map(str, command[:3]))}]
    return lines


def has_tokenizers(python):
    return python.exists() and subprocess.run([str(python), "-c", "import tokenizers"],
                                              capture_output=True).returncode == 0


def both(python, *arguments):
    """Lines of this engine and of the baseline (None without one), pair by pair."""
    own = lines_of([PROGRAM, *arguments])
    other = lines_of([python, "data_baseline.py", *arguments]) if python else [None] * len(own)
    return list(zip(own, other))


def print_pair(name, own, other, key, unit):
    if "error" in own or (other and "error" in other):
        print(f"{name:22s} error: {own.get('error') or other['error']}")
        return
    compared = ""
    if other:
        ratio = own[key] / other[key] if unit != "s" else other[key] / own[key]
        compared = f" | {other[key]:10.2f} | {ratio:6.1f}"
        for same in ("tokens", "trained_tokens", "checksum"):
            if own.get(same) != other.get(same):
                compared += f"  DIFFERENT {same}: {own[same]} and {other[same]}"
    print(f"{name:22s} {own[key]:10.2f} {unit:6s}{compared}", flush=True)


def measure(python, quick):
    """Prints the table and returns all lines."""
    if not TOKENIZER.exists():
        print("data path: no tokenizer.json in build/tokenizer (make setup): not measured")
        return []
    python = python if python and has_tokenizers(python) else None
    passes = 1 if quick else 5
    pairs = []
    print("data path, one thread         here        | tokenizers | ratio")
    with tempfile.TemporaryDirectory() as folder:
        texts = data_texts.write_texts(Path(folder))
        for own, other in both(python, "tokenizer", TOKENIZER, passes, *texts):
            print_pair(f"tokens of {own.get('text', '?')}", own, other, "mb_per_s", "MB/s")
            pairs.append((own, other))
        own, other = both(python, "load", TOKENIZER, passes)[0]
        print_pair("tokenizer.json", own, other, "seconds", "s")
        pairs.append((own, other))
        rows = Path(folder) / "rows.jsonl"
        data_texts.write_rows(rows, texts)
        own, other = both(python, "rows", TOKENIZER, passes, rows, LENGTH)[0]
        print_pair("chat rows", own, other, "rows_per_s", "rows/s")
        print_pair("chat rows", own, other, "mb_per_s", "MB/s")
        if "workers" in own:
            print(f"chat rows per core: {own['mb_per_s']:.1f} MB/s with one thread, "
                  f"{own['workers_mb_per_s_per_core']:.1f} MB/s with {own['workers']} workers (by the clock)")
        if "rows_per_s" in own:
            print(f"chat rows beside Twinkle 0.5.1's template ({PUBLISHED_ROWS_PER_S} rows/s published): "
                  f"{own['rows_per_s'] / PUBLISHED_ROWS_PER_S:.0f}x")
        pairs.append((own, other))
    return [line for pair in pairs for line in pair if line]
