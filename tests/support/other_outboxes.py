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
    options: Sequence[str] = ()
    """What `relay adopt mirror` is told for such rows."""
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
    options=("--exchange", "events"),
)
POLLED = (GO_OUTBOX,)


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
        while await self.turn() or not until.is_set():  # noqa: ASYNC110 - a poller polls
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
