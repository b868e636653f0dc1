"""A checksum of rows that PostgreSQL and the lake compute alike: the sum of the first 15 hex digits of sha256 over each sent row.

A row is sent in the form of PostgreSQL's `record_send`: type, length and value of each column, in the catalog's order. No two different
rows have the same form. A binary value is sent as its own sha256. A value whose type is text in the lake is sent as this text. A sum does
not depend on the order of rows.

`ArchiveColumn.older` is the value that PostgreSQL shows for a column in rows older than the column. In those rows alone it counts as null
on both sides.
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
"""Version of this definition; a partition that was verified by another version is compared again."""
NO_FORM = 0
"""The form of a checksum from which nothing is concluded: an older relay may replace the checksum by its own and keep the form."""
_BYTES_AT_ONCE = 16 << 20
"""How many bytes of rows are hashed together; a larger row is hashed alone. Memory has a few copies of these rows."""
_HALF = 30
_SHOWN = {
    "timestamptz": "CASE WHEN isfinite({0}) THEN (extract(epoch FROM {0}) * 1000000)::bigint::text ELSE {0}::text END",
    "bytea": "encode(sha256({0}), 'hex')",
}
"""The expression to compare with `ArchiveColumn.older`, for types where it is not the text that the server prints."""


class Sum(NamedTuple):
    """Rows and their checksum."""

    rows: int = 0
    checksum: int = 0


def total(sums: Iterable[Sum]) -> Sum:
    """The total of several sums."""
    found = list(sums)
    return Sum(sum(one.rows for one in found), sum(one.checksum for one in found))


def digest_expression(columns: Sequence[ArchiveColumn]) -> sql.Composable:
    """SQL expression of a row's digest."""
    row = sql.SQL("record_send(ROW({}))").format(sql.SQL(", ").join(map(_sent, columns)))
    return sql.SQL("('x' || substr(encode(sha256({}), 'hex'), 1, 15))::bit(60)::bigint").format(row)


def add_up(batches: Iterable[pa.RecordBatch], columns: Sequence[ArchiveColumn]) -> Sum:
    """The sum of rows of the lake."""
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
    if batch.num_rows < 2 or batch.nbytes <= _BYTES_AT_ONCE:  # noqa: PLR2004 - one row cannot be divided
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
    # The cast is needed for a domain: `record_send` would send its value as the base type.
    kind = column.kind if column.kind in SENT_AS_THEY_ARE else "text"
    return sql.SQL("({})::{}").format(column.readable, sql.SQL(kind))
