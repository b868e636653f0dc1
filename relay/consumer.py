"""What a consumer imports to handle each message once, in its own transaction, with psycopg, sync or async.

    from relay.consumer import once, relay_id

    with connection.transaction():
        if once(connection, relay_id(headers), consumer="billing"):
            connection.execute("UPDATE account SET balance = balance + 1 WHERE id = 7")
    # And now acknowledge the delivery.

`once` marks the message as handled. This mark and the work commit in one transaction, together or not at all. Both the relay and RabbitMQ
deliver at least once. Acknowledge after the commit: after a crash in between, the message is delivered again and changes nothing. The
setting received_retention_days says how long marks are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

import psycopg

from relay.codec.option_rules import SHORT_LIMIT
from relay.errors import RelayError
from relay.queries.statements import Statements

__all__ = ["ConsumerError", "once", "once_async", "relay_id"]

Connection = psycopg.Connection[Any] | psycopg.Cursor[Any]
AsyncConnection = psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]


class ConsumerError(RelayError, ValueError):
    """The message cannot be marked; no SQL was run."""


def once(connection: Connection, message_id: str | UUID, *, consumer: str, schema: str = "public") -> bool:
    """Mark a message as handled in the caller's transaction; return whether this is the first time.

    If another open transaction has marked the same message, the call waits for it. After that transaction's commit the answer is False,
    after its rollback True.

    Args:
        connection: a psycopg connection, or one of its cursors, whose results stay as they are.
        message_id: identifies the message, as `relay_id` reads it from the headers; at most 255 bytes.
        consumer: a name such as the queue's: each consumer handles each message once; at most 255 bytes.
        schema: the schema of the tables that `relay migrate` made (RELAY_SCHEMA).

    Raises:
        ConsumerError: the mark would commit by itself, or a name is empty or too long; no SQL was executed.
        psycopg.Error: the database refused. In REPEATABLE READ and SERIALIZABLE the second of two overlapping transactions that mark the
            same message fails with a SerializationFailure, as for any row.
    """
    own = connection.connection if isinstance(connection, psycopg.Cursor) else connection
    mark = _mark(own, str(message_id), consumer)
    # Not connection.execute: the connection may be configured with a cursor of another kind.
    with psycopg.Cursor(own) as cursor:
        return cursor.execute(_statement(schema), mark).fetchone() is not None


async def once_async(connection: AsyncConnection, message_id: str | UUID, *, consumer: str, schema: str = "public") -> bool:
    """`once` for psycopg's async connections."""
    own = connection.connection if isinstance(connection, psycopg.AsyncCursor) else connection
    mark = _mark(own, str(message_id), consumer)
    async with psycopg.AsyncCursor(own) as cursor:
        return await (await cursor.execute(_statement(schema), mark)).fetchone() is not None


def relay_id(headers: Mapping[str, Any] | None, message_id: str | bytes | None = None) -> str:
    """The identity of a delivery's message: the header `x-relay-id`, the same in every delivery.

    Args:
        headers: the delivery's headers, from any AMQP client; a value may be bytes.
        message_id: the delivery's property message_id, for messages that no relay sent; it may also be bytes.

    Raises:
        ConsumerError: both are missing, so a redelivery could not be recognized.
    """
    found = (headers or {}).get("x-relay-id") or message_id
    if isinstance(found, bytes | bytearray):
        found = found.decode("utf-8", "backslashreplace")
    if not isinstance(found, str) or not found:
        raise ConsumerError("The delivery has neither the header x-relay-id nor a message_id: it did not come through a relay.")
    return found


def _mark(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], message_id: str, consumer: str) -> dict[str, str]:
    """The statement's values; refuses a mark that would not commit with the caller's work."""
    if connection.autocommit and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        raise ConsumerError("The mark would commit by itself, before the message is handled: open a transaction first.")
    for name, text in (("message_id", message_id), ("consumer", consumer)):
        if not _fits(text):
            raise ConsumerError(f"{name} must be text of 1 to {SHORT_LIMIT} bytes, valid UTF-8 and without NUL.")
    return {"message_id": message_id, "consumer": consumer}


def _fits(text: str) -> bool:
    try:
        return 0 < len(text.encode()) <= SHORT_LIMIT and "\0" not in text
    except UnicodeEncodeError:
        return False


@cache
def _statement(schema: str) -> bytes:
    return Statements(schema)["note_received"]
