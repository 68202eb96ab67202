#!/usr/bin/env python3
"""What bench_data does, by other means: the package `tokenizers`, and chat rows prepared by a short Python program.

    data_baseline.py tokenizer TOKENIZER PASSES TEXT...
    data_baseline.py rows TOKENIZER PASSES ROWS.jsonl LENGTH
    data_baseline.py load TOKENIZER PASSES

One thread, processor seconds, the median of the passes after a first one: the same keys as bench_data's.
The rows are rendered with f-strings straight to the text of the official encoding (no tools, no system message), the
least that any trainer in Python has to do.
"""
import json
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
import tokenizers  # noqa: E402

DOCUMENT_BYTES = 20000
BOS, EOS, USER, ASSISTANT = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"


def median_seconds(passes, work):
    work()
    seconds = []
    for _ in range(passes):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def documents(data):
    cut, begin = [], 0
    while begin < len(data):
        end = min(len(data), begin + DOCUMENT_BYTES)
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        cut.append(data[begin:end].decode())
        begin = end
    return cut


def measure_tokenizer(tokenizer, path, passes):
    data = path.read_bytes()
    texts = documents(data)
    ids = []

    def work():
        ids[:] = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]

    seconds = median_seconds(passes, work)
    checksum = 0
    for document in ids:
        for token in document:
            checksum = (checksum * 31 + token) & 0xFFFFFFFF
    return {"kind": "tokenizer", "program": "tokenizers " + tokenizers.__version__, "text": path.stem,
            "mb": len(data) / 1e6, "tokens": sum(map(len, ids)), "checksum": checksum, "seconds": seconds,
            "mb_per_s": len(data) / 1e6 / seconds}


def render(messages):
    """The text and the parts of it that are trained: of the last turn where reasoning is dropped, else of all."""
    thinks = any(message.get("reasoning_content") for message in messages)
    last_user = max(i for i, message in enumerate(messages) if message["role"] == "user")
    text, trained = BOS, []
    for i, message in enumerate(messages):
        if message["role"] == "user":
            text += f"{USER}{message['content']}{ASSISTANT}" + ("<think>" if thinks and i == last_user else "</think>")
            continue
        begin = len(text)
        reasoning = f"{message['reasoning_content']}</think>" if thinks and i > last_user else ""
        text += f"{reasoning}{message['content']}{EOS}"
        if not thinks or i > last_user:
            trained.append((begin, len(text)))
    return text, trained


def prepare(tokenizer, path, length):
    """Rows of at most `length` tokens, filled in the order of the file."""
    rows, row, tokens, trained_tokens = [], [], 0, 0
    for line in path.open(encoding="utf-8"):
        text, parts = render(json.loads(line)["messages"])
        encoding = tokenizer.encode(text, add_special_tokens=False)
        weights = [0.0] * len(encoding.ids)
        part = 0
        for t, (begin, end) in enumerate(encoding.offsets):
            while part < len(parts) and parts[part][1] <= begin:
                part += 1
            if part < len(parts) and parts[part][0] <= begin and end <= parts[part][1]:
                weights[t] = 1.0
        if len(row) + len(weights) > length:
            rows.append(row)
            row = []
        row += zip(encoding.ids, weights)
        tokens += len(weights)
        trained_tokens += sum(1 for weight in weights if weight > 0)
    return len(rows) + 1, tokens, trained_tokens


def measure_rows(tokenizer, path, length, passes):
    result = {}

    def work():
        result["packed"] = prepare(tokenizer, path, length)

    seconds = median_seconds(passes, work)
    packed_rows, tokens, trained_tokens = result["packed"]
    rows, size = sum(1 for _ in path.open(encoding="utf-8")), path.stat().st_size / 1e6
    return {"kind": "chat_rows", "program": "python, tokenizers " + tokenizers.__version__, "rows": rows, "mb": size,
            "tokens": tokens, "trained_tokens": trained_tokens, "fill_ratio": tokens / (packed_rows * length),
            "seconds": seconds, "rows_per_s": rows / seconds, "mb_per_s": size / seconds}


def main():
    action, path, passes, *rest = sys.argv[1:]
    passes = int(passes)
    if action == "load":
        seconds = median_seconds(passes, lambda: tokenizers.Tokenizer.from_file(path))
        print(json.dumps({"kind": "tokenizer_load", "program": "tokenizers " + tokenizers.__version__,
                          "seconds": seconds}))
        return
    tokenizer = tokenizers.Tokenizer.from_file(path)
    if action == "tokenizer":
        for text in rest:
            print(json.dumps(measure_tokenizer(tokenizer, Path(text), passes)), flush=True)
    else:
        print(json.dumps(measure_rows(tokenizer, Path(rest[0]), int(rest[1]), passes)))


if __name__ == "__main__":
    main()
