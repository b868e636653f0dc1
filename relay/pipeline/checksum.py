"""A checksum of rows that PostgreSQL and the lake compute alike: the sum of the first 15 hex digits of sha256 over a row's text.

A row's text is its columns' texts in the catalog's order, joined by `~1`; null is `~2`, and a tilde within a value is `~0`, so that no two
rows share a text. Timestamps are microseconds since 1970, binary values the hex digits of their own sha256. A sum needs no order of rows.

What a column shows in rows that are older than it (`Column.older`) counts as null on both sides, in those rows alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from relay.pipeline.archive import Column

MASK = 4095
"""Rows are summed in buckets by the low bits of `seq`, so that a difference is looked for among few of them."""
_JOIN, _NULL = "~1", "~2"
_TEXT = {
    # An infinite time, which no lake has, is a difference and no failure.
    "timestamptz": "CASE WHEN isfinite({0}) THEN (extract(epoch FROM {0}) * 1000000)::bigint::text ELSE {0}::text END",
    "bytea": "encode(sha256({0}), 'hex')",
}
"""Values whose text is not what the server prints."""
_SAFE = frozenset({"bool", "bytea", "date", "int2", "int4", "int8", "timestamptz", "uuid", "xid8"})
"""Types whose text never holds a tilde."""


class Sum(NamedTuple):
    """Rows and their checksum."""

    rows: int
    checksum: int


Sums = dict[int, Sum]
"""By bucket; an empty one is left out."""


def total(sums: Mapping[int, Sum]) -> Sum:
    """Rows and checksum of all buckets."""
    return Sum(sum(one.rows for one in sums.values()), sum(one.checksum for one in sums.values()))


def differing(ours: Mapping[int, Sum], theirs: Mapping[int, Sum]) -> list[int]:
    """Buckets that are not the same on both sides."""
    return sorted(bucket for bucket in ours.keys() | theirs.keys() if ours.get(bucket) != theirs.get(bucket))


def digest_expression(columns: Sequence[Column]) -> sql.Composable:
    """SQL expression of a row's digest."""
    text = sql.SQL("concat_ws({}, {})").format(sql.Literal(_JOIN), sql.SQL(", ").join(map(_column_text, columns)))
    digits = sql.SQL("substr(encode(sha256(convert_to({}, 'UTF8')), 'hex'), 1, 15)").format(text)
    return sql.SQL("('x' || {})::bit(60)::bigint").format(digits)


def add_up(batches: Iterable[pa.RecordBatch], columns: Sequence[Column]) -> Sums:
    """Sum rows of the lake by bucket."""
    rows, sums = [0] * (MASK + 1), [0] * (MASK + 1)
    for batch in batches:
        for seq, digest in zip(batch.column("seq").to_pylist(), digests(batch, columns), strict=True):
            rows[seq & MASK] += 1
            sums[seq & MASK] += digest
    return {bucket: Sum(count, sums[bucket]) for bucket, count in enumerate(rows) if count}


def digests(batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[int]:
    """The digest of each row as a number; a column that the lake does not have yet counts as null."""
    pieces = [_without_older(batch, column, _piece(batch, column)) for column in columns]
    join = pa.scalar(_JOIN, pa.large_string())
    texts = pc.binary_join_element_wise(*pieces, join, null_handling="replace", null_replacement=_NULL)
    for text in texts.cast(pa.large_binary()).to_pylist():
        yield int.from_bytes(hashlib.sha256(text).digest()[:8]) >> 4


def _column_text(column: Column) -> sql.Composed:
    text = _TEXT.get(column.kind, "({0})::text" if column.kind in _SAFE else "replace(({0})::text, '~', '~0')")
    found: sql.Composable = sql.SQL(text).format(column.readable)
    if column.older is not None and column.below:
        shown = "CASE WHEN archived_xid < {}::xid8 THEN nullif({}, {}) ELSE {} END"
        found = sql.SQL(shown).format(sql.Literal(str(column.below)), found, sql.Literal(column.older), found)
    return sql.SQL("coalesce({}, {})").format(found, sql.Literal(_NULL))


def _piece(batch: pa.RecordBatch, column: Column) -> pa.Array:
    if column.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.large_string())
    values = batch.column(column.name)
    if column.kind == "bytea":
        return pa.array([None if value is None else hashlib.sha256(value).hexdigest() for value in values.to_pylist()], pa.large_string())
    if column.kind == "timestamptz":
        values = values.cast(pa.int64())
    values = values.cast(pa.large_string())
    return values if column.kind in _SAFE else pc.replace_substring(values, "~", "~0")


def _without_older(batch: pa.RecordBatch, column: Column, texts: pa.Array) -> pa.Array:
    if column.older is None or not column.below:
        return texts
    older = pc.and_(pc.less(batch.column("archived_xid"), column.below), pc.equal(texts, pa.scalar(column.older, texts.type)))
    return pc.if_else(older, pa.scalar(None, texts.type), texts)
