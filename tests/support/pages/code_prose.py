"""What people read in code: docstrings, comments and sentences of Python modules, and the comments of SQL files."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.support.pages.prose import flaws

_DIRECTIVES = ("noqa", "type:", "fmt:", "!")
"""What tools read in comments."""
_SENTENCE = re.compile(r"(?:\S+ ){3,}\S*[.:?]$")
"""A text of four words or more that ends like a sentence."""
_SQL_COMMENT = re.compile(r"\s*--\s*(.*)")


def code_flaws(path: Path) -> list[str]:
    """Sentences of a file that must be rewritten, each with the reason."""
    source = path.read_text(encoding="utf-8")
    texts = sql_texts(source) if path.suffix == ".sql" else (*docstrings(source), *comments(source), *messages(source))
    return [flaw for text in texts for flaw in flaws(text)]


def docstrings(source: str) -> Iterator[str]:
    """The docstrings of a module, those behind attributes included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def comments(source: str) -> Iterator[str]:
    """The comments of a module; those of lines that follow one another are one text."""
    found = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT]
    prose = [(token.start[0], text) for token in found if not (text := token.string.lstrip("# ")).startswith(_DIRECTIVES)]
    for _, block in groupby(enumerate(prose), key=lambda each: each[1][0] - each[0]):
        yield " ".join(text for _, (_, text) in block)


def messages(source: str) -> Iterator[str]:
    """The sentences of a module that users read; `x` is in the place of what is filled in."""
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Expr | ast.JoinedStr) for part in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        else:
            continue
        if _SENTENCE.match(text):
            yield text


def sql_texts(source: str) -> Iterator[str]:
    """The comments of an SQL file; those of lines that follow one another are one text."""
    found = map(_SQL_COMMENT.fullmatch, source.splitlines())
    for is_comment, block in groupby(found, key=bool):
        if is_comment:
            yield " ".join(match[1] for match in block if match)


def main() -> None:
    """Print the flaws of the files that are named, and of those in the folders that are named."""
    for root in map(Path, sys.argv[1:]):
        for path in sorted({root, *root.rglob("*.py"), *root.rglob("*.sql")}):
            if path.is_file():
                for flaw in code_flaws(path):
                    print(f"{path}: {flaw}")  # noqa: T201


if __name__ == "__main__":
    main()
