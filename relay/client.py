"""What an application imports to enqueue messages in its own transaction, with psycopg, sync or async.

    from relay.client import Message, enqueue

    with connection.transaction():
        connection.execute("UPDATE invoice SET paid = true WHERE id = 7")
        enqueue(connection, Message(exchange="billing", routing_key="invoice.paid", content={"invoice": 7}))

Nothing here begins, commits or rolls back: the messages exist if and only if the caller's transaction commits. (In autocommit mode,
outside of a transaction, the statement commits by itself as any other.) Messages are checked by the relay's own rules before any SQL,
so a wrong one leaves the transaction as it was. Errors of the database are psycopg's own, for the caller's own retries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any
from uuid import UUID

import psycopg

from relay.client_message import JsonText, Message, MessageError, Options, checked
from relay.postgres.statements import Statements

__all__ = ["JsonText", "Message", "MessageError", "Options", "enqueue", "enqueue_async", "enqueue_many", "enqueue_many_async"]

Connection = psycopg.Connection[Any] | psycopg.Cursor[Any]
AsyncConnection = psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]


def enqueue(connection: Connection, message: Message | Mapping[str, Any], *, schema: str = "public") -> UUID:
    """Insert one message in the caller's transaction and return its id.

    Args:
        connection: a psycopg connection, or a cursor of it; a cursor keeps its own results.
        message: a `Message`, or a mapping with its fields.
        schema: where `relay migrate` made the tables (RELAY_SCHEMA).

    Raises:
        MessageError: the message can never be sent; nothing was executed.
        psycopg.Error: the database refused; the transaction is aborted as after any failed statement.
    """
    return enqueue_many(connection, [checked(message)], schema=schema)[0]


def enqueue_many(connection: Connection, messages: Iterable[Message | Mapping[str, Any]], *, schema: str = "public") -> list[UUID]:
    """Insert messages with one statement in the caller's transaction; return their ids, in order.

    Messages go out in the given order where the ordering key asks for it. All travel at once, so some thousands are a good size.

    Args and errors: as `enqueue`; with a wrong message nothing is executed for any of them, and the error names its place.
    """
    fit = _all_checked(messages)
    if fit:
        own = connection.connection if isinstance(connection, psycopg.Cursor) else connection
        # Not connection.execute: the connection may be configured with a cursor of another kind.
        with psycopg.Cursor(own) as cursor:
            cursor.execute(_statement(schema), _columns(fit))
    return [message.id for message in fit]


async def enqueue_async(connection: AsyncConnection, message: Message | Mapping[str, Any], *, schema: str = "public") -> UUID:
    """`enqueue` for psycopg's async connections."""
    return (await enqueue_many_async(connection, [checked(message)], schema=schema))[0]


async def enqueue_many_async(
    connection: AsyncConnection, messages: Iterable[Message | Mapping[str, Any]], *, schema: str = "public"
) -> list[UUID]:
    """`enqueue_many` for psycopg's async connections."""
    fit = _all_checked(messages)
    if fit:
        own = connection.connection if isinstance(connection, psycopg.AsyncCursor) else connection
        async with psycopg.AsyncCursor(own) as cursor:
            await cursor.execute(_statement(schema), _columns(fit))
    return [message.id for message in fit]


def _all_checked(messages: Iterable[Message | Mapping[str, Any]]) -> list[Message]:
    fit: list[Message] = []
    for place, message in enumerate(messages, start=1):
        try:
            fit.append(checked(message))
        except MessageError as error:
            raise MessageError(f"message {place}: {error}") from None
    return fit


@cache
def _statement(schema: str) -> bytes:
    return Statements(schema)["enqueue"]


def _columns(messages: Sequence[Message]) -> dict[str, list[Any]]:
    return {
        "ids": [message.id for message in messages],
        "exchanges": [message.exchange for message in messages],
        "routing_keys": [message.routing_key for message in messages],
        "contents": [message.content_text for message in messages],
        "bodies": [message.body for message in messages],
        "options": [message.options.text() for message in messages],
        "ordering_keys": [message.ordering_key for message in messages],
        "available_ats": [message.available_at for message in messages],
        "expires_ats": [message.expires_at for message in messages],
    }
