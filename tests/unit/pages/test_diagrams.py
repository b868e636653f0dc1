"""The diagrams in README and docs are such as a browser can draw."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.pages import docs

_BLOCK = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PARTICIPANT = re.compile(r"participant (\w+)(?: as \S.*)?")
_ARROW = re.compile(r"(\w+)(?:-{1,2}>{1,2}|-{1,2}[x)])[+-]?(\w+): (\S[^;#]*)")
"""A message line of mermaid's sequence grammar; a semicolon or a hash in its text would end it."""
_OPENS = re.compile(r"(alt|opt|loop|par) \S.*")
_DIVIDES = {"else": "alt", "and": "par"}


def sequences(page: Path) -> list[str]:
    """Texts of the sequence diagrams of a page."""
    return [text for text in _BLOCK.findall(docs.text_of(page)) if text.startswith("sequenceDiagram")]


class Diagram:
    """A sequence diagram, read line by line as mermaid does.

    Raises:
        ValueError: a line that mermaid refuses, or draws as something else than what is meant.
    """

    def __init__(self, text: str) -> None:
        self.participants: list[str] = []
        self.arrows: list[tuple[str, str, str]] = []
        self._open: list[str] = []
        for line in text.splitlines()[1:]:
            self._take(line.strip())
        if self._open:
            raise ValueError(f"{self._open} without an end")

    def _take(self, line: str) -> None:
        if found := _PARTICIPANT.fullmatch(line):
            self.participants.append(found[1])
        elif found := _ARROW.fullmatch(line):
            self._arrow(found[1], found[2], found[3])
        elif found := _OPENS.fullmatch(line):
            self._open.append(found[1])
        elif line.partition(" ")[0] in _DIVIDES and self._open[-1:] == [_DIVIDES[line.partition(" ")[0]]]:
            pass
        elif line == "end" and self._open:
            self._open.pop()
        elif line:
            raise ValueError(f"mermaid does not understand: {line}")

    def _arrow(self, source: str, target: str, text: str) -> None:
        if unknown := {source, target} - {*self.participants}:
            raise ValueError(f"{unknown} would be drawn as new participants")
        self.arrows.append((source, target, text))


@pytest.mark.ids("A32")
def test_the_readme_draws_the_way_of_a_message() -> None:
    """From the app's transaction over claim, publish and confirm to the archive, with what happens on refusal and death."""
    [text] = sequences(ROOT / "README.md")

    diagram = Diagram(text)

    assert ["App", "PG", "Relay", "MQ"] == diagram.participants
    assert [
        ("App", "PG", "BEGIN"),
        ("PG", "Relay", "NOTIFY"),
        ("Relay", "PG", "claim"),
        ("PG", "Relay", "rows"),
        ("Relay", "MQ", "publish"),
        ("MQ", "Relay", "Basic.Ack"),
        ("Relay", "PG", "settle"),
    ] == [(source, target, text.partition(" ")[0].strip(":,")) for source, target, text in diagram.arrows[:7]]


@pytest.mark.parametrize("page", [page for page in docs.PAGES if sequences(page)], ids=lambda page: page.name)
def test_every_sequence_diagram_can_be_drawn(page: Path) -> None:
    """Each line is one of mermaid's, between participants that are declared, in blocks that end."""
    assert all(Diagram(text).arrows for text in sequences(page))


@pytest.mark.parametrize(
    "line",
    ["App->>Nobody: hello", "alt open for ever", "else alone", "end", "App->PG", "App->>PG: one; two", "App=>PG: no such arrow"],
)
def test_a_diagram_that_mermaid_would_spoil_is_refused(line: str) -> None:
    """The reader of diagrams is no yes-man."""
    with pytest.raises(ValueError, match=r"mermaid|participants|end"):
        Diagram(f"sequenceDiagram\nparticipant App\nparticipant PG\n{line}\n")
