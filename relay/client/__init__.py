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

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row

from relay.client.contracts import ClientContracts, all_ready, load_contracts, load_contracts_async, ready
from relay.client.copy import enqueue_copy, enqueue_copy_async
from relay.client.handles import AsyncConnection, Connection, async_connection, sync_connection
from relay.client.insert import Given, Trace, columns, into, statement, taken
from relay.client.message import JsonText, Message, MessageError, Options
from relay.client.model import OutboxModel

__all__ = [
    "ClientContracts", "JsonText", "Message", "MessageError", "Options", "OutboxModel",
    "enqueue", "enqueue_async", "enqueue_copy", "enqueue_copy_async", "enqueue_many", "enqueue_many_async",
    "load_contracts", "load_contracts_async",
]  # fmt: skip


def enqueue(
    connection: Connection,
    message: Given,
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> UUID:
    """Insert one message in the caller's transaction and return its id; where its `dedup_key` is known, the first one's.

    Args:
        connection: a psycopg connection, or a cursor of it; a cursor keeps its own results.
        message: a `Message`, an `OutboxModel`, or a mapping with the fields of a `Message`.
        schema: where `relay migrate` made the tables (RELAY_SCHEMA).
        traceparent: W3C trace context for the headers; by default that of OpenTelemetry's current span.
        tracestate: goes with it.
        contracts: message contracts to keep, see `load_contracts`; the relay checks them in any case.

    Raises:
        MessageError: the message can never be sent, or breaks an enforced contract; nothing was executed.
        TypeError: the connection is none of psycopg's, or an async one; the sentence names the call that takes it.
        psycopg.Error: the database refused; the transaction is aborted as after any failed statement.
    """
    own = sync_connection(connection, "enqueue")
    [found] = _insert(own, [ready(message, Trace(traceparent, tracestate), contracts)], schema)
    return found


def enqueue_many(
    connection: Connection,
    messages: Iterable[Given],
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> list[UUID]:
    """Insert messages with one statement in the caller's transaction; return their ids, in order, as `enqueue` does.

    Messages go out in the given order where the ordering key asks for it. All travel at once, so some thousands are a good size; for more
    there is `enqueue_copy`. Either all have a key or none has one.

    Args and errors: as `enqueue`; with a wrong message nothing is executed for any of them, and the error names its place.
    """
    own = sync_connection(connection, "enqueue_many")
    found = all_ready(messages, Trace(traceparent, tracestate), contracts)
    return _insert(own, found, schema) if found else []


async def enqueue_async(
    connection: AsyncConnection,
    message: Given,
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> UUID:
    """`enqueue` for psycopg's async connections."""
    own = async_connection(connection, "enqueue_async")
    [found] = await _insert_async(own, [ready(message, Trace(traceparent, tracestate), contracts)], schema)
    return found


async def enqueue_many_async(
    connection: AsyncConnection,
    messages: Iterable[Given],
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> list[UUID]:
    """`enqueue_many` for psycopg's async connections."""
    own = async_connection(connection, "enqueue_many_async")
    found = all_ready(messages, Trace(traceparent, tracestate), contracts)
    return await _insert_async(own, found, schema) if found else []


def _insert(connection: psycopg.Connection[Any], messages: Sequence[Message], schema: str) -> list[UUID]:
    # Not connection.execute: the connection may be configured with a cursor of another kind.
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(statement(into("enqueue", messages), schema), columns(messages))
        return taken(messages, cursor.fetchall() if messages[0].keyed else ())


async def _insert_async(connection: psycopg.AsyncConnection[Any], messages: Sequence[Message], schema: str) -> list[UUID]:
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(statement(into("enqueue", messages), schema), columns(messages))
        return taken(messages, await cursor.fetchall() if messages[0].keyed else ())
