"""Pages are in plain English."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tests.support.pages.docs import PAGES, is_history
from tests.support.pages.prose import MOST_WORDS, flaws


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
