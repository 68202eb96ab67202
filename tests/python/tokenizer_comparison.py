"""The comparison behind tools/compare-tokenizer."""
import itertools
import json
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import tokenizers

import tokenizer_texts
import tokenizer_variants

NOT_UTF8 = 0xFFFFFFFF
BATCH = 4_000_000  # bytes


class Difference(Exception):
    pass


def frame(data):
    return struct.pack("<I", len(data)) + data


def dump(program, tokenizer, texts, action="ids"):
    """Ids of each text (bytes); for one that is not UTF-8, ("not UTF-8", offset). And the seconds spent encoding."""
    frames = b"".join(map(frame, texts))
    done = subprocess.run([str(program), action, str(tokenizer)], input=frames, capture_output=True)
    if done.returncode != 0:
        raise Difference(f"{program} failed: {done.stderr.decode()}")
    numbers = memoryview(done.stdout).cast("I")
    found, at = [], 0
    for _ in texts:
        if numbers[at] == NOT_UTF8:
            found.append(("not UTF-8", numbers[at + 1]))
            at += 2
        else:
            found.append(numbers[at + 1:at + 1 + numbers[at]].tolist())
            at += 1 + numbers[at]
    return found, float(done.stderr.split()[-1])


def encode(reference, text):
    """Ids of the package; None where it fails: some texts in which stripped white space belongs to two added tokens."""
    try:
        return reference.encode(text, add_special_tokens=False).ids
    except BaseException as error:  # not an Exception: a panic of the library below
        if type(error).__name__ != "PanicException":
            raise
        return None


def shortest(text, differs):
    """A part of the text that still differs: halves are dropped as long as that is so."""
    step = len(text) // 2
    while step > 0:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + step:]
            if shorter and differs(shorter):
                text = shorter
            else:
                at += step
        step //= 2
    return text


def compare(program, path, reference, texts, action="ids"):
    """Raises Difference at the first text with other ids. Returns (bytes, seconds of ours, seconds of the package)."""
    data = [text.encode() for text in texts]
    found, seconds = dump(program, path, data, action)
    start = time.process_time()
    expected = [encode(reference, text) for text in texts]
    theirs = time.process_time() - start
    for text, ours, wanted in zip(texts, found, expected):
        if ours == wanted or wanted is None:
            continue

        def differs(part):
            return dump(program, path, [part.encode()])[0][0] != (encode(reference, part) or [])

        small = shortest(text, differs) if len(text) < 50_000 else text[:2000]
        raise Difference(f"{path}: ids differ for {small!r}:\n  tokenizers {(encode(reference, small) or [])[:40]}\n"
                         f"  ours       {dump(program, path, [small.encode()])[0][0][:40]}")
    return sum(map(len, data)), seconds, theirs


def compare_stream(program, path, reference, name, texts, limit):
    total = ours = theirs = 0
    batch, size = [], 0
    for text in itertools.chain(texts, [None]):
        if text is not None:
            batch.append(text)
            size += len(text.encode())
        if batch and (text is None or size >= min(BATCH, limit - total)):
            result = compare(program, path, reference, batch, "round-trip")
            total, ours, theirs = total + result[0], ours + result[1], theirs + result[2]
            batch, size = [], 0
        if total >= limit:
            break
    print(f"[compare-tokenizer] {name}: {total / 1e6:.1f} MB, the same ids; MB/s here "
          f"{total / 1e6 / max(ours, 1e-9):.1f}, tokenizers {total / 1e6 / max(theirs, 1e-9):.1f}", flush=True)
    return total


def compare_ill_formed(program, path):
    texts = list(tokenizer_texts.ill_formed())
    for data, found in zip(texts, dump(program, path, texts)[0]):
        try:
            data.decode()
            raise AssertionError(f"{data} is UTF-8")
        except UnicodeDecodeError as error:
            if found != ("not UTF-8", error.start):
                raise Difference(f"{data}: found {found}, Python says byte {error.start}")
    print(f"[compare-tokenizer] {len(texts)} ill-formed texts refused at the byte that Python names")


def compare_variants(program, seed, count):
    refused = compared = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        for number in range(count):
            variant, texts = tokenizer_variants.variant(seed, number)
            path.write_text(json.dumps(variant, ensure_ascii=False))
            try:
                compare(program, path, tokenizers.Tokenizer.from_str(path.read_text()), texts)
            except Difference:
                kept = Path(tempfile.gettempdir()) / "compare-tokenizer.json"
                kept.write_text(path.read_text())
                print(f"[compare-tokenizer] variant {number} is kept in {kept}")
                raise
            compared += 1
        for name, change in tokenizer_variants.unsupported():
            path.write_text(json.dumps(change))
            done = subprocess.run([str(program), "ids", str(path)], input="", capture_output=True, text=True)
            if done.returncode == 0 or name not in done.stderr:
                raise Difference(f"a tokenizer.json with {name} must be refused by name, found: {done.stderr}")
            refused += 1
    print(f"[compare-tokenizer] {compared} small vocabularies, the same ids; {refused} unsupported parts refused")


def corpus(program, path):
    """The texts of the C++ test tokenizer_corpus."""
    data = subprocess.run([str(program), "corpus", str(path)], capture_output=True, check=True).stdout
    texts, at = [], 0
    while at < len(data):
        length = struct.unpack_from("<I", data, at)[0]
        texts.append(data[at + 4:at + 4 + length].decode())
        at += 4 + length
    return texts


def compare_all(program, path, megabytes, seed):
    reference = tokenizers.Tokenizer.from_file(str(path))
    vocabulary = json.loads(path.read_text())
    contents = [token["content"] for token in vocabulary["added_tokens"]]
    size = reference.get_vocab_size(with_added_tokens=False)
    words = [word for word in (reference.decode([i]) for i in range(size)) if word and "\ufffd" not in word]
    kinds = [("corpus of the tests", corpus(program, path), 1.0), ("code", tokenizer_texts.code(), 0.25),
             ("prose", tokenizer_texts.prose(), 0.3), ("scripts", tokenizer_texts.scripts(seed), 0.25),
             ("runs", tokenizer_texts.runs(seed), 0.1), ("markup", tokenizer_texts.markup(seed, contents), 0.05),
             ("words of the vocabulary", tokenizer_texts.real_words(seed, words), 0.1)]
    print(f"[compare-tokenizer] tokenizers {tokenizers.__version__}, {path}")
    try:
        compare_ill_formed(program, path)
        total = sum(compare_stream(program, path, reference, name, texts, share * megabytes * 1e6)
                    for name, texts, share in kinds)
        compare_variants(program, seed, max(20, int(4 * megabytes)))
    except Difference as difference:
        print(f"[compare-tokenizer] {difference}")
        return 1
    print(f"[compare-tokenizer] {total / 1e6:.1f} MB in all")
    return 0


def fnv(values):
    state = 0xCBF29CE484222325
    for value in values:
        state = ((state ^ value) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return state


def write_hashes(program, path, target):
    reference = tokenizers.Tokenizer.from_file(str(path))
    lines = []
    for text in corpus(program, path):
        ids = reference.encode(text, add_special_tokens=False).ids
        lines.append(f"{fnv(text.encode()):016x} {fnv(ids):016x}\n")
    target.write_text("".join(lines))
    print(f"[compare-tokenizer] {target}: {len(lines)} texts, ids of tokenizers {tokenizers.__version__}")
