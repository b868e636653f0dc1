"""Numbers of windows, hours and days as Arrow tables, counted from archive rows or merged from earlier numbers. No I/O, no JVM."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.metrics import histogram
from relay.pipeline.metrics.histogram import Integers

WINDOW_SECONDS = 300
HOUR_SECONDS = 3600
DAY_SECONDS = 86400
CODES = 100
"""Most codes that are named in a row of the numbers."""
OTHER = "*other*"
"""Replaces exchanges and routing keys that are not among the names of their day."""

KEY = ("start", "exchange", "routing_key")
RESULTS = {"published": "success", "discarded": "discarded", "rejected": "rejected", "failed": "failed", "lock_expired": "lock_expired"}
"""Columns of the numbers, each with the archive's result that the column counts."""
DEAD = ("rejected", "failed", "lock_expired")
HISTOGRAMS = ("wait", "publish", "confirm")
SUMS = (*RESULTS, "attempts", "within_target")

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([
    pa.field("start", _TIME, nullable=False),
    pa.field("exchange", pa.string(), nullable=False),
    pa.field("routing_key", pa.string(), nullable=False),
    *(pa.field(name, pa.int64(), nullable=False) for name in (*RESULTS, "attempts")),
    pa.field("codes", pa.string(), nullable=False),
    *(pa.field(name, pa.list_(pa.int64()), nullable=False) for name in HISTOGRAMS),
    pa.field("within_target", pa.int64(), nullable=False),
    pa.field("target_ms", pa.int64(), nullable=False),
])  # fmt: skip
"""Columns as in PostgreSQL, and as in the lake except for its partition column `day`. `codes` is a JSON object, its keys sorted."""

ARCHIVE_COLUMNS = (
    "exchange", "routing_key", "result", "error_code", "attempts",
    "created_at", "available_at", "claimed_at", "published_at", "confirmed_at", "archived_at",
)  # fmt: skip
"""The columns of an archive row that the numbers need, without contents."""


_HELD = 50_000
"""How many rows of numbers, about 1 kB each, are collected before rows of the same window, exchange and key are added up."""


class _Groups(NamedTuple):
    """Rows grouped by window, exchange and routing key.

    `of_row` is the number of each row's group. `first` has the first row of each group. `order` has the rows in the order of their groups.
    `begins` is where each group begins in `order`.
    """

    of_row: Integers
    first: Integers
    order: Integers
    begins: Integers

    @property
    def number(self) -> int:
        return len(self.first)


def count(rows: pa.RecordBatch | pa.Table, *, target_ms: int) -> pa.Table:
    """Count archive rows into windows, in any order of the rows. Exchanges and keys that get no numbers of their own were renamed before.

    Names may be texts, or indices into a dictionary that has each name once.
    """
    table = pa.table({name: rows.column(name) for name in ARCHIVE_COLUMNS})
    start = _floored(_microseconds(table, "archived_at")[0], WINDOW_SECONDS)
    groups = _group(start, table["exchange"], table["routing_key"])
    result = table["result"].to_numpy()
    columns: dict[str, Any] = {name: _sums(groups, (result == value).astype(np.int64)) for name, value in RESULTS.items()}
    columns["attempts"] = _sums(groups, table["attempts"].to_numpy().astype(np.int64))
    columns["codes"] = _codes_of_rows(groups, table["error_code"], np.isin(result, DEAD))
    columns |= _latencies(table, groups)
    columns["within_target"] = _sums(groups, _within(table, result == "success", target_ms))
    columns["target_ms"] = np.full(groups.number, target_ms, dtype=np.int64)
    return _table(start, table, groups, columns)


def merge(numbers: pa.Table, *, seconds: int = WINDOW_SECONDS) -> pa.Table:
    """Add up numbers of the same key within spans of `seconds` (of 300, 3600 or 86400), ordered by start, exchange and key.

    If the targets of added numbers differ, the largest is kept. This is rare, because a run gives a whole day one target.
    """
    numbers = numbers.select(SCHEMA.names)
    start = _floored(_microseconds(numbers, "start")[0], seconds)
    groups = _group(start, numbers["exchange"], numbers["routing_key"])
    columns: dict[str, Any] = {name: _sums(groups, numbers[name].to_numpy()) for name in SUMS}
    columns["codes"] = _codes_of_numbers(groups, numbers["codes"])
    for name in HISTOGRAMS:
        columns[name] = _sums(groups, _matrix(numbers[name]))
    columns["target_ms"] = np.zeros(groups.number, dtype=np.int64)
    np.maximum.at(columns["target_ms"], groups.of_row, numbers["target_ms"].to_numpy())
    return _table(start, numbers, groups, columns)


def add_up(parts: Iterable[pa.Table]) -> pa.Table:
    """Merge numbers part by part, so that memory grows with the number of windows, not with the number of parts."""
    held = [empty()]
    for part in parts:
        held.append(part)
        if sum(one.num_rows for one in held[1:]) > max(_HELD, held[0].num_rows):
            held = [merge(pa.concat_tables(held))]
    return merge(pa.concat_tables(held))


def empty() -> pa.Table:
    """A table without numbers."""
    return SCHEMA.empty_table()


def messages(numbers: pa.Table) -> pa.Array:
    """How many archive rows each row of the numbers counts."""
    total = numbers["published"]
    for name in list(RESULTS)[1:]:
        total = pc.add(total, numbers[name])
    return total


def _microseconds(table: pa.Table, name: str) -> tuple[Integers, Any]:
    """Times as integers, with 0 for null, and which of them are not null."""
    column = table[name].cast(_TIME).combine_chunks().cast(pa.int64())
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False), pc.is_valid(column).to_numpy(zero_copy_only=False)


def _floored(microseconds: Integers, seconds: int) -> Integers:
    """The start of the span in which each time lies. Days of UTC begin at multiples of 86400 s, before 1970 too."""
    return microseconds // (seconds * 1_000_000) * (seconds * 1_000_000)


def _group(start: Integers, exchange: pa.ChunkedArray, routing_key: pa.ChunkedArray) -> _Groups:
    combined = np.unique(start, return_inverse=True)[1].astype(np.int64)
    for names in (exchange, routing_key):
        encoded = names.combine_chunks().dictionary_encode()
        combined = combined * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy().astype(np.int64)
    order = np.argsort(combined, kind="stable")
    ordered = combined[order]
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    begins = np.flatnonzero(is_first)
    of_row = np.empty(len(ordered), dtype=np.int64)
    of_row[order] = np.cumsum(is_first) - 1
    return _Groups(of_row, order[begins], order, begins)


def _sums(groups: _Groups, values: Integers) -> Integers:
    """Exact sums of numbers, or of rows of a matrix, by group."""
    if not len(values):
        return values
    sums: Integers = np.add.reduceat(values[groups.order], groups.begins, axis=0)
    return sums


def _latencies(table: pa.Table, groups: _Groups) -> dict[str, Integers]:
    """Wait ends with the claim, publish with the write, confirm with the confirm.

    Each latency counts all messages that got so far, whatever their result.
    """
    due = _due(table, np.zeros(table.num_rows, dtype=bool))
    claimed, published, confirmed = (_microseconds(table, name) for name in ("claimed_at", "published_at", "confirmed_at"))
    return {
        "wait": _histogram(groups, due, claimed),
        "publish": _histogram(groups, claimed, published),
        "confirm": _histogram(groups, published, confirmed),
    }


def _histogram(groups: _Groups, begin: tuple[Integers, Any], end: tuple[Integers, Any]) -> Integers:
    known = begin[1] & end[1]
    buckets = histogram.bucket_of(end[0][known] - begin[0][known])
    cells = groups.of_row[known] * histogram.BUCKETS + buckets
    counts: Integers = np.bincount(cells, minlength=groups.number * histogram.BUCKETS).astype(np.int64)
    return counts.reshape(-1, histogram.BUCKETS)


def _due(table: pa.Table, from_creation: Any) -> tuple[Integers, Any]:
    """When each message was due: at the later of its creation and `available_at`; where `from_creation` is set, at its creation."""
    created, known = _microseconds(table, "created_at")
    available, given = _microseconds(table, "available_at")
    return np.where(given & ~from_creation, np.maximum(created, available), created), known


def _within(table: pa.Table, published: Any, target_ms: int) -> Integers:
    # A retry moves available_at: measured from `available_at`, a message that needed several attempts would look fast.
    due, _ = _due(table, table["attempts"].to_numpy() > 1)
    confirmed, known = _microseconds(table, "confirmed_at")
    within: Integers = (published & known & (confirmed - due <= target_ms * 1000)).astype(np.int64)
    return within


def _codes_of_rows(groups: _Groups, codes: pa.ChunkedArray, dead: Any) -> list[str]:
    places = np.flatnonzero(dead)
    counted: dict[int, Counter[str]] = defaultdict(Counter)
    for group, code in zip(groups.of_row[places].tolist(), codes.take(pa.array(places)).to_pylist(), strict=True):
        counted[group][code or ""] += 1
    return _jsons(groups, counted)


def _codes_of_numbers(groups: _Groups, codes: pa.ChunkedArray) -> list[str]:
    counted: dict[int, Counter[str]] = defaultdict(Counter)
    for group, text in zip(groups.of_row.tolist(), codes.to_pylist(), strict=True):
        if text != "{}":
            counted[group].update(json.loads(text))
    return _jsons(groups, counted)


def _jsons(groups: _Groups, counted: Mapping[int, Counter[str]]) -> list[str]:
    """The codes of each group as JSON; few groups have codes."""
    texts = ["{}"] * groups.number
    for group, codes in counted.items():
        texts[group] = json.dumps(_most_frequent(codes), sort_keys=True, ensure_ascii=False)
    return texts


def _most_frequent(codes: Counter[str]) -> Mapping[str, int]:
    """At most CODES codes, and the sum of the others. Programs choose codes, and a row has to fit into PostgreSQL."""
    named = sorted(codes.keys() - {OTHER}, key=lambda code: (-codes[code], code))
    if len(named) <= CODES:
        return codes
    return {**{code: codes[code] for code in named[:CODES]}, OTHER: codes[OTHER] + sum(codes[code] for code in named[CODES:])}


def _matrix(lists: pa.ChunkedArray) -> Integers:
    flat: Integers = lists.combine_chunks().flatten().to_numpy()
    return flat.reshape(-1, histogram.BUCKETS)


def _table(start: Integers, rows: pa.Table, groups: _Groups, columns: dict[str, Any]) -> pa.Table:
    first = pa.array(groups.first)
    arrays: dict[str, Any] = {
        "start": pa.array(start[groups.first], type=pa.int64()).cast(_TIME),
        "exchange": rows["exchange"].take(first).cast(pa.string()),
        "routing_key": rows["routing_key"].take(first).cast(pa.string()),
    }
    offsets = pa.array(np.arange(groups.number + 1) * histogram.BUCKETS, type=pa.int32())
    for name, values in columns.items():
        listed = name in HISTOGRAMS
        arrays[name] = pa.ListArray.from_arrays(offsets, pa.array(np.ravel(values), type=pa.int64())) if listed else values
    made = pa.table([arrays[name] for name in SCHEMA.names], schema=SCHEMA)
    return made.take(pc.sort_indices(made, sort_keys=[(name, "ascending") for name in KEY])).combine_chunks()
