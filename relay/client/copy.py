"""Enqueues many messages as a stream, by COPY, with psycopg, sync or async. Memory does not grow with the number of messages."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from relay.client.contracts import ClientContracts
from relay.client.handles import AsyncConnection, Connection, async_connection, sync_connection
from relay.client.insert import KEYS, insert_name
from relay.client.message import Message
from relay.client.prepare import MessageLike, Trace, check_keyed, prepare_at
from relay.queries.statements import statement

_SAVE, _RELEASE, _ROLLBACK = b"SAVEPOINT relay_copy", b"RELEASE SAVEPOINT relay_copy", b"ROLLBACK TO SAVEPOINT relay_copy"


def enqueue_copy(
    connection: Connection,
    messages: Iterable[MessageLike],
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> int:
    """Stream messages into the queue in the caller's transaction; return how many there were.

    Each message is checked as it comes, and all or none are inserted. Within a transaction a savepoint undoes the messages before a wrong
    one, and the transaction stays usable. A caller that needs the ids sets them (`Message.id`). Either all messages have a dedup, coalesce
    or bundle key, or no message has one. A message whose `dedup_key` is known already is not inserted but is counted, because COPY does not
    report it. COPY cannot evaluate expressions, so the function reads the database's time at the start, and each `delay` counts from then.

    Args:
        connection: a psycopg connection, or a cursor of it. The connection is busy meanwhile: `messages` must not read from it.
        messages: an iterable of messages as for `enqueue`, such as a generator; only one message is in memory at a time.
        schema: where `relay migrate` made the tables (RELAY_SCHEMA).
        traceparent: W3C trace context for the headers; by default the context of OpenTelemetry's current span.
        tracestate: the `tracestate` that belongs to `traceparent`.
        contracts: message contracts that messages must meet, see `load_contracts`; the relay checks them in any case.

    Raises:
        MessageError: a message can never be sent, or breaks an enforced contract; the error names its place, and nothing was inserted.
        TypeError: as `enqueue`.
        psycopg.Error: the database refused; nothing was inserted.
    """
    own = sync_connection(connection, "enqueue_copy")
    prepared = _prepare_each(messages, Trace(traceparent, tracestate), contracts)
    with psycopg.Cursor(own, row_factory=tuple_row) as cursor, _savepoint(cursor):
        first = next(prepared, None)
        if first is None:
            return 0
        row = _keyed_row if first.keyed else _row
        clock = _clock(cursor.execute(statement("read_clock", schema)).fetchall())
        with cursor.copy(statement(insert_name("enqueue_copy", first), schema)) as copy:
            copy.write_row(row(first, clock))
            for message in prepared:
                copy.write_row(row(message, clock))
        return cursor.rowcount


async def enqueue_copy_async(
    connection: AsyncConnection,
    messages: Iterable[MessageLike] | AsyncIterable[MessageLike],
    *,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> int:
    """`enqueue_copy` for psycopg's async connections; the iterable may be async, too."""
    own = async_connection(connection, "enqueue_copy_async")
    prepared = _prepare_each_async(messages, Trace(traceparent, tracestate), contracts)
    async with psycopg.AsyncCursor(own, row_factory=tuple_row) as cursor, _savepoint_async(cursor):
        first = await anext(prepared, None)
        if first is None:
            return 0
        row = _keyed_row if first.keyed else _row
        await cursor.execute(statement("read_clock", schema))
        clock = _clock(await cursor.fetchall())
        async with cursor.copy(statement(insert_name("enqueue_copy", first), schema)) as copy:
            await copy.write_row(row(first, clock))
            async for message in prepared:
                await copy.write_row(row(message, clock))
        return cursor.rowcount


def _row(message: Message, clock: datetime) -> tuple[Any, ...]:
    available_at = message.available_at if message.delay is None else clock + message.delay
    return (
        message.id, message.exchange, message.routing_key, message.content_text, message.body, message.options.text(),
        message.ordering_key, available_at, message.expires_at,
    )  # fmt: skip


def _keyed_row(message: Message, clock: datetime) -> tuple[Any, ...]:
    return (*_row(message, clock), *(getattr(message, name) for name in KEYS))


def _clock(rows: Sequence[tuple[str]]) -> datetime:
    """The database's time from `read_clock`."""
    [(seconds,)] = rows
    return datetime.fromtimestamp(float(seconds), UTC)


def _prepare_each(messages: Iterable[MessageLike], trace: Trace, contracts: ClientContracts | None) -> Iterator[Message]:
    """Prepare messages as they come; the first message decides whether all messages must have a key."""
    keyed = None
    for place, given in enumerate(messages, start=1):
        message = prepare_at(place, given, trace, contracts)
        keyed = message.keyed if keyed is None else keyed
        check_keyed(place, message, keyed=keyed)
        yield message


async def _prepare_each_async(
    messages: Iterable[MessageLike] | AsyncIterable[MessageLike], trace: Trace, contracts: ClientContracts | None
) -> AsyncIterator[Message]:
    keyed, place = None, 0
    async for given in _each(messages):
        place += 1
        message = prepare_at(place, given, trace, contracts)
        keyed = message.keyed if keyed is None else keyed
        check_keyed(place, message, keyed=keyed)
        yield message


@contextmanager
def _savepoint(cursor: psycopg.Cursor[Any]) -> Iterator[None]:
    if _commits_by_itself(cursor.connection):
        yield
        return
    cursor.execute(_SAVE)
    try:
        yield
    except BaseException:
        if not cursor.connection.closed:
            cursor.execute(_ROLLBACK)
            cursor.execute(_RELEASE)
        raise
    cursor.execute(_RELEASE)


@asynccontextmanager
async def _savepoint_async(cursor: psycopg.AsyncCursor[Any]) -> AsyncIterator[None]:
    if _commits_by_itself(cursor.connection):
        yield
        return
    await cursor.execute(_SAVE)
    try:
        yield
    except BaseException:
        if not cursor.connection.closed:
            await cursor.execute(_ROLLBACK)
            await cursor.execute(_RELEASE)
        raise
    await cursor.execute(_RELEASE)


def _commits_by_itself(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the statement commits by itself: then no savepoint is possible or needed."""
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE


async def _each(messages: Iterable[MessageLike] | AsyncIterable[MessageLike]) -> AsyncIterator[MessageLike]:
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
    else:
        for message in messages:
            yield message
