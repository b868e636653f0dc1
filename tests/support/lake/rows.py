"""Archive rows as the lake has them, made up for tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.columns import ArchiveColumn, schema_of

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
"""When rows are archived that do not say otherwise: the begin of a window, an hour's too."""

COLUMNS = [
    ArchiveColumn(name, kind)
    for kind, names in {
        "xid8": "xid", "int8": "seq", "uuid": "id", "text": "exchange routing_key", "jsonb": "content options", "bytea": "body",
        "int4": "attempts", "timestamptz": "available_at expires_at created_at claimed_at published_at confirmed_at archived_at",
    }.items()
    for name in names.split()
] + [
    ArchiveColumn(name, "text") for name in ("ordering_key", "replay_of", "result", "error_code", "error_detail", "handled_by")
]  # fmt: skip
COLUMNS.append(ArchiveColumn("archived_xid", "xid8"))

_USUAL: dict[str, Any] = {
    "exchange": "shop", "routing_key": "order", "content": "{}", "options": "{}",
    "attempts": 1, "result": "success", "handled_by": "a relay",
}  # fmt: skip


def row(number: int = 1, *, at: datetime = NOON, wait: float = 4, publish: float = 1, confirm: float = 3, **values: Any) -> dict[str, Any]:
    """One archive row. It was archived 1 ms after its confirm; latencies are in milliseconds."""
    confirmed = at - timedelta(milliseconds=1)
    published = confirmed - timedelta(milliseconds=confirm)
    claimed = published - timedelta(milliseconds=publish)
    times = {
        "archived_at": at,
        "confirmed_at": confirmed,
        "published_at": published,
        "claimed_at": claimed,
        "created_at": claimed - timedelta(milliseconds=wait),
    }
    identity = {"xid": number, "seq": number, "id": f"00000000-0000-0000-0000-{number:012}", "archived_xid": number}
    return {**_USUAL, **identity, **times, "day": at.date(), **values}


def dead(number: int, code: str | None, *, result: str = "failed", **values: Any) -> dict[str, Any]:
    """An archive row of a message that was claimed and never confirmed."""
    return row(number, result=result, error_code=code, published_at=None, confirmed_at=None, **values)


def table(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Rows as a table of the lake's archive."""
    return pa.Table.from_pylist(list(rows), schema=schema_of(COLUMNS))


def append(lake: Lake, *rows: dict[str, Any]) -> None:
    """Put rows into the lake's archive, in one commit."""
    found = table(rows)
    handle = lake.open("archive") or lake.create("archive", found.schema)
    lake.append(handle, "archive", found.to_batches())
