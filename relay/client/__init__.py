"""What an application imports to enqueue messages in its own transaction, with psycopg, sync or async.

    from relay.client import Message, enqueue

    with connection.transaction():
        connection.execute("UPDATE invoice SET paid = true WHERE id = 7")
        enqueue(connection, Message(exchange="billing", routing_key="invoice.paid", content={"invoice": 7}))

No function here begins, commits or rolls back: the messages exist if and only if the caller's transaction commits. In autocommit mode,
outside of a transaction, the statement commits by itself, like any other. The relay's own rules check messages before any SQL, so an
invalid message leaves the transaction as it was. Errors of the database are psycopg's own, so that the caller's own retries work.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from relay.client.contracts import ClientContracts, load_contracts, load_contracts_async
from relay.client.copy import enqueue_copy, enqueue_copy_async
from relay.client.handles import AsyncConnection, Connection, async_connection, sync_connection
from relay.client.insert import insert, insert_async
from relay.client.message import JsonText, Message, MessageError, Options
from relay.client.model import OutboxModel
from relay.client.prepare import MessageLike, Trace, prepare, prepare_all

__all__ = [
    "ClientContracts", "JsonText", "Message", "MessageError", "Options", "OutboxModel",
    "enqueue", "enqueue_async", "enqueue_copy", "enqueue_copy_async", "enqueue_many", "enqueue_many_async",
    "load_contracts", "load_contracts_async",
]  # fmt: skip


def enqueue(
    connection: Connection,
    message: MessageLike,
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> UUID:
    """Insert one message in the caller's transaction and return its id. If its `dedup_key` is known, return the first message's id instead.

    Args:
        connection: a psycopg connection, or a cursor of it; a cursor keeps its own results.
        message: a `Message`, an `OutboxModel`, or a mapping with the fields of a `Message`.
        schema: where `relay migrate` made the tables (RELAY_SCHEMA).
        traceparent: W3C trace context for the headers; by default the context of OpenTelemetry's current span.
        tracestate: the `tracestate` that belongs to `traceparent`.
        contracts: message contracts that the message must meet, see `load_contracts`; the relay checks them in any case.

    Raises:
        MessageError: the message can never be sent, or breaks an enforced contract; nothing was executed.
        TypeError: the connection is not psycopg's, or is async; the error names the right call.
        psycopg.Error: the database refused; the transaction is aborted as after any failed statement.
    """
    own = sync_connection(connection, "enqueue")
    prepared = prepare(message, Trace(traceparent, tracestate), contracts)
    [message_id] = insert(own, [prepared], schema)
    return message_id


def enqueue_many(
    connection: Connection,
    messages: Iterable[MessageLike],
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> list[UUID]:
    """Insert messages with one statement in the caller's transaction; return their ids, in order, as `enqueue` does.

    Messages with the same ordering key are sent in the given order. One statement carries all messages, so some thousands are a good size;
    for more messages use `enqueue_copy`. Either all messages have a dedup, coalesce or bundle key, or no message has one.

    Args and errors: as `enqueue`. If a message is wrong, nothing is executed for any message, and the error names the wrong one's place.
    """
    own = sync_connection(connection, "enqueue_many")
    prepared = prepare_all(messages, Trace(traceparent, tracestate), contracts)
    return insert(own, prepared, schema) if prepared else []


async def enqueue_async(
    connection: AsyncConnection,
    message: MessageLike,
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> UUID:
    """`enqueue` for psycopg's async connections."""
    own = async_connection(connection, "enqueue_async")
    prepared = prepare(message, Trace(traceparent, tracestate), contracts)
    [message_id] = await insert_async(own, [prepared], schema)
    return message_id


async def enqueue_many_async(
    connection: AsyncConnection,
    messages: Iterable[MessageLike],
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> list[UUID]:
    """`enqueue_many` for psycopg's async connections."""
    own = async_connection(connection, "enqueue_many_async")
    prepared = prepare_all(messages, Trace(traceparent, tracestate), contracts)
    return await insert_async(own, prepared, schema) if prepared else []
