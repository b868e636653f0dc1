"""What a good developer writes in an afternoon: rows of `outbox` go to RabbitMQ in batches, and are deleted when they are confirmed.

The rows stay locked while they are published, so that several of these share a table, and a killed one frees its rows at once.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import aio_pika
import psycopg
import uvloop

BATCH = 500
ATTEMPTS = 5
PAUSE = 1.0
"""Longest seconds between two looks at an empty table."""
CLAIM = """
    SELECT id, exchange, routing_key, payload::text FROM outbox WHERE NOT dead AND due_at <= now()
    ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
"""
SENT = "DELETE FROM outbox WHERE id = ANY(%s)"
FAILED = """
    UPDATE outbox SET attempts = attempts + 1, error = %s, dead = attempts + 1 >= %s, due_at = now() + interval '1 second' * 2 ^ attempts
    WHERE id = %s
"""
Row = tuple[int, str, str, str]


class Publisher:
    """One channel with confirms; a message that no queue takes is an error."""

    def __init__(self, channel: aio_pika.abc.AbstractChannel) -> None:
        self._channel = channel
        self._exchanges: dict[str, aio_pika.abc.AbstractExchange] = {}

    async def publish(self, row: Row) -> None:
        """Return when the broker has confirmed."""
        number, exchange, routing_key, payload = row
        if exchange not in self._exchanges:
            self._exchanges[exchange] = await self._channel.get_exchange(exchange, ensure=False)
        message = aio_pika.Message(
            payload.encode(), message_id=str(number), content_type="application/json", delivery_mode=aio_pika.DeliveryMode.PERSISTENT
        )
        await self._exchanges[exchange].publish(message, routing_key, mandatory=True)


async def relay(connection: psycopg.AsyncConnection[Any], publisher: Publisher) -> int:
    """Move one batch; return how many rows it had."""
    async with connection.transaction():
        rows = await (await connection.execute(CLAIM, [BATCH])).fetchall()
        results = await asyncio.gather(*[publisher.publish(row) for row in rows], return_exceptions=True)
        sent = [row[0] for row, result in zip(rows, results, strict=True) if result is None]
        await connection.execute(SENT, [sent])
        for row, result in zip(rows, results, strict=True):
            if result is not None:
                await connection.execute(FAILED, [repr(result), ATTEMPTS, row[0]])
    return len(rows)


async def main() -> None:
    """Move rows for ever; a notification ends a pause early."""
    database = os.environ["DATABASE_URL"]
    broker = await aio_pika.connect_robust(os.environ["AMQP_URL"])
    publisher = Publisher(await broker.channel(publisher_confirms=True, on_return_raises=True))
    async with (
        await psycopg.AsyncConnection.connect(database, autocommit=True) as connection,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as listener,
    ):
        await listener.execute("LISTEN outbox")
        print("ready", flush=True)  # noqa: T201 - who started it waits for this
        while True:
            if not await relay(connection, publisher):
                async for _ in listener.notifies(timeout=PAUSE, stop_after=1):
                    pass


if __name__ == "__main__":
    uvloop.run(main())
