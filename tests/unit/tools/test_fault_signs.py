"""The table of signs: whole, of names that exist, and each asserted by a test that plays the fault."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from relay import events
from relay.observability.metrics import Metrics
from relay.observability.peer_gauges import PEERS
from tests import ROOT
from tests.support.faults.catalogue import MENU
from tests.support.faults.observability import SIGNS
from tests.support.pages import docs
from tests.support.pages.doc_tables import event_kinds

REASONS = ("none: ", "as ", "each ")
"""How a cell begins that names nothing to look for."""
OUTSIDE = {"up", "timestamp"}
"""Prometheus' own metric, and the time of a log line."""
every_fault = pytest.mark.parametrize("number", sorted(SIGNS), ids=lambda number: MENU[number][:40])


def names(cell: str) -> list[str]:
    """The text in backticks in a cell, without labels."""
    return [re.sub(r"\{.*\}", "", span) for span in re.findall(r"`([^`]+)`", cell)]


def metrics() -> set[str]:
    """Every metric that a relay exports, with those that need the database."""
    made = Metrics(*PEERS)
    made.sink(events.ListenUp())
    made.watch(in_flight=int, silent=dict)
    wanted = {name for signs in SIGNS.values() for name in names(signs.metric)}
    made.queue({re.sub(r"^relay_(queue_)?", "", name): 0.0 for name in wanted})
    return set(re.findall(r"^# TYPE (\w+)", made.render()[0].decode(), re.MULTILINE))


def log_words() -> set[str]:
    """Every event of the log, and every field of one, with the words that a field may have."""
    kinds = event_kinds()
    called = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower() for kind in kinds}
    return called | {field.name for kind in kinds for field in fields(kind)} | {"drain", "cut"}


def files_of(number: int) -> str:
    """The texts of the files in which the fault is played."""
    texts = (docs.text_of(path) for path in ROOT.glob("tests/**/test_*.py"))
    return "\n".join(text for text in texts if re.search(rf"mark\.fault\({number}\b", text))


def test_every_fault_of_the_menu_has_its_signs() -> None:
    """And no other."""
    assert [*MENU] == sorted(SIGNS)


@every_fault
def test_a_fault_shows_in_each_of_three_places_or_it_is_said_why_not(number: int) -> None:
    """A name to look for, or a reason in words."""
    assert [] == [cell for cell in SIGNS[number] if not (names(cell) or cell.startswith(REASONS))]


@every_fault
def test_metrics_and_events_of_a_fault_exist(number: int) -> None:
    """An operator can find them."""
    signs = SIGNS[number]

    assert set() == set(names(signs.metric)) - metrics() - OUTSIDE
    assert set() == {name for name in names(signs.event) if re.fullmatch(r"[a-z]+(_[a-z]+)*", name)} - log_words() - OUTSIDE


@every_fault
def test_signs_of_a_fault_are_asserted_where_it_is_played(number: int) -> None:
    """The words stand in a file with a test of this fault, whatever numbers are between them."""
    played = files_of(number)
    wanted = [part.strip() for cell in SIGNS[number] if not cell.startswith(REASONS) for name in names(cell) for part in name.split("…")]

    assert played
    assert [] == [part for part in wanted if part not in played and part not in OUTSIDE]
