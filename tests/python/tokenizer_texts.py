"""Texts to compare tokenizers on: real ones found on this machine, and made ones."""
import gettext
import random
import sysconfig
import unicodedata
from pathlib import Path

CHUNK = 16000  # characters
ROOT = Path(__file__).resolve().parent.parent.parent


def chunks(text):
    for begin in range(0, len(text), CHUNK):
        yield text[begin:begin + CHUNK]


def read(path):
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError):
        return ""


def files(folder, *patterns):
    for pattern in patterns:
        for path in sorted(Path(folder).rglob(pattern)):
            yield from chunks(read(path))


def code():
    yield from files(ROOT / "src", "*.h", "*.cpp")
    yield from files(sysconfig.get_path("stdlib"), "*.py")
    yield from files("/usr/include", "*.h")


def prose():
    """Messages of programs in all languages they were translated to, and English documents."""
    import pydoc_data.topics
    yield from chunks("\n".join(pydoc_data.topics.topics.values()))
    catalogs = sorted(Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo"))
    random.Random(0).shuffle(catalogs)
    for path in catalogs:
        try:
            with path.open("rb") as file:
                messages = gettext.GNUTranslations(file)._catalog.values()
        except (OSError, UnicodeDecodeError, LookupError, ValueError):
            continue
        yield from chunks("\n".join(message for message in messages if isinstance(message, str)))


def characters(first, last):
    return [chr(c) for c in range(first, last + 1) if not 0xD800 <= c <= 0xDFFF]


ASCII = characters(0x20, 0x7E)
SCRIPTS = {
    "english": ASCII[33:59] + ASCII[65:91] + [" "] * 12,
    "latin": characters(0xC0, 0x24F) + ASCII,
    "greek, cyrillic": characters(0x370, 0x52F) + [" "] * 20,
    "hebrew, arabic": characters(0x590, 0x6FF) + [" "] * 20,
    "indic": characters(0x900, 0xDFF) + [" "] * 40,
    "thai, lao": characters(0xE00, 0xEFF) + [" "] * 5,
    "korean": characters(0xAC00, 0xD7A3) + [" "] * 2000,
    "kana": characters(0x3000, 0x30FF),
    "han": characters(0x4E00, 0x9FFF) + list("，。、！？：；（）") * 300,
    "japanese": characters(0x3040, 0x30FF) * 20 + characters(0x4E00, 0x9FFF)[:4000] + list("、。・ー「」") * 30,
    "emoji": characters(0x1F300, 0x1FAFF) + characters(0x2600, 0x27BF) + ["\u200d", "\ufe0f", "\U0001F3FB"] * 120,
    "controls": characters(0, 0x1F) + characters(0x7F, 0x9F) + characters(0x200B, 0x200F) + list("ab 1"),
    "white space": list(" \t\n\r\v\f\x85\xa0\u1680\u2000\u2003\u2028\u2029\u202f\u205f\u3000a1中!") + [" "] * 9,
    "line breaks": list(" \n\r\n\r\n  ") + list("a.5"),
    "marks": characters(0x300, 0x36F) + list("aeiou 1!中") * 8,
    "digits": characters(0x30, 0x39) * 6 + characters(0x660, 0x669) + list("½Ⅻ²٣①.,-e x") * 2,
    "punctuation": ASCII[1:16] + ASCII[26:33] + list("…—“”‘’«»¿¡§†") + list("a1 \n") * 2,
    "presentation forms": characters(0xF900, 0xFFEF),
    "private use, tags": characters(0xE000, 0xE0FF) + characters(0xE0000, 0xE01EF) + characters(0x10FF00, 0x10FFFF),
}


def scripts(seed):
    """Random strings over the alphabet of each script, then over each block of 256 characters, without end."""
    source = random.Random(seed)
    blocks = [characters(first, first + 255) for first in range(0, 0x110000, 256) if not 0xD800 <= first <= 0xDFFF]
    assigned = [block for block in blocks if any(unicodedata.category(c) not in ("Cn", "Co") for c in block)]
    while True:
        for alphabet in SCRIPTS.values():
            yield "".join(source.choices(alphabet, k=4000))
        for _ in range(20):
            block = source.choice(assigned if source.random() < 0.95 else blocks)
            yield "".join(source.choices(block + ASCII[:30], k=2000))
        everything = SCRIPTS[source.choice(list(SCRIPTS))] + SCRIPTS[source.choice(list(SCRIPTS))] + ASCII
        yield "".join(source.choices(everything, k=4000))
        yield "".join(chr(source.randrange(*source.choice([(0, 0xD800), (0xE000, 0x110000)]))) for _ in range(2000))


def runs(seed):
    """One character or a few, again and again."""
    source = random.Random(seed)
    units = ["a", " ", "\n", "\r\n", "=", "-", "0", "7", "中", "の", "é", "\u0301", "\x00", "\u200d", "😀", "👩‍👩‍👧", " \n",
             "ab", "<", "<｜", "｜", "aA", "1 ", " 1", "\t", ". ", "_a", "\u3000", "ก", "ا", "\U0010FFFF", "a\n", "ha",
             "！", "。\n"]
    for unit in units:
        for length in (1, 2, 3, 7, 8, 15, 16, 17, 47, 48, 49, 255, 256, 257, 1000, 100000):
            yield unit * length
            yield "x" + unit * length + source.choice(["y", " ", "5", "中", "\n"])


def markup(seed, contents):
    """Added tokens whole, cut, doubled and with other texts between them."""
    source = random.Random(seed)
    beside = ["", " ", "\n", "  ", "a", "中", "_", "1", ".", "<", "｜", "\u00a0", "\u0301", "user", ">"]
    while True:
        parts = []
        for _ in range(300):
            content = source.choice(contents)
            kind = source.random()
            if kind < 0.2:
                content = content[:source.randrange(len(content) + 1)]
            elif kind < 0.4:
                content = content[source.randrange(len(content)):]
            elif kind < 0.5:
                at = source.randrange(len(content))
                content = content[:at] + source.choice(beside) + content[at + 1:]
            parts += [content, source.choice(beside)]
        yield "".join(parts)


def real_words(seed, words):
    """Tokens of the vocabulary in any order: words of all its languages, frequent ones more often."""
    source = random.Random(seed)
    while True:
        low = source.choice([300, 3000, 30000, len(words)])
        yield "".join(source.choices(words[:low], k=3000))


def ill_formed():
    """Bytes that are not UTF-8."""
    bad = [b"\x80", b"\xc0\xaf", b"\xc3", b"\xe4\xb8", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xff",
           b"\xfe", b"\xf8\x88\x80\x80\x80", b"\xe0\x80\x80"]
    for part in bad:
        for before in (b"", b"a", b"12345678", "中".encode(), b"<", "<｜".encode() * 50):
            for after in (b"", b"z", b" 12345678", "中".encode()):
                yield before + part + after
