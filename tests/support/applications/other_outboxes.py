"""Other systems' outboxes, as their own sources define them: tables, the inserts that their libraries make, and how their relays claim."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

PAUSE = 0.01
"""Seconds between two looks of an old relay."""
_FOLDER = Path(__file__).with_name("outboxes")


Row = Mapping[str, object]


class Outbox(NamedTuple):
    """One of them."""

    layout: str
    table: str
    insert: str
    """What its library sends, its parameters by name."""
    row: Callable[[str, str], Row]
    """Parameters for a message to an exchange with a routing key."""
    options: Callable[[str], Sequence[str]] = lambda _: ()
    """Options that `relay adopt mirror` gets for such rows to an exchange."""
    before: str = ""
    """What its library sends before the insert."""
    key: str = "id"
    """The column that comes back from the insert, and goes out as message id."""
    claim: str = ""
    """What its relay sends to take some rows; returns their keys."""
    open: str = "false"
    """Which rows its relay still has to send."""
    done: str = ""
    """What its relay sends when a row with this key is published."""

    @property
    def definition(self) -> str:
        """The table's definition."""
        return (_FOLDER / f"{self.layout}.sql").read_text(encoding="utf-8")


def go_outbox_row(**given: object) -> Row:
    """What go-outbox's client writes for one message."""
    row = {
        "stream": "local",
        "topic": "account.debited",
        "payload": b'{"account":42}',
        "headers": "{}",
        "target": "{}",
        "available_at": None,
    }
    return {"id": uuid.uuid4(), **row, **given}


def debezium_row(**given: object) -> Row:
    """What an application writes for one event."""
    return {"id": uuid.uuid4(), "aggregatetype": "order", "aggregateid": "7", "type": "OrderCreated", "payload": '{"id": 7}', **given}


GO_OUTBOX = Outbox(
    layout="go-outbox",
    table="outbox.messages",
    insert="""INSERT INTO "outbox"."messages" (id, stream, topic, payload, headers, target, available_at)
        VALUES (%(id)s, %(stream)s, %(topic)s, %(payload)s, %(headers)s, %(target)s, coalesce(%(available_at)s, now()))""",
    row=lambda exchange, routing_key: go_outbox_row(target=json.dumps({"exchange": exchange, "routing_key": routing_key})),
    open="status IN (0, 1)",
    claim="""WITH due AS (
            SELECT id FROM outbox.messages WHERE status = 0 AND stream = 'local' AND available_at <= now()
            ORDER BY available_at, id LIMIT 20 FOR UPDATE SKIP LOCKED)
        UPDATE outbox.messages m SET status = 1, lease_token = %(token)s, lease_until = now() + interval '30 s', owner = 'old'
        FROM due WHERE m.id = due.id RETURNING m.id""",
    done="""UPDATE outbox.messages SET status = 2, dispatched_at = now(), lease_token = NULL, lease_until = NULL, owner = NULL
        WHERE id = %(key)s AND lease_token = %(token)s""",
)
DEBEZIUM = Outbox(
    layout="debezium",
    table="outboxevent",
    insert="""INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload)
        VALUES (%(id)s, %(aggregatetype)s, %(aggregateid)s, %(type)s, %(payload)s)""",
    row=lambda exchange, routing_key: debezium_row(aggregatetype=f"{exchange} {routing_key}"),
    options=lambda exchange: ("--exchange", exchange),
)
FASTSTREAM = Outbox(
    layout="faststream-outbox",
    table="outbox",
    insert="INSERT INTO outbox (queue, payload, headers) VALUES (%(queue)s::VARCHAR, %(payload)s::BYTEA, %(headers)s::JSONB)",
    row=lambda _, routing_key: faststream_row(queue=routing_key),
    options=lambda exchange: ("--exchange", exchange),
    open="true",
    claim="""WITH ready AS (
            SELECT id FROM outbox WHERE next_attempt_at <= now()
                AND (acquired_token IS NULL OR acquired_token IS NOT NULL AND acquired_at < now() - make_interval(secs => 60))
            ORDER BY next_attempt_at, id LIMIT 20 FOR UPDATE SKIP LOCKED)
        UPDATE outbox SET acquired_at = now(), acquired_token = %(token)s, deliveries_count = deliveries_count + 1
        WHERE id IN (SELECT id FROM ready) RETURNING id""",
    done="DELETE FROM outbox WHERE id = %(key)s AND acquired_token = %(token)s",
)
LARAVEL = Outbox(
    layout="laravel-jobs",
    table="jobs",
    insert="""INSERT INTO "jobs" ("queue", "attempts", "reserved_at", "available_at", "created_at", "payload")
        VALUES (%(queue)s, %(attempts)s, %(reserved_at)s, %(available_at)s, %(created_at)s, %(payload)s)""",
    row=lambda _, routing_key: laravel_row(queue=routing_key),
    options=lambda exchange: ("--exchange", exchange),
    open="true",
    claim="""UPDATE jobs SET reserved_at = extract(epoch FROM now())::int, attempts = attempts + 1 WHERE id IN (
            SELECT id FROM jobs WHERE reserved_at IS NULL AND available_at <= extract(epoch FROM now())::int
            ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED) AND %(token)s::uuid IS NOT NULL RETURNING id""",
    done="DELETE FROM jobs WHERE id = %(key)s AND %(token)s::uuid IS NOT NULL",
)
MASSTRANSIT = Outbox(
    layout="masstransit",
    table='"OutboxMessage"',
    before="""INSERT INTO "OutboxState" ("OutboxId", "Created", "Delivered", "LastSequenceNumber", "LockId", "RowVersion")
        VALUES (%(OutboxId)s, now(), NULL, NULL, '00000000-0000-0000-0000-000000000000', NULL)""",
    insert="""INSERT INTO "OutboxMessage" ("Body", "ContentType", "ConversationId", "CorrelationId", "DestinationAddress", "EnqueueTime",
            "ExpirationTime", "Headers", "MessageId", "MessageType", "OutboxId", "Properties", "SentTime")
        VALUES (%(Body)s, %(ContentType)s, %(ConversationId)s, %(CorrelationId)s, %(DestinationAddress)s, %(EnqueueTime)s,
            %(ExpirationTime)s, %(Headers)s, %(MessageId)s, %(MessageType)s, %(OutboxId)s, %(Properties)s, now())""",
    row=lambda exchange, routing_key: masstransit_row(
        DestinationAddress=f"rabbitmq://broker/{exchange}?type=direct", Properties=json.dumps({"RMQ-RoutingKey": routing_key})
    ),
    key='"MessageId"',
    open="true",
)
POLLED = (GO_OUTBOX, FASTSTREAM, LARAVEL)


def faststream_row(**given: object) -> Row:
    """What faststream-outbox's producer writes for one message."""
    headers = {"content-type": "application/json", "correlation_id": "c-1"}
    return {"queue": "orders", "payload": b'{"order": 7}', "headers": json.dumps(headers), **given}


def laravel_row(**given: object) -> Row:
    """What Laravel's queue writes for one job."""
    payload = {"uuid": "0", "displayName": "App\\Jobs\\Ship", "data": {"command": 'O:13:"App\\Jobs\\Ship":0:{}'}}
    row = {"queue": "default", "attempts": 0, "reserved_at": None, "available_at": 0, "created_at": 1_700_000_000}
    return {**row, "payload": json.dumps(payload), **given}


def masstransit_row(**given: object) -> Row:
    """What MassTransit writes for one published message."""
    row = {
        "Body": '{"message": {"order": 7}}',
        "ContentType": "application/vnd.masstransit+json",
        "ConversationId": uuid.uuid4(),
        "CorrelationId": None,
        "DestinationAddress": "rabbitmq://broker/Shop:OrderPlaced",
        "EnqueueTime": None,
        "ExpirationTime": None,
        "Headers": "{}",
        "MessageType": "urn:message:Shop:OrderPlaced",
        "Properties": None,
    }
    return {**row, "MessageId": uuid.uuid4(), "OutboxId": uuid.uuid4(), **given}


class OldRelay:
    """A poller that claims as its system does, and notes what it would have published.

    Args:
        connection: of its own, in autocommit.
        outbox: whose rows it claims.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], outbox: Outbox) -> None:
        self._connection = connection
        self._outbox = outbox
        self.published: list[str] = []

    async def run(self, until: asyncio.Event) -> None:
        """Claim, publish and settle until the event, and then on until nothing is left."""
        while True:
            last = until.is_set()
            if await self.turn():
                continue
            if last:
                return
            await asyncio.sleep(PAUSE)

    async def turn(self) -> int:
        """Claim once, publish what there is and settle it; return how many."""
        keys = await self.claim()
        for key, token in keys:
            self.published.append(str(key))
            await self._connection.execute(self._outbox.done.encode(), {"key": key, "token": token})
        return len(keys)

    async def claim(self) -> list[tuple[object, uuid.UUID]]:
        """Claim only: keys, and the token that settles them."""
        token = uuid.uuid4()
        cursor = await self._connection.execute(self._outbox.claim.encode(), {"token": token})
        return [(key, token) for (key,) in await cursor.fetchall()]
