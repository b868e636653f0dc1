"""The INSERT of prepared messages: its statement, parameters and returned ids, for psycopg and for any other driver."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row

from relay.client.message import Message, MessageError
from relay.queries.statements import statement

KEYS: Final = ("dedup_key", "dedup_seconds", "coalesce_key", "bundle_key")
"""The columns that only the view for messages with a key has."""


def insert(connection: psycopg.Connection[Any], messages: Sequence[Message], schema: str) -> list[UUID]:
    """Insert messages with one statement of psycopg; return their ids.

    Raises:
        MessageError: as `inserted_ids`.
        psycopg.Error: the database refused.
    """
    # Not connection.execute: the connection may be configured with a cursor of another kind.
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(statement(insert_name("enqueue", messages[0]), schema), array_parameters(messages))
        return inserted_ids(messages, cursor.fetchall() if messages[0].keyed else ())


async def insert_async(connection: psycopg.AsyncConnection[Any], messages: Sequence[Message], schema: str) -> list[UUID]:
    """`insert` for psycopg's async connections."""
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(statement(insert_name("enqueue", messages[0]), schema), array_parameters(messages))
        return inserted_ids(messages, await cursor.fetchall() if messages[0].keyed else ())


def insert_name(name: str, first: Message) -> str:
    """The statement for messages such as the first: `name`, or its variant for the view of messages with a key."""
    return f"{name}_keyed" if first.keyed else name


def inserted_ids(messages: Sequence[Message], rows: Iterable[Sequence[Any]]) -> list[UUID]:
    """The ids of messages; for messages with a key, the ids that the statement returned.

    Raises:
        MessageError: retention forgot a dedup_key at the very moment of the statement; the transaction should be rolled back.
    """
    if not messages[0].keyed:
        return [message.id for message in messages]
    ids = [row[0] for row in rows]
    if None in ids:
        raise MessageError(f"message {ids.index(None) + 1}: its dedup_key was forgotten just now, roll back and enqueue it again")
    return [UUID(id_) for id_ in ids]


def array_parameters(messages: Sequence[Message]) -> dict[str, list[Any]]:
    """The parameters of `enqueue` and `enqueue_keyed`, an array for each column."""
    keys = {name: [getattr(message, name) for message in messages] for name in KEYS} if messages[0].keyed else {}
    return keys | {
        "ids": [message.id for message in messages],
        "exchanges": [message.exchange for message in messages],
        "routing_keys": [message.routing_key for message in messages],
        "contents": [message.content_text for message in messages],
        "bodies": [message.body for message in messages],
        "options": [message.options.text() for message in messages],
        "ordering_keys": [message.ordering_key for message in messages],
        "available_ats": [message.available_at for message in messages],
        "delays": [_seconds(message.delay) for message in messages],
        "expires_ats": [message.expires_at for message in messages],
    }


def json_parameter(messages: Sequence[Message]) -> str:
    """The only parameter of `enqueue_json` and `enqueue_json_keyed`: text, so that every driver can bind it."""
    return json.dumps([_entry(message) for message in messages], ensure_ascii=False, separators=(",", ":"))


def _entry(message: Message) -> dict[str, str | float | None]:
    keys: dict[str, str | float | None] = {}
    if message.keyed:
        keys = {name: getattr(message, name) for name in KEYS}
    return keys | {
        "id": str(message.id),
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "content": message.content_text,
        "body": None if message.body is None else base64.b64encode(message.body).decode(),
        "options": message.options.text(),
        "ordering_key": message.ordering_key,
        "available_at": _moment(message.available_at),
        "delay": _seconds(message.delay),
        "expires_at": _moment(message.expires_at),
    }


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _seconds(delay: timedelta | None) -> float | None:
    """Seconds, because the length of an interval's day depends on the session's time zone."""
    return None if delay is None else delay.total_seconds()
