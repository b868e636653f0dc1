"""Pages, and what people read in code, are in plain English."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tests.support.pages.code_prose import code_flaws, comments, docstrings, messages, sql_texts
from tests.support.pages.docs import PAGES, is_history
from tests.support.pages.prose import MOST_WORDS, flaws

RELAY = [path for path in sorted((ROOT / "relay").rglob("*")) if path.suffix in {".py", ".sql"}]
SCHEMA = [path for path in sorted((ROOT / "sql").glob("*.sql")) if not path.name[0].isdigit()]
"""Without migrations, which are never edited."""


@pytest.mark.parametrize("page", [page for page in PAGES if not is_history(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_must_be_read_twice(page: Path) -> None:
    """Each is short and has the field's words, as far as a program can see that."""
    assert [] == flaws(page.read_text(encoding="utf-8"))


def test_long_sentences_and_words_of_our_own_are_found() -> None:
    """Tables, programs, addresses of links and generated parts count as nothing, and code as a word."""
    long = " ".join(["word"] * MOST_WORDS)
    table, program, made = f"| {long} {long} |", f"```sh\n{long} {long}\n```", f"<!-- made -->\n{long} {long}\n<!-- /made -->"
    fine = [f"# {long} {long}", f"{long}. {long}: {long}.", table, program, made]
    linked = [f"A `{long}` and [one]({long} {long}) word.", f"- {long}\n- {long}"]

    assert [] == flaws("\n\n".join(fine + linked))
    assert [f"26 words: {long} more."] == flaws(f"{long} more.")
    assert ["Nobody: Nobody waits."] == flaws("Nobody waits.")


@pytest.mark.parametrize("text", [
    "# Nobody waits", "| a | nobody waits |", "```sh\nrelay run   # nobody waits\n```", "```sql\n-- nobody waits\nSELECT 1;\n```",
    "<!-- made -->\nnobody waits\n<!-- /made -->", "<!-- made -->\n| nobody waits |\n<!-- /made -->",
])  # fmt: skip
def test_words_of_our_own_are_found_outside_sentences_too(text: str) -> None:
    """In headings, tables, comments of programs and generated parts, each once."""
    [flaw] = flaws(f"Fine.\n\n{text}\n\nFine.")

    assert "nobody" == flaw.partition(":")[0].lower()


def test_a_program_itself_is_no_prose() -> None:
    """Nor is what is between backquotes, or an address."""
    assert [] == flaws("```sh\nrelay nobody\n```\n\n| `nobody` | [waits](nobody.md) |")


@pytest.mark.parametrize("folder", sorted({path.parent for path in RELAY + SCHEMA}), ids=lambda folder: str(folder.relative_to(ROOT)))
def test_no_sentence_in_code_must_be_read_twice(folder: Path) -> None:
    """Docstrings, comments, and the sentences that users get."""
    assert {} == {path.name: found for path in RELAY + SCHEMA if path.parent == folder and (found := code_flaws(path))}


def test_what_people_read_in_a_module_is_found() -> None:
    """Comments of lines that follow one another are one text, and so are the parts of a sentence."""
    source = """
        '''Of a module.'''
        LIMIT = 3  # noqa: X1
        '''Of an attribute.'''
        # One comment
        # of two lines.
        SECONDS = 2  # Another.
        NAME = "no sentence of its own"
        raise ValueError(f"The value {NAME} is wrong" " in every case.")
    """
    module = "\n".join(line.strip() for line in source.splitlines())

    assert ["Of a module.", "Of an attribute."] == [*docstrings(module)]
    assert ["One comment of two lines. Another."] == [*comments(module)]
    assert ["The value x is wrong in every case."] == [*messages(module)]
    assert ["One of two lines.", "Another."] == [*sql_texts("-- One\n--   of two lines.\nSELECT 1;\n-- Another.")]
