"""Dead messages by result and code. A first scan counts them and finds the latest of each kind; a second scan reads these as examples."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.report.model import DEAD, Failure

COLUMNS = ("result", "error_code", "archived_at", "xid", "seq")
"""The columns that the first scan reads."""
DETAILS = ("xid", "seq", "id", "exchange", "routing_key", "error_detail")
"""The columns that the second scan reads."""
FAILURES = 15
"""How many kinds are listed."""
_LAST = ("archived_at", "xid", "seq")
Kind = tuple[str, str | None]
"""Result and code."""
Place = tuple[int, int]
"""`xid` and `seq` of a message."""
Examples = Mapping[Place, Mapping[str, Any]]
"""Messages with their `DETAILS`."""


class DeadKind(NamedTuple):
    """The number of dead messages of a kind, and the latest of these messages: its time, its place, and the task that reads it."""

    messages: int
    at: datetime
    place: Place
    task: int


def counted(rows: pa.RecordBatch, task: int) -> Mapping[Kind, DeadKind]:
    """Count the dead messages among these rows."""
    dead = pa.Table.from_batches([rows.filter(pc.is_in(rows["result"], value_set=pa.array(DEAD)))])
    ordered = dead.sort_by([(name, "ascending") for name in _LAST])
    last = [(name, "last") for name in _LAST]
    found = ordered.group_by(["result", "error_code"], use_threads=False).aggregate([([], "count_all"), *last])
    columns = ["result", "error_code", "count_all", *(f"{name}_last" for name in _LAST)]
    return {
        (result, code): DeadKind(messages, at, (xid, seq), task)
        for result, code, messages, at, xid, seq in zip(*(found[name].to_pylist() for name in columns), strict=True)
    }


def together(one: Mapping[Kind, DeadKind], other: Mapping[Kind, DeadKind]) -> Mapping[Kind, DeadKind]:
    """Add up the dead messages of two parts."""
    found = dict(one)
    for kind, dead in other.items():
        known = found.get(kind, dead._replace(messages=0))
        latest = max(known, dead, key=lambda each: (each.at, each.place))
        found[kind] = latest._replace(messages=known.messages + dead.messages)
    return found


def most_frequent(found: Mapping[Kind, DeadKind]) -> Mapping[Kind, DeadKind]:
    """The kinds with the most messages, the most frequent first."""
    ordered = sorted(found.items(), key=lambda item: (-item[1].messages, item[0][0], item[0][1] or ""))
    return dict(ordered[:FAILURES])


def examples(rows: pa.RecordBatch, places: Collection[Place]) -> Examples:
    """The rows at these places."""
    near = rows.filter(pc.is_in(rows["seq"], value_set=pa.array([seq for _, seq in places], pa.int64())))
    found = {(row["xid"], row["seq"]): row for row in near.to_pylist()}
    return {place: found[place] for place in places if place in found}


def named(found: Mapping[Kind, DeadKind], rows: Examples) -> tuple[Failure, ...]:
    """The failures of the report, from the results of both scans."""
    return tuple(_failure(kind, dead, rows[dead.place]) for kind, dead in found.items())


def _failure(kind: Kind, dead: DeadKind, row: Mapping[str, Any]) -> Failure:
    example = row["id"], row["exchange"], row["routing_key"], row["error_detail"]
    return Failure(*kind, dead.messages, *example, dead.at.astimezone(UTC))
