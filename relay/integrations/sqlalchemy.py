"""Enqueueing in the transaction of a SQLAlchemy session or connection, sync or async, with any PostgreSQL driver.

    from relay.integrations.sqlalchemy import enqueue

    with Session(engine) as session, session.begin():
        session.get(Invoice, 7).paid = True
        enqueue(session, Message(exchange="billing", routing_key="invoice.paid", content={"invoice": 7}))

Nothing here begins, commits or rolls back, except that SQLAlchemy itself begins a transaction at the first statement.
One statement with one bound parameter inserts all messages of a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.engine import Connection, Result
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from relay.client.contracts import ClientContracts
from relay.client.handles import wrong_handle
from relay.client.insert import insert_name, inserted_ids, json_parameter
from relay.client.message import Message
from relay.client.prepare import MessageLike, Trace, prepare, prepare_all
from relay.queries.statements import driver_statement

__all__ = ["enqueue", "enqueue_async", "enqueue_many", "enqueue_many_async", "load_contracts", "load_contracts_async"]

Sync = Session | scoped_session[Any] | Connection
Async = AsyncSession | async_scoped_session[Any] | AsyncConnection


def enqueue(
    session: Sync,
    message: MessageLike,
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> UUID:
    """Insert one message in the session's transaction and return its id; if its `dedup_key` is known, the first message's id.

    Args:
        session: a session or a connection; for a session with several engines, its connection to the queue's database.
        message: a `Message`, an `OutboxModel`, or a mapping with the fields of a `Message`.
        schema: where `relay migrate` made the tables (RELAY_SCHEMA).
        traceparent: W3C trace context for the headers; by default that of OpenTelemetry's current span.
        tracestate: goes with `traceparent`.
        contracts: message contracts that the message must meet, see `load_contracts`; the relay checks them in any case.

    Raises:
        MessageError: the message can never be sent, or breaks an enforced contract; nothing was executed.
        TypeError: `session` is no sync session or connection of SQLAlchemy; the error names the right call.
        sqlalchemy.exc.DBAPIError: the database refused.
    """
    _check_sync(session, "enqueue")
    prepared = prepare(message, Trace(traceparent, tracestate), contracts)
    [message_id] = _ids([prepared], session.execute(*_insert([prepared], schema)))
    return message_id


def enqueue_many(
    session: Sync,
    messages: Iterable[MessageLike],
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> list[UUID]:
    """Insert messages with one statement in the session's transaction; return their ids, in order, as `enqueue` does.

    Args and errors: as `enqueue`; if a message is wrong, nothing is executed for any of them, and the error names its place.
    Either all messages have a dedup, coalesce or bundle key, or none of them has one.
    """
    _check_sync(session, "enqueue_many")
    prepared = prepare_all(messages, Trace(traceparent, tracestate), contracts)
    return _ids(prepared, session.execute(*_insert(prepared, schema))) if prepared else []


async def enqueue_async(
    session: Async,
    message: MessageLike,
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> UUID:
    """`enqueue` for async sessions and connections."""
    _check_async(session, "enqueue_async")
    prepared = prepare(message, Trace(traceparent, tracestate), contracts)
    [message_id] = _ids([prepared], await session.execute(*_insert([prepared], schema)))
    return message_id


async def enqueue_many_async(
    session: Async,
    messages: Iterable[MessageLike],
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> list[UUID]:
    """`enqueue_many` for async sessions and connections."""
    _check_async(session, "enqueue_many_async")
    prepared = prepare_all(messages, Trace(traceparent, tracestate), contracts)
    return _ids(prepared, await session.execute(*_insert(prepared, schema))) if prepared else []


def load_contracts(session: Sync, *, schema: str = "public") -> ClientContracts:
    """Read the message contracts; load them again to see later ones.

    Raises:
        TypeError: as `enqueue`.
        sqlalchemy.exc.DBAPIError: the contracts cannot be read.
    """
    _check_sync(session, "load_contracts")
    return ClientContracts([tuple(row) for row in session.execute(_statement("read_contracts", schema))])


async def load_contracts_async(session: Async, *, schema: str = "public") -> ClientContracts:
    """`load_contracts` for async sessions and connections."""
    _check_async(session, "load_contracts_async")
    return ClientContracts([tuple(row) for row in await session.execute(_statement("read_contracts", schema))])


def _check_sync(session: object, call: str) -> None:
    if not isinstance(session, (Session, scoped_session, Connection)):
        raise wrong_handle(session, f"{__name__}.{call}", "a session or connection of SQLAlchemy")


def _check_async(session: object, call: str) -> None:
    if not isinstance(session, (AsyncSession, async_scoped_session, AsyncConnection)):
        raise wrong_handle(session, f"{__name__}.{call}", "an async session or connection of SQLAlchemy")


def _insert(messages: Sequence[Message], schema: str) -> tuple[TextClause, dict[str, str]]:
    return _statement(insert_name("enqueue_json", messages[0]), schema), {"messages": json_parameter(messages)}


def _ids(messages: Sequence[Message], result: Result[Any]) -> list[UUID]:
    return inserted_ids(messages, [tuple(row) for row in result] if messages[0].keyed else ())


@cache
def _statement(name: str, schema: str) -> TextClause:
    return text(driver_statement(name, schema, lambda parameter: f":{parameter}", colon="\\:"))
