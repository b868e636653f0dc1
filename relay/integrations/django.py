"""Enqueueing in Django's transaction, `transaction.atomic`.

    from relay.integrations.django import enqueue

    with transaction.atomic():
        Invoice.objects.filter(pk=7).update(paid=True)
        enqueue(Message(exchange="billing", routing_key="invoice.paid", content={"invoice": 7}))

Outside of a transaction Django commits each statement by itself, so the message would be sent even if the rest fails. Such a call is
refused, unless `autocommit=True` allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from django.db import connections

from relay.client.contracts import ClientContracts
from relay.client.handles import wrong_handle
from relay.client.insert import insert_name, inserted_ids, json_parameter
from relay.client.message import Message, MessageError
from relay.client.prepare import MessageLike, Trace, prepare, prepare_all
from relay.queries.statements import statement

__all__ = ["enqueue", "enqueue_many", "load_contracts"]


def enqueue(
    message: MessageLike,
    *,
    using: str = "default",
    autocommit: bool = False,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> UUID:
    """Insert one message in the current transaction and return its id; if its `dedup_key` is known, the first message's id.

    Args:
        message: a `Message`, an `OutboxModel`, or a mapping with the fields of a `Message`.
        using: the alias of the database, a PostgreSQL.
        autocommit: True lets the message commit by itself if there is no transaction.
        schema: where `relay migrate` made the tables (RELAY_SCHEMA).
        traceparent: W3C trace context for the headers; by default that of OpenTelemetry's current span.
        tracestate: goes with `traceparent`.
        contracts: message contracts that the message must meet, see `load_contracts`; the relay checks them in any case.

    Raises:
        MessageError: the message can never be sent, or breaks an enforced contract, or there is no transaction; nothing was executed.
        TypeError: `using` is no text; the error names the right call.
        django.db.DatabaseError: the database refused.
    """
    _check(using, "enqueue")
    prepared = prepare(message, Trace(traceparent, tracestate), contracts)
    [message_id] = _insert([prepared], using, schema, autocommit=autocommit)
    return message_id


def enqueue_many(
    messages: Iterable[MessageLike],
    *,
    using: str = "default",
    autocommit: bool = False,
    schema: str = "public",
    traceparent: str | None = None,
    tracestate: str | None = None,
    contracts: ClientContracts | None = None,
) -> list[UUID]:
    """Insert messages with one statement in the current transaction; return their ids, in order, as `enqueue` does.

    Args and errors: as `enqueue`; if a message is wrong, nothing is executed for any of them, and the error names its place.
    Either all messages have a dedup, coalesce or bundle key, or none of them has one.
    """
    _check(using, "enqueue_many")
    prepared = prepare_all(messages, Trace(traceparent, tracestate), contracts)
    return _insert(prepared, using, schema, autocommit=autocommit) if prepared else []


def load_contracts(*, using: str = "default", schema: str = "public") -> ClientContracts:
    """Read the message contracts; load them again to see later ones.

    Raises:
        TypeError: as `enqueue`.
        django.db.DatabaseError: the contracts cannot be read.
    """
    _check(using, "load_contracts")
    with connections[using].cursor() as cursor:
        cursor.execute(_statement("read_contracts", schema))
        return ClientContracts(cursor.fetchall())


def _check(using: object, call: str) -> None:
    if not isinstance(using, str):
        raise wrong_handle(using, f"{__name__}.{call}", "the alias of a Django database as using=")


def _insert(messages: Sequence[Message], using: str, schema: str, *, autocommit: bool) -> list[UUID]:
    connection: Any = connections[using]
    if connection.vendor != "postgresql":
        raise MessageError(f"The database {using!r} is {connection.vendor}, and the queue is in a PostgreSQL: name its alias by using=.")
    if not (autocommit or connection.in_atomic_block or not connection.get_autocommit()):
        raise MessageError("The message would commit by itself: open transaction.atomic() first, or pass autocommit=True.")
    with connection.cursor() as cursor:
        cursor.execute(_statement(insert_name("enqueue_json", messages[0]), schema), {"messages": json_parameter(messages)})
        return inserted_ids(messages, cursor.fetchall() if messages[0].keyed else ())


@cache
def _statement(name: str, schema: str) -> str:
    return statement(name, schema).decode()
