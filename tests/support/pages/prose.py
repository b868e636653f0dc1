"""Plain English: too long sentences, and words for which the field has another; `python -m tests.support.pages.prose PAGE…` lists them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.pages.docs import PAGES

MOST_WORDS = 25
"""Of a sentence."""
DENIED = (
    "anew", "beside", "besides", "nobody", "whoever", "told", "in hand", "goes on", "go on", "went on", "mend", "mended", "mends", "let go",
    "blame", "guilty", "dear", "stands", "stood", "comes up empty", "astray", "in the air", "ear", "shelf", "given back", "gives back",
    "put back", "puts back",
)  # fmt: skip
"""Words and phrases of our own making; `docs/glossary.md` and CONTRIBUTING have the field's."""
_DENIED = re.compile(rf"\b(?:{'|'.join(map(re.escape, DENIED))})\b", re.IGNORECASE)
_LEFT_OUT = re.compile(r"<!-- ([\w ]+) -->.*?<!-- /\1 -->|^ *```.*?^ *```|<!--.*?-->|^ *\|[^\n]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_ENDS = re.compile(r"(?<=[.!?:;])\s+|(?<=[.!?:]\*\*)\s+|\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)")


def sentences(page: str) -> Iterator[str]:
    """The sentences of a page, without tables, programs, headings and generated parts; what is between backquotes is one word."""
    text = _CODE.sub("CODE", _LINK.sub(r"\1", _LEFT_OUT.sub("\n\n", page)))
    for part in _ENDS.split(re.sub(r"^#.*$", "\n", text, flags=re.MULTILINE)):
        if sentence := " ".join(part.split()):
            yield sentence


def flaws(page: str) -> list[str]:
    """Sentences to be rewritten, each with the reason."""
    found = []
    for sentence in sentences(page):
        words = len(re.findall(r"\d[\d,.]*|\w[\w'-]*", sentence))
        denied = _DENIED.findall(sentence)
        if words > MOST_WORDS:
            found.append(f"{words} words: {sentence}")
        if denied:
            found.append(f"{', '.join(denied)}: {sentence}")
    return found


def main() -> None:
    """Print the flaws of the pages that are named, or of all."""
    for path in map(Path, sys.argv[1:] or map(str, PAGES)):
        for flaw in flaws(path.read_text(encoding="utf-8")):
            print(f"{path}: {flaw}")  # noqa: T201


if __name__ == "__main__":
    main()
