"""Enqueueing in the transaction of a SQLAlchemy session or connection, sync or async, with any PostgreSQL driver.

    from relay.integrations.sqlalchemy import enqueue

    with Session(engine) as session, session.begin():
        session.get(Invoice, 7).paid = True
        enqueue(session, Message(exchange="billing", routing_key="invoice.paid", content={"invoice": 7}))

Nothing here begins, commits or rolls back, beside what SQLAlchemy begins by itself at the first statement. One statement takes all
messages of a call, with one bound parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from relay.client_message import Message
from relay.client_rows import Given, Trace, all_fit, as_json, fit, statement_for

__all__ = ["enqueue", "enqueue_async", "enqueue_many", "enqueue_many_async"]

Sync = Session | scoped_session[Any] | Connection
Async = AsyncSession | async_scoped_session[Any] | AsyncConnection


def enqueue(
    session: Sync, message: Given, *, schema: str = "public", traceparent: str | None = None, tracestate: str | None = None
) -> UUID:
    """Insert one message in the session's transaction and return its id.

    Args:
        session: a session or a connection; of a session with several engines, its connection to the queue's.
        message: a `Message`, an `OutboxModel`, or a mapping with the fields of a `Message`.
        schema: where `relay migrate` made the tables (RELAY_SCHEMA).
        traceparent: W3C trace context for the headers; by default that of OpenTelemetry's current span.
        tracestate: goes with it.

    Raises:
        MessageError: the message can never be sent; nothing was executed.
        sqlalchemy.exc.DBAPIError: the database refused.
    """
    ready = fit(message, Trace(traceparent, tracestate))
    session.execute(_insert(schema), _values([ready]))
    return ready.id


def enqueue_many(
    session: Sync, messages: Iterable[Given], *, schema: str = "public", traceparent: str | None = None, tracestate: str | None = None
) -> list[UUID]:
    """Insert messages with one statement in the session's transaction; return their ids, in order.

    Args and errors: as `enqueue`; with a wrong message nothing is executed for any of them, and the error names its place.
    """
    ready = all_fit(messages, Trace(traceparent, tracestate))
    if ready:
        session.execute(_insert(schema), _values(ready))
    return [message.id for message in ready]


async def enqueue_async(
    session: Async, message: Given, *, schema: str = "public", traceparent: str | None = None, tracestate: str | None = None
) -> UUID:
    """`enqueue` for async sessions and connections."""
    ready = fit(message, Trace(traceparent, tracestate))
    await session.execute(_insert(schema), _values([ready]))
    return ready.id


async def enqueue_many_async(
    session: Async, messages: Iterable[Given], *, schema: str = "public", traceparent: str | None = None, tracestate: str | None = None
) -> list[UUID]:
    """`enqueue_many` for async sessions and connections."""
    ready = all_fit(messages, Trace(traceparent, tracestate))
    if ready:
        await session.execute(_insert(schema), _values(ready))
    return [message.id for message in ready]


@cache
def _insert(schema: str) -> TextClause:
    return text(statement_for("enqueue_json", schema, lambda name: f":{name}", escape="\\"))


def _values(messages: Sequence[Message]) -> dict[str, str]:
    return {"messages": as_json(messages)}
