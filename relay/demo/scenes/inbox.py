"""The other direction: messages of a queue are received into an inbox, and a worker's transactions book each of them once."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg.types.json import Jsonb

from relay.demo.polling import until
from relay.demo.scenes.audience import EXCHANGE, INVOICES
from relay.demo.scenes.stage import Check, Stage
from relay.demo.statements import statement
from relay.worker import Message, Reject

SETTINGS: Final = {"RELAY_SCHEMA": "inbox", "RELAY_DIRECTION": "inbox", "RELAY_RECEIVE_QUEUES": INVOICES}
_TOTALS: Final = (*range(1, 20), -5)
_LOOK: Final = 0.05


async def book(message: Message, connection: psycopg.AsyncConnection) -> None:
    """The handler: its writes commit together with the message's result."""
    if message.content["total"] < 0:
        raise Reject("the total is negative", code="total_negative")
    await connection.execute(statement("scene_book"), {"total": message.content["total"]})


async def prepare(stage: Stage) -> None:
    """Create the inbox and the table of bookings, and start the receiver and the worker."""
    await stage.sidecars.command("migrate", settings=SETTINGS)
    await stage.commit(("scene_create_booking", {}))
    handler = f"{__name__}:{book.__name__}"
    await stage.sidecars.start("receiver", words=("receive",), settings=SETTINGS)
    await stage.sidecars.start("worker", words=("work", handler, "--transaction"), settings=SETTINGS)
    stage.say(f"relay receive (queue {INVOICES}) and relay work {handler} --transaction: ready")


async def play(stage: Stage) -> list[Check]:
    """Send invoices, and wait until each was received into the inbox and handled."""
    rows = [("scene_insert", {"exchange": EXCHANGE, "routing_key": "invoice", "content": Jsonb({"total": total})}) for total in _TOTALS]
    await stage.commit(*rows)

    async def handled() -> bool:
        return await stage.count("scene_count_handled") == len(_TOTALS)

    await until(handled, every=_LOOK)
    return [
        Check("inbox: invoices received, handled and booked once", await stage.count("scene_count_bookings"), len(_TOTALS) - 1),
        Check("inbox: rejected, total_negative", await stage.count("scene_count_refused"), 1),
    ]
