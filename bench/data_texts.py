"""Texts for the measurements of the data path, made from what Python and this machine bring along; always the same."""
import gettext
import json
import random
import re
import sysconfig
from pathlib import Path

LIMIT = 4_000_000  # characters
ROWS = 5000


def english():
    import pydoc_data.topics
    licences = sorted(Path("/usr/share/common-licenses").glob("*"))
    texts = list(pydoc_data.topics.topics.values())
    return "\n".join(texts + [path.read_text(errors="replace") for path in licences])[:LIMIT]


def chinese():
    """Translated messages of installed programs; "" where none are installed."""
    lines = []
    for path in sorted(Path("/usr/share/locale/zh_CN/LC_MESSAGES").glob("*.mo")):
        with path.open("rb") as file:
            for message in gettext.GNUTranslations(file)._catalog.values():
                if isinstance(message, str):
                    lines += [line for line in message.split("\n") if len(re.findall("[一-龥]", line)) * 2 > len(line)]
    return "\n".join(lines)[:LIMIT]


def code():
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)[:LIMIT]


def write_texts(folder):
    """The paths of the texts that could be had."""
    paths = []
    for name, text in (("english", english()), ("chinese", chinese()), ("code", code())):
        if not text:
            print(f"no {name} text on this machine: left out")
            continue
        paths.append(folder / f"{name}.txt")
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def write_rows(path, texts, rows=ROWS, seed=0):
    """Chat rows of one to three turns, 2.8 KB each on average, a third of them with reasoning."""
    source = random.Random(seed)
    pool = [text.read_text(encoding="utf-8") for text in texts]

    def passage(length):
        text = source.choice(pool)
        length = min(length, len(text) - 1)
        begin = source.randrange(len(text) - length)
        return text[begin:begin + length]

    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            messages, thinks = [], source.random() < 1 / 3
            for _ in range(source.randint(1, 3)):
                messages.append({"role": "user", "content": passage(source.randint(20, 450))})
                answer = {"role": "assistant", "content": passage(source.randint(100, 1000))}
                if thinks:
                    answer["reasoning_content"] = passage(source.randint(100, 600))
                messages.append(answer)
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
