"""Which messages of the lake a filter means, and how a replay job is called."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from relay.errors import PipelineError
from relay.message import ERASED
from relay.pipeline.replay.selection import Selection

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"id": "a", "exchange": "orders", "routing_key": "order.new", "ordering_key": "k", "result": "success", "error_code": None},
    {"id": "b", "exchange": "orders", "routing_key": "order.old", "ordering_key": None, "result": "failed", "error_code": "no_route"},
    {"id": "c", "exchange": "or%ers", "routing_key": "new\nline", "ordering_key": "k*", "result": "failed", "error_code": "nacked"},
    {"id": "d", "exchange": "", "routing_key": "back\\slash_", "ordering_key": "", "result": "discarded", "error_code": None},
    {"id": "e", "exchange": "keys", "routing_key": "", "ordering_key": None, "result": "discarded", "error_code": "cancelled"},
    {"id": "f", "exchange": "keys", "routing_key": "", "ordering_key": None, "result": "discarded", "error_code": "superseded"},
    {"id": "g", "exchange": "keys", "routing_key": "", "ordering_key": None, "result": "discarded", "error_code": "bundled"},
    {"id": "h", "exchange": "keys", "routing_key": "", "ordering_key": None, "result": "discarded", "error_code": "unroutable"},
]
ERASED_ROW = {"id": "i", "exchange": "gone", "routing_key": "", "ordering_key": None, "result": "success", "error_code": None}
SCHEMA = pa.schema([(name, pa.string()) for name in (*ROWS[0], "options")] + [("archived_at", pa.timestamp("us", "UTC"))])


def found(**given: Any) -> str:
    """Ids of ROWS, archived an hour after each other from noon on, that a selection has."""
    rows = [{**row, "options": "{}", "archived_at": NOON + timedelta(hours=number)} for number, row in enumerate(ROWS)]
    rows.append({**ERASED_ROW, "options": ERASED, "archived_at": NOON})
    dataset = ds.dataset(pa.Table.from_pylist(rows, schema=SCHEMA))
    return "".join(dataset.to_table(filter=Selection(**given).expression())["id"].to_pylist())


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ({}, "abcdh"),
        ({"exchange": "orders"}, "ab"),
        ({"exchange": "or*ers"}, "abc"),
        ({"exchange": "or%ers"}, "c"),
        ({"exchange": ""}, "d"),
        ({"exchange": "gone"}, ""),
        ({"ids": ("i",)}, "i"),
        ({"exchange": "*"}, "abcdh"),
        ({"exchange": "keys"}, "h"),
        ({"exchange": "keys", "result": "discarded"}, "efgh"),
        ({"error_code": "superseded"}, "f"),
        ({"exchange": "keys", "ids": ("e", "g")}, "eg"),
        ({"routing_key": "order.*"}, "ab"),
        ({"routing_key": "*new"}, "a"),
        ({"routing_key": "new*"}, "c"),
        ({"routing_key": "*line"}, "c"),
        ({"routing_key": "back\\slash_"}, "d"),
        ({"routing_key": "order_new"}, ""),
        ({"ordering_key": "k"}, "a"),
        ({"ordering_key": "k*"}, "c"),
        ({"ordering_key": ""}, "d"),
        ({"result": "failed"}, "bc"),
        ({"error_code": "no_route"}, "b"),
        ({"ids": ("A", "c", "z")}, "ac"),
        ({"since": NOON + timedelta(hours=1)}, "bcdh"),
        ({"until": NOON + timedelta(hours=1)}, "a"),
        ({"since": NOON, "until": NOON.astimezone(timezone(timedelta(hours=9))) + timedelta(hours=2), "result": "failed"}, "b"),
    ],
    ids=str,
)
def test_a_selection_has_what_meets_all_that_is_given(given: dict[str, Any], ids: str) -> None:
    """A star is any run of characters in exchange and routing key, and nothing else is more than itself."""
    assert ids == found(**given)


def test_days_outside_the_times_are_not_looked_at() -> None:
    """Days are UTC's; the end is not part of it, but its day may be."""
    days = [date(2024, 4, 30), date(2024, 5, 1), date(2024, 5, 2)]
    late = datetime(2024, 5, 1, 23, tzinfo=timezone(timedelta(hours=-3)))
    assert days == Selection(result="failed").days(days)
    assert [days[2]] == Selection(since=late).days(days)
    assert days[:2] == Selection(until=NOON).days(days)


def test_a_job_is_called_after_its_filter() -> None:
    """The same filter in other words has the same name, and any other filter another."""
    job = Selection(since=NOON, ids=("A", "b")).job(same_id=False)
    assert job == Selection(since=NOON.astimezone(timezone(timedelta(hours=2))), ids=("B", "a")).job(same_id=False)
    others = [Selection(since=NOON, ids=("a",)), Selection(until=NOON, ids=("a", "b")), Selection(since=NOON, ids=("a", "b"), result="")]
    assert 5 == len({job, Selection(since=NOON, ids=("A", "b")).job(same_id=True), *(other.job(same_id=False) for other in others)})


def test_a_time_needs_a_zone() -> None:
    """What an hour means depends on it."""
    with pytest.raises(PipelineError, match="no time zone"):
        Selection(since=datetime(2024, 5, 1))  # noqa: DTZ001 - that is what is wrong


def test_nothing_given_is_everything() -> None:
    """An empty text is something."""
    assert Selection().is_everything
    assert not Selection(exchange="").is_everything
    assert not Selection(ids=("a",)).is_everything
