"""Builds, for rows of the lake, the bytes that PostgreSQL's `record_send` sends for the same rows: from Arrow's columns, without a loop."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.source.columns import ArchiveColumn

_NULL = b"\xff\xff\xff\xff"
"""The bytes that are sent for a null instead of a length."""
_BYTES = pa.large_binary()
_Piece = Any
"""Bytes that are the same in each row, or an Arrow array with the bytes of each row."""


class _Fixed(NamedTuple):
    """A type whose values all have one length: its oid, its form in numpy, and PostgreSQL's number for Arrow's zero."""

    oid: int
    form: str
    zero: int = 0


_TEXT, _BYTEA = 25, 17
_FIXED = {
    "bool": _Fixed(16, ">u1"),
    "date": _Fixed(1082, ">i4", -10_957),  # days since 2000
    "float4": _Fixed(700, ">f4"),
    "float8": _Fixed(701, ">f8"),
    "int2": _Fixed(21, ">i2"),
    "int4": _Fixed(23, ">i4"),
    "int8": _Fixed(20, ">i8"),
    "timestamptz": _Fixed(1184, ">i8", -946_684_800_000_000),  # microseconds since 2000
    "xid8": _Fixed(5069, ">i8"),
}
SENT_AS_THEY_ARE = frozenset(_FIXED) | {"text"}
"""Types whose values are sent in their own form; a bytea is sent as its sha256, a value of any other type as text."""


def sent(batch: pa.RecordBatch, columns: Sequence[ArchiveColumn]) -> pa.Array:
    """The bytes of each row; a column that the lake does not have yet counts as null."""
    pieces = [len(columns).to_bytes(4), *(piece for column in columns for piece in _pieces(batch, column))]
    joined = [pa.scalar(piece, _BYTES) if isinstance(piece, bytes) else piece for piece in _merged(pieces)]
    if all(isinstance(piece, pa.Scalar) for piece in joined):
        joined = [pa.repeat(joined[0], batch.num_rows)]
    return pc.binary_join_element_wise(*joined, pa.scalar(b"", _BYTES))


def text_of(values: pa.Array, kind: str) -> pa.Array:
    """Values in the form in which `relay.pipeline.lake.added_columns` records them for older rows."""
    if kind == "bytea":
        return pa.array([None if value is None else value.hex() for value in _hashed(values).to_pylist()], pa.string())
    plain = values.cast(pa.int64()) if kind == "timestamptz" else values
    return pc.replace_substring(plain.cast(pa.string()), "~", "~0")


def _pieces(batch: pa.RecordBatch, column: ArchiveColumn) -> Iterable[_Piece]:
    kind = "text" if column.is_gained else column.kind
    fixed = _FIXED.get(kind)
    oid = fixed.oid if fixed else _BYTEA if kind == "bytea" else _TEXT
    values = _values(batch, column)
    if values is None or values.null_count == len(values):
        return [oid.to_bytes(4) + _NULL]
    if fixed:
        return [_fixed(values, fixed)]
    return _varying(_hashed(values) if kind == "bytea" else values, oid)


def _values(batch: pa.RecordBatch, column: ArchiveColumn) -> pa.Array | None:
    if column.name not in batch.schema.names:
        return None
    values = batch.column(column.name)
    if not column.is_gained:
        return values
    texts = text_of(values, column.kind)
    older = pc.and_(pc.less(batch.column("archived_xid"), column.below), pc.equal(texts, pa.scalar(column.older, texts.type)))
    return pc.if_else(older, pa.scalar(None, texts.type), texts)


def _hashed(values: pa.Array) -> pa.Array:
    return pa.array([None if value is None else hashlib.sha256(value).digest() for value in values.to_pylist()], pa.binary())


def _fixed(values: pa.Array, kind: _Fixed) -> pa.Array:
    """Oid, length and value of each row, in one block of bytes; for a null only oid and length."""
    numbers = _numbers(values, kind)
    width = numbers.dtype.itemsize
    block = np.empty((len(values), 8 + width), np.uint8)
    block[:, :8] = np.frombuffer(kind.oid.to_bytes(4) + width.to_bytes(4), np.uint8)
    block[:, 8:] = numbers.view(np.uint8).reshape(len(values), width)
    if not values.null_count:
        return _array(np.arange(len(values) + 1) * block.shape[1], block)
    there = np.asarray(values.is_valid())
    block[~there, 4:8] = np.frombuffer(_NULL, np.uint8)
    kept = np.ones(block.shape, bool)
    kept[~there, 8:] = False
    return _array(np.concatenate([[0], np.cumsum(np.where(there, 8 + width, 8))]), block[kept])


def _numbers(values: pa.Array, kind: _Fixed) -> np.ndarray:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    elif pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    plain = np.asarray(values.fill_null(0) if values.null_count else values)
    return (plain + kind.zero if kind.zero else plain).astype(kind.form)


def _varying(values: pa.Array, oid: int) -> Iterable[_Piece]:
    """The oid and length of each row, and the values."""
    values = values.cast(_BYTES)
    heads = np.empty((len(values), 2), ">i4")
    heads[:, 0] = oid
    heads[:, 1] = np.asarray(pc.binary_length(values).fill_null(-1))
    return [_array(np.arange(len(values) + 1) * 8, heads), values.fill_null(b"")]


def _array(offsets: np.ndarray, block: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(block))]
    return pa.LargeBinaryArray.from_buffers(_BYTES, len(offsets) - 1, buffers)


def _merged(pieces: Iterable[_Piece]) -> list[_Piece]:
    """The pieces, with neighbouring constant pieces joined to one."""
    found = list[_Piece]()
    for piece in pieces:
        if found and isinstance(piece, bytes) and isinstance(found[-1], bytes):
            found[-1] += piece
        else:
            found.append(piece)
    return found
