"""Enqueueing in the transaction of an asyncpg connection.

    from relay.integrations.asyncpg import enqueue

    async with connection.transaction():
        await connection.execute("UPDATE invoice SET paid = true WHERE id = 7")
        await enqueue(connection, Message(exchange="billing", routing_key="invoice.paid", content={"invoice": 7}))

Outside of a transaction asyncpg commits each statement by itself, so the message would be sent whatever becomes of the rest; that is
refused, unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol
from uuid import UUID

from relay.client_message import Message, MessageError
from relay.client_rows import Given, Trace, all_fit, as_json, fit, statement_for

__all__ = ["enqueue", "enqueue_many"]


class Connection(Protocol):
    """An asyncpg connection, of its own or from a pool."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""

    async def execute(self, query: str, *args: Any) -> str:
        """Run one statement."""


async def enqueue(
    connection: Connection,
    message: Given,
    *,
    autocommit: bool = False,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
) -> UUID:
    """Insert one message in the connection's transaction and return its id.

    Args:
        connection: of asyncpg.
        message: a `Message`, an `OutboxModel`, or a mapping with the fields of a `Message`.
        autocommit: True lets the message commit by itself where there is no transaction.
        schema: where `relay migrate` made the tables (RELAY_SCHEMA).
        traceparent: W3C trace context for the headers; by default that of OpenTelemetry's current span.
        tracestate: goes with it.

    Raises:
        MessageError: the message can never be sent, or there is no transaction; nothing was executed.
        asyncpg.PostgresError: the database refused.
    """
    ready = fit(message, Trace(traceparent, tracestate))
    await _insert(connection, [ready], schema, autocommit=autocommit)
    return ready.id


async def enqueue_many(
    connection: Connection,
    messages: Iterable[Given],
    *,
    autocommit: bool = False,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
) -> list[UUID]:
    """Insert messages with one statement in the connection's transaction; return their ids, in order.

    Args and errors: as `enqueue`; with a wrong message nothing is executed for any of them, and the error names its place.
    """
    ready = all_fit(messages, Trace(traceparent, tracestate))
    if ready:
        await _insert(connection, ready, schema, autocommit=autocommit)
    return [message.id for message in ready]


async def _insert(connection: Connection, messages: Sequence[Message], schema: str, *, autocommit: bool) -> None:
    if not (autocommit or connection.is_in_transaction()):
        raise MessageError("The message would commit by itself: open connection.transaction() first, or pass autocommit=True.")
    await connection.execute(_statement(schema), as_json(messages))


@cache
def _statement(schema: str) -> str:
    return statement_for("enqueue_json", schema, lambda _name: "$1")
