"""A checksum of rows that PostgreSQL and the lake compute alike: the sum of the first 15 hex digits of sha256 over each row as it is sent.

A row is sent in the form of PostgreSQL's `record_send`: type, length and value of each column, in the catalog's order, so that no two rows
are sent alike. A binary value is sent as its own sha256, a value of a type that the lake holds as text as that text. A sum needs no order
of rows.

The value that a column shows in rows that are older than it (`ArchiveColumn.older`) counts as null on both sides, but only in those rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from psycopg import sql

from relay.pipeline.source.columns import ArchiveColumn
from relay.pipeline.verify.sent_rows import SENT_AS_THEY_ARE, sent

FORM = 2
"""Version of this definition: what was verified by another version is compared again."""
NO_FORM = 0
"""The form of a checksum that an older relay may replace by its own without changing the form, so nothing is concluded from it."""
_BYTES_AT_ONCE = 16 << 20
"""How many bytes of rows are hashed together; a larger row is hashed alone. A few copies of these rows are in memory."""
_HALF = 30
_SHOWN = {
    "timestamptz": "CASE WHEN isfinite({0}) THEN (extract(epoch FROM {0}) * 1000000)::bigint::text ELSE {0}::text END",
    "bytea": "encode(sha256({0}), 'hex')",
}
"""What `ArchiveColumn.older` is compared with, for types of which it is not the text that the server prints."""


class Sum(NamedTuple):
    """Rows and their checksum."""

    rows: int = 0
    checksum: int = 0


def total(sums: Iterable[Sum]) -> Sum:
    """Rows and checksum of several sums together."""
    found = list(sums)
    return Sum(sum(one.rows for one in found), sum(one.checksum for one in found))


def digest_expression(columns: Sequence[ArchiveColumn]) -> sql.Composable:
    """SQL expression of a row's digest."""
    row = sql.SQL("record_send(ROW({}))").format(sql.SQL(", ").join(map(_sent, columns)))
    return sql.SQL("('x' || substr(encode(sha256({}), 'hex'), 1, 15))::bit(60)::bigint").format(row)


def add_up(batches: Iterable[pa.RecordBatch], columns: Sequence[ArchiveColumn]) -> Sum:
    """Sum rows of the lake."""
    return total(Sum(len(found), _added(found)) for batch in batches for found in _digests(batch, columns))


def digests(batch: pa.RecordBatch, columns: Sequence[ArchiveColumn]) -> list[int]:
    """The digest of each row as a number."""
    return [digest for found in _digests(batch, columns) for digest in found.tolist()]


def _digests(batch: pa.RecordBatch, columns: Sequence[ArchiveColumn]) -> Iterator[np.ndarray]:
    for part in _parts(batch):
        rows = sent(part, columns).to_pylist()
        found = b"".join([hashlib.sha256(row).digest() for row in rows])
        yield np.frombuffer(found, ">u8")[::4] >> np.uint64(4)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts of a bounded size."""
    if batch.num_rows < 2 or batch.nbytes <= _BYTES_AT_ONCE:  # noqa: PLR2004 - one row is as few as can be
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _parts(batch.slice(0, middle))
    yield from _parts(batch.slice(middle))


def _added(digests: np.ndarray) -> int:
    """The sum of digests, added up in halves that do not overflow."""
    low = digests & np.uint64((1 << _HALF) - 1)
    return (int((digests >> np.uint64(_HALF)).sum()) << _HALF) + int(low.sum())


def _sent(column: ArchiveColumn) -> sql.Composed:
    if column.is_gained:
        shown = sql.SQL(_SHOWN.get(column.kind, "replace(({0})::text, '~', '~0')")).format(column.readable)
        text = "CASE WHEN archived_xid < {0}::xid8 THEN nullif({1}, {2}) ELSE {1} END"
        return sql.SQL(text).format(sql.Literal(str(column.below)), shown, sql.Literal(column.older))
    if column.kind == "bytea":
        return sql.SQL("sha256({})").format(column.readable)
    # A domain's value is sent as its base type.
    kind = column.kind if column.kind in SENT_AS_THEY_ARE else "text"
    return sql.SQL("({})::{}").format(column.readable, sql.SQL(kind))
