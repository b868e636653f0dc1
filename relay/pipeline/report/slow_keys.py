"""The keys whose messages took longest. A first scan finds them, a second adds up their messages, so memory does not grow with the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.report.model import SlowKey
from relay.pipeline.source.columns import INSTANT

COLUMNS = ("result", "routing_key", "ordering_key", "created_at", "available_at", "confirmed_at", "attempts")
"""The columns that both scans read."""
SLOW_KEYS = 10
"""How many keys of each kind are named."""
_Kind = Literal["routing", "ordering"]
_KINDS: tuple[_Kind, ...] = ("routing", "ordering")
Slowest = Mapping[_Kind, pa.Table]
"""The slowest keys of each kind, the slowest first: `key`, and `longest` in microseconds."""

NONE: Slowest = {kind: pa.table({"key": pa.array([], pa.string()), "longest": pa.array([], pa.int64())}) for kind in _KINDS}


class Sums(NamedTuple):
    """How many messages each of the slowest keys has, and the sum of their microseconds; by kind and key."""

    messages: Counter[tuple[_Kind, str]]
    micros: Counter[tuple[_Kind, str]]

    def and_(self, more: Sums) -> Sums:
        """Both together."""
        return Sums(self.messages + more.messages, self.micros + more.micros)


def slowest(rows: pa.RecordBatch) -> Slowest:
    """The slowest keys of these rows."""
    sent = _sent(rows)
    return {kind: _first(_latencies(sent, kind), "micros") for kind in _KINDS}


def together(one: Slowest, other: Slowest) -> Slowest:
    """The slowest keys of two parts.

    A key that is among the slowest of both parts together is among the slowest of the part with its slowest message.
    """
    return {kind: _first(pa.concat_tables([one[kind], other[kind]]), "longest") for kind in _KINDS}


def added_up(rows: pa.RecordBatch, keys: Slowest) -> Sums:
    """Add up the messages of these keys among the rows."""
    sent, sums = _sent(rows), Sums(Counter(), Counter())
    for kind in _KINDS:
        all_ = _latencies(sent, kind)
        mine = all_.filter(pc.is_in(all_["key"], value_set=keys[kind]["key"].combine_chunks()))
        for row in mine.group_by("key").aggregate([("micros", "count"), ("micros", "sum")]).to_pylist():
            sums.messages[kind, row["key"]] += row["micros_count"]
            sums.micros[kind, row["key"]] += row["micros_sum"]
    return sums


def named(keys: Slowest, sums: Sums) -> tuple[SlowKey, ...]:
    """The slow keys of the report, from the results of both scans."""
    return tuple(
        SlowKey(kind, key, sums.messages[kind, key], sums.micros[kind, key] / sums.messages[kind, key] / 1000, longest / 1000)
        for kind in _KINDS
        for key, longest in zip(*keys[kind].to_pydict().values(), strict=True)
    )


def _first(rows: pa.Table, column: str) -> pa.Table:
    found = rows.group_by("key").aggregate([(column, "max")]).rename_columns(["key", "longest"])
    return found.take(pc.sort_indices(found, sort_keys=[("longest", "descending"), ("key", "ascending")])[:SLOW_KEYS])


def _sent(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.filter(pc.and_(pc.equal(rows["result"], "success"), pc.is_valid(rows["confirmed_at"])))


def _latencies(sent: pa.RecordBatch, kind: _Kind) -> pa.Table:
    """Key and microseconds from when each message was due until its confirm.

    A retried message counts from created_at. A retry moves available_at, so measured from available_at a late message would look fast.
    """
    created, available, confirmed = (sent[name].cast(INSTANT).cast(pa.int64()) for name in ("created_at", "available_at", "confirmed_at"))
    due = pc.if_else(pc.greater(sent["attempts"], 1), created, pc.max_element_wise(created, available))
    found = pa.table({"key": sent[f"{kind}_key"], "micros": pc.max_element_wise(pc.subtract(confirmed, due), 0)})
    return found.filter(pc.and_(pc.is_valid(found["key"]), pc.is_valid(found["micros"])))
