"""Small tokenizer.json files of the byte-level family, with every setting that a file can have."""
import functools
import json
import random

import tokenizers

import tokenizer_texts

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" "\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[" "\r\n" r"]*|\s*[" "\r\n" r"]+|\s+(?!\S)|\s+"]
BEHAVIOURS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
PATTERNS = [{"String": " "}, {"String": "."}, {"String": "ab"}, {"Regex": r"\s+"}, {"Regex": r"\p{L}+"},
            {"Regex": r"\p{N}"}, {"Regex": r"[^\p{L}\p{N}]"}, {"Regex": r"\r?\n"}, {"Regex": r"[a-c]{1,2}"},
            {"Regex": r"\p{P}|\p{S}"},
            {"Regex": r" ?\S+"}, {"Regex": r"(?i:the|ing)"}, {"Regex": r"a(?=b)|(?<!x)y"}, {"Regex": r"\p{M}+|\p{Z}"}]


def split(pattern, behaviour="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behaviour, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


@functools.cache
def model():
    """512 merges learned from this repository, as text."""
    learned = tokenizers.Tokenizer(tokenizers.models.BPE())
    learned.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=768, show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    texts = list(tokenizer_texts.files(tokenizer_texts.ROOT / "docs", "*.md"))
    learned.train_from_iterator(texts + ["中文的的的 日本語の のの 中文 ééé 😀😀"] * 20, trainer)
    return json.dumps(json.loads(learned.to_str())["model"])


def spelled(text):
    """The bytes of a text in the byte alphabet."""
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return byte_level.pre_tokenize_str(text)[0][0]


def odd_model(source):
    """The model with merges in an order that no training gives, and with some that join parts of characters."""
    odd = json.loads(model())
    vocabulary, merges = odd["vocab"], odd["merges"]
    parts = [character for text in "中丮串のé😀 " for character in spelled(text)]
    for _ in range(source.randint(0, 30)):
        pair = source.choice(parts), source.choice(parts)
        if "".join(pair) in vocabulary:
            continue
        vocabulary["".join(pair)] = len(vocabulary)
        merges.insert(source.randrange(len(merges)), list(pair))
        parts.append("".join(pair))
    if source.random() < 0.5:
        source.shuffle(merges)
    return odd


def pre_tokenizer(source):
    kind = source.randrange(8)
    last = {"type": "ByteLevel", "add_prefix_space": source.random() < 0.3, "trim_offsets": True,
            "use_regex": source.random() < 0.3}
    if kind == 0:
        return {**GPT2, "add_prefix_space": source.random() < 0.5}
    if kind == 1:
        return last
    if kind == 2:
        return sequence(split({"Regex": source.choice([LLAMA3, QWEN2])}), BYTES)
    if kind == 3:
        return sequence(*(split({"Regex": pattern}) for pattern in DEEPSEEK), BYTES)
    if kind == 4:
        return sequence({"type": "Digits", "individual_digits": source.random() < 0.5}, last)
    steps = [split(source.choice(PATTERNS), source.choice(BEHAVIOURS), source.random() < 0.3)
             for _ in range(source.randint(1, 3))]
    return sequence(*steps, last)


def added_tokens(source, vocabulary):
    # None of white space alone: where another one strips it, the package gives some of the text twice.
    contents = ["<s>", "</s>", "<s>>", "[MASK]", "ing", "the", "é", "<｜User｜>", "<｜", " x", "中", "_a", "a b", "x\n",
                "Ġ"]
    tokens = []
    next_id = len(vocabulary)  # the package numbers new ones so, whatever the file says
    for content in source.sample(contents, source.randint(0, 8)):
        token_id = vocabulary.get(content, next_id)
        next_id += content not in vocabulary
        tokens.append({"id": token_id, "content": content,
                       "single_word": source.random() < 0.25, "lstrip": source.random() < 0.25,
                       "rstrip": source.random() < 0.25, "normalized": source.random() < 0.4,
                       "special": source.random() < 0.5})
    return tokens


def texts(source, tokens):
    beside = [token["content"] for token in tokens] * 3 + list(" \n\tabx_1.中の") + [
              "the", "ing", "  ", "it's", "I'LL", "\r\n", "é", "\u0301", "\u00a0", "\u200d", "😀", "123456", "ab", "日本語",
              "...", "\u3000"]
    for _ in range(60):
        yield "".join(source.choices(beside, k=source.randint(1, 40)))
    yield next(tokenizer_texts.scripts(source.random()))
    yield "".join(source.choices(tokenizer_texts.SCRIPTS[source.choice(list(tokenizer_texts.SCRIPTS))], k=2000))


def file_with(pre, tokens, learned=None, **changes):
    learned = {**(learned or json.loads(model())), **changes}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None,
            "pre_tokenizer": pre, "post_processor": None, "model": learned,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}


def variant(seed, number):
    """A tokenizer.json as a value, and texts to compare on."""
    source = random.Random(f"{seed} {number}")
    pre = pre_tokenizer(source)
    learned = odd_model(source) if source.random() < 0.4 else json.loads(model())
    tokens = added_tokens(source, learned["vocab"])
    return file_with(pre, tokens, learned, ignore_merges=source.random() < 0.4), list(texts(source, tokens))


def unsupported():
    """(what the error must name, the file)."""
    plain = file_with(GPT2, [])
    yield "dropout", file_with(GPT2, [], dropout=0.1)
    yield "unk_token", file_with(GPT2, [], unk_token="<unk>")
    yield "byte_fallback", file_with(GPT2, [], byte_fallback=True)
    yield "end_of_word_suffix", file_with(GPT2, [], end_of_word_suffix="</w>")
    yield "continuing_subword_prefix", file_with(GPT2, [], continuing_subword_prefix="##")
    yield "WordPiece", {**plain, "model": {"type": "WordPiece"}}
    yield "NFC", {**plain, "normalizer": {"type": "NFC"}}
    yield "Metaspace", {**plain, "pre_tokenizer": {"type": "Metaspace"}}
    yield "TemplateProcessing", {**plain, "post_processor": {"type": "TemplateProcessing"}}
    yield "Fuse", {**plain, "decoder": {"type": "Fuse"}}
    yield "truncation", {**plain, "truncation": {"max_length": 5}}
    yield "property Lu", {**plain, "pre_tokenizer": sequence(split({"Regex": r"\p{Lu}+"}), BYTES)}
    yield "escape \\w", {**plain, "pre_tokenizer": sequence(split({"Regex": r"\w+"}), BYTES)}
