"""Plain English: too long sentences, and words for which the field has another; `python -m tests.support.pages.prose PAGE…` lists them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.pages.docs import PAGES, PROGRAM

MOST_WORDS = 25
"""Of a sentence."""
DENIED = (
    "anew", "beside", "besides", "nobody", "whoever", "told", "in hand", "goes on", "go on", "went on", "mend", "mended", "mends", "let go",
    "blame", "guilty", "dear", "stands", "stood", "comes up empty", "astray", "in the air", "ear", "shelf", "given back", "gives back",
    "put back", "puts back", "chore", "chores", "spoiled", "dearest", "offence",
)  # fmt: skip
"""Words and phrases of our own making; `docs/glossary.md` and CONTRIBUTING have the field's."""
_DENIED = re.compile(rf"\b(?:{'|'.join(map(re.escape, DENIED))})\b", re.IGNORECASE)
_LEFT_OUT = re.compile(r"<!-- ([\w ]+) -->.*?<!-- /\1 -->|^ *```.*?^ *```|<!--.*?-->|^ *\|[^\n]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)(?:#|--|//) (.*)$", re.MULTILINE)
_WORD = re.compile(r"\d[\d,.]*|\w[\w'-]*")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_ENDS = re.compile(r"(?<=[.!?:;])\s+|(?<=[.!?:]\*\*)\s+|\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)")


def sentences(page: str) -> Iterator[str]:
    """The sentences of a page, without tables, programs, headings and generated parts; what is between backquotes is one word."""
    for part in _ENDS.split(_plain(_HEADING.sub("\n", _LEFT_OUT.sub("\n\n", page)))):
        if sentence := " ".join(part.split()):
            yield sentence


def lines(page: str) -> Iterator[str]:
    """What `sentences` leaves out, line by line: tables, headings, generated parts, and of programs the comments."""
    text = PROGRAM.sub("", page)
    comments = [comment for program in PROGRAM.findall(page) for comment in _COMMENT.findall(program)]
    left_out = [*comments, *_HEADING.findall(text), *(part[0] for part in _LEFT_OUT.finditer(text))]
    yield from filter(None, _plain("\n".join(left_out)).splitlines())


def flaws(page: str) -> list[str]:
    """Sentences to be rewritten and lines with denied words, each with the reason."""
    counted = [(len(_WORD.findall(sentence)), sentence) for sentence in sentences(page)]
    long = [f"{words} words: {sentence}" for words, sentence in counted if words > MOST_WORDS]
    return long + [f"{', '.join(words)}: {text}" for text in (*sentences(page), *lines(page)) if (words := _DENIED.findall(text))]


def _plain(text: str) -> str:
    return _CODE.sub("CODE", _LINK.sub(r"\1", text))


def main() -> None:
    """Print the flaws of the pages that are named, or of all."""
    for path in map(Path, sys.argv[1:] or map(str, PAGES)):
        for flaw in flaws(path.read_text(encoding="utf-8")):
            print(f"{path}: {flaw}")  # noqa: T201


if __name__ == "__main__":
    main()
