"""Messages with a key, as tests insert and fold them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.support.database.queue import Queue, resize

FOLD = "SELECT folded FROM queue_message_fold(now() + %s::interval)"


async def insert(connection: psycopg.AsyncConnection[Any], **columns: object) -> str | None:
    """Insert one message with a key, by default for the exchange `orders`; its id, None where nothing was inserted."""
    columns = {"exchange": "orders", **{name: Jsonb(value) if name in {"content", "options"} else value for name, value in columns.items()}}
    statement = sql.SQL("INSERT INTO queue_message_keyed ({}) VALUES ({}) RETURNING id::text").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(map(sql.Placeholder, columns))
    )
    cursor = await connection.execute(statement, columns)
    row = await cursor.fetchone()
    assert cursor.rowcount == (row is not None)
    return row and str(row[0])


async def keyed(queue: Queue, **columns: object) -> str:
    """Insert one that is new; return its id."""
    id_ = await insert(queue.connection, **columns)
    assert id_ is not None
    return id_


async def fold(queue: Queue, after: str = "0 s") -> int:
    """Fold what is due after a length of time; return how many that took."""
    return int(await queue.value(FOLD, after))


async def unhurried(queue: Queue) -> None:
    """Let no call of the fold end because its time is over, however slow the machine is."""
    await resize(queue, "queue_message_fold", "interval '2 s'", "interval '1 hour'")


async def queued(queue: Queue) -> list[tuple[str, Any]]:
    """Id and content of what is in the queue, in claim order."""
    return [(str(id_), content) for id_, content in await queue.sql("SELECT id, content FROM queue_message ORDER BY xid, seq")]


async def contents(queue: Queue) -> list[Any]:
    """The contents of what is in the queue, in claim order."""
    return [content for _, content in await queued(queue)]


async def fates(queue: Queue) -> dict[str, tuple[str, str, str | None]]:
    """Result, code and sentence in the archive by id."""
    return {str(id_): (result, code, detail) for id_, result, code, detail in await queue.sql(
        "SELECT id, result, error_code, error_detail FROM queue_message_archive")}  # fmt: skip


def other(id_: str | UUID) -> tuple[str, str, str]:
    """The fate of what another message replaced."""
    return ("discarded", "superseded", f"replaced by {id_}")
