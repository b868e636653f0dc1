"""faststream-outbox as its documentation builds a relay: a publisher of RabbitMQ upon a subscriber of the outbox, for each way.

`faststream_relay.py schema` makes the tables; `faststream_relay.py relay` runs, on uvloop as `faststream run` does.
"""
# mypy: ignore-errors
# Its imports are in an environment of their own, which the one that checks types does not see.

import asyncio
import logging
import os
import sys

import uvloop
from faststream import FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitExchange
from faststream_outbox import OutboxBroker, make_dlq_table, make_outbox_table, outbox_autovacuum_ddl
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import create_async_engine

WORKERS = 64
"""Of the first way, which nearly everything takes; each of the others has one."""
LISTENERS = 10
"""Connections in addition to those of the workers."""
SUBSCRIBER = {
    "fetch_batch_size": 500,
    "terminal_flush_batch_size": 100,
    "min_fetch_interval": 0.1,
    "max_fetch_interval": 1.0,
    "lease_ttl_seconds": 30,
}

# Two lines for each message cost it a third of its CPU; warnings and errors are still logged.
logging.basicConfig(level=logging.WARNING)
logger = logging.getLogger("relay")
metadata = MetaData()
tables = {"outbox_table": make_outbox_table(metadata), "dlq_table": make_dlq_table(metadata)}
engine = create_async_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+asyncpg://"), pool_size=WORKERS + LISTENERS)


def relay_of(outbox: OutboxBroker, rabbit: RabbitBroker, way: str, workers: int) -> None:
    """Relay one queue of the outbox to one exchange and routing key."""
    exchange, routing_key = way.split("/")
    publisher = rabbit.publisher(exchange=RabbitExchange(exchange, declare=False), routing_key=routing_key, persist=True, mandatory=True)

    @publisher
    @outbox.subscriber(way, max_workers=workers, **SUBSCRIBER)
    async def relay(body: dict) -> dict:
        return body


async def relays() -> None:
    """Relay for ever."""
    outbox = OutboxBroker(engine, **tables, logger=logger)
    # Without on_return_raises a message that no queue takes counts as published.
    rabbit = RabbitBroker(os.environ["AMQP_URL"], default_channel=Channel(on_return_raises=True), logger=logger)
    for number, way in enumerate(os.environ["WAYS"].split()):
        relay_of(outbox, rabbit, way, 1 if number else WORKERS)
    app = FastStream(outbox, on_startup=[rabbit.connect])
    app.after_startup(lambda: print("ready", flush=True))  # noqa: T201 - who started it waits for this
    await app.run()


async def schema() -> None:
    """Make its tables."""
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.execute(text(outbox_autovacuum_ddl("outbox", vacuum_cost_delay=0)))
    await engine.dispose()


if __name__ == "__main__":
    if sys.argv[1] == "schema":
        asyncio.run(schema())
    else:
        uvloop.run(relays())
