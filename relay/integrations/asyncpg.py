"""Enqueueing in the transaction of an asyncpg connection.

    from relay.integrations.asyncpg import enqueue

    async with connection.transaction():
        await connection.execute("UPDATE invoice SET paid = true WHERE id = 7")
        await enqueue(connection, Message(exchange="billing", routing_key="invoice.paid", content={"invoice": 7}))

Outside of a transaction asyncpg commits each statement by itself, so the message would be sent even if the rest fails. Such a call is
refused, unless `autocommit=True` allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from relay.client.contracts import ClientContracts
from relay.client.handles import wrong_handle
from relay.client.insert import insert_name, inserted_ids, json_parameter
from relay.client.message import Message, MessageError
from relay.client.prepare import MessageLike, Trace, prepare, prepare_all
from relay.queries.statements import driver_statement

__all__ = ["enqueue", "enqueue_many", "load_contracts"]


@runtime_checkable
class Connection(Protocol):
    """An asyncpg connection, opened directly or from a pool."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        """Run one statement and return its rows."""


async def enqueue(
    connection: Connection,
    message: MessageLike,
    *,
    autocommit: bool = False,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> UUID:
    """Insert one message in the connection's transaction and return its id; if its `dedup_key` is known, the first message's id.

    Args:
        connection: of asyncpg.
        message: a `Message`, an `OutboxModel`, or a mapping with the fields of a `Message`.
        autocommit: True lets the message commit by itself if there is no transaction.
        schema: where `relay migrate` made the tables (RELAY_SCHEMA).
        traceparent: W3C trace context for the headers; by default that of OpenTelemetry's current span.
        tracestate: goes with `traceparent`.
        contracts: message contracts that the message must meet, see `load_contracts`; the relay checks them in any case.

    Raises:
        MessageError: the message can never be sent, or breaks an enforced contract, or there is no transaction; nothing was executed.
        TypeError: the connection is not asyncpg's; the error names the right call.
        asyncpg.PostgresError: the database refused.
    """
    _check(connection, "enqueue")
    prepared = prepare(message, Trace(traceparent, tracestate), contracts)
    [message_id] = await _insert(connection, [prepared], schema, autocommit=autocommit)
    return message_id


async def enqueue_many(
    connection: Connection,
    messages: Iterable[MessageLike],
    *,
    autocommit: bool = False,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> list[UUID]:
    """Insert messages with one statement in the connection's transaction; return their ids, in order, as `enqueue` does.

    Args and errors: as `enqueue`; if a message is wrong, nothing is executed for any of them, and the error names its place.
    Either all messages have a dedup, coalesce or bundle key, or none of them has one.
    """
    _check(connection, "enqueue_many")
    prepared = prepare_all(messages, Trace(traceparent, tracestate), contracts)
    return await _insert(connection, prepared, schema, autocommit=autocommit) if prepared else []


async def load_contracts(connection: Connection, *, schema: str = "public") -> ClientContracts:
    """Read the message contracts; load them again to see later ones.

    Raises:
        TypeError: as `enqueue`.
        asyncpg.PostgresError: the contracts cannot be read.
    """
    _check(connection, "load_contracts")
    return ClientContracts([tuple(row) for row in await connection.fetch(_statement("read_contracts", schema))])


def _check(connection: object, call: str) -> None:
    if not isinstance(connection, Connection):
        raise wrong_handle(connection, f"{__name__}.{call}", "a connection of asyncpg")


async def _insert(connection: Connection, messages: Sequence[Message], schema: str, *, autocommit: bool) -> list[UUID]:
    if not (autocommit or connection.is_in_transaction()):
        raise MessageError("The message would commit by itself: open connection.transaction() first, or pass autocommit=True.")
    query = _statement(insert_name("enqueue_json", messages[0]), schema)
    return inserted_ids(messages, await connection.fetch(query, json_parameter(messages)))


@cache
def _statement(name: str, schema: str) -> str:
    return driver_statement(name, schema, lambda _name: "$1")
