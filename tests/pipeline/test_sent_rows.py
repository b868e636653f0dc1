"""Rows as PostgreSQL sends them, made of the lake's columns."""

from __future__ import annotations

from datetime import UTC, date, datetime

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from relay.pipeline.source.columns import ArchiveColumn
from relay.pipeline.verify.checksum import digest_expression, digests

VALUES: dict[str, list[object]] = {
    "bool": [True, False],
    "date": [date(1, 1, 1), date(1999, 12, 31), date(9999, 12, 31)],
    "float4": [0.0, -0.0, 1.5, float("nan"), float("-inf")],
    "float8": [0.0, -0.0, 1.5, 1e300, float("nan"), float("-inf")],
    "int2": [-(2**15), -1, 0, 2**15 - 1],
    "int4": [-(2**31), -1, 0, 2**31 - 1],
    "int8": [-(2**63), -1, 0, 2**63 - 1],
    "xid8": [0, 1, 2**63 - 2],
    "timestamptz": [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(9999, 12, 31, tzinfo=UTC)],
    "text": ["", "~", "é", "\U0001f600"],
    "bytea": [b"", b"\x00\xff"],
    "numeric": ["1.50", "123456789012345678901234567890.1"],
    "uuid": ["00000000-0000-0000-0000-00000000abcd"],
}
"""Of every type that the lake has in a form of its own, and of two that it holds as text."""


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("nulls", [0, 1, 2])
def test_every_type_is_sent_alike(database_url: str, kind: str, nulls: int) -> None:
    """First and last values, without null, with one, and nothing but null."""
    choices: dict[int, list[object]] = {0: VALUES[kind], 1: [*VALUES[kind], None], 2: [None, None]}
    values = choices[nulls]
    columns = [ArchiveColumn("seq", "int8"), ArchiveColumn("a", kind), ArchiveColumn("b", "text")]
    made = sql.SQL("SELECT {} FROM (SELECT {}::int8 AS seq, {}::text::{} AS a, 'x' AS b, NULL AS error_code) AS row")
    with psycopg.connect(database_url) as connection:
        ours = [
            connection.execute(made.format(digest_expression(columns), seq, _text(value), sql.SQL(kind))).fetchall()[0][0]
            for seq, value in enumerate(values)
        ]
    rows = pa.record_batch({"seq": range(len(values)), "a": pa.array(values, columns[1].field.type), "b": ["x"] * len(values)})

    assert ours == digests(rows, columns)


def _text(value: object) -> sql.Literal:
    """A value as PostgreSQL reads it."""
    return sql.Literal("\\x" + value.hex() if isinstance(value, bytes) else None if value is None else str(value))
