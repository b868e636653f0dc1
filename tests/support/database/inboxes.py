"""An inbox and the process that fills it: fixtures and what tests publish into its queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel
from pamqp import commands

from tests.support.broker.raw_amqp import RawClient, raw_publish
from tests.support.broker.topology import Declared
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import RelayProcess, Relays

Start = Callable[..., Awaitable[RelayProcess]]


@pytest.fixture
async def inbox_queue(queue: Queue) -> Queue:
    """The queue of a fresh database, which holds an inbox."""
    await queue.sql("SELECT queue_message_config_set('direction', 'inbox')")
    return queue


@pytest.fixture
async def channel(amqp_url: str) -> AsyncIterator[AbstractChannel]:
    """A channel with confirms to publish on."""
    async with await aio_pika.connect(amqp_url) as connection:
        yield await connection.channel()


@pytest.fixture
def start_receive(relays: Relays, inbox_queue: Queue, amqp_url: str) -> Start:
    """Starts `relay receive` for these queues."""

    async def start(*queues: str, name: str = "receiver", settings: Mapping[str, str] | None = None, **more: Any) -> RelayProcess:
        own = {"RELAY_RECEIVE_QUEUES": ",".join(queues), **(settings or {})}
        values = {"database": inbox_queue.url, "broker": amqp_url, "settings": own, **more}
        return await relays.start(name, command="receive", **values)

    return start


async def publish(
    channel: AbstractChannel, declared: Declared, bodies: Sequence[bytes], *, ids: Sequence[str] | None = None, **properties: Any
) -> None:
    """Publish bodies, confirmed, as JSON unless the properties say otherwise; ids are their message ids."""
    exchange = await channel.get_exchange(declared.exchange, ensure=False)
    properties = {"content_type": "application/json", "delivery_mode": 2, **properties}
    for start in range(0, len(bodies), 500):
        await asyncio.gather(*(
            exchange.publish(
                aio_pika.Message(bodies[place], message_id=ids[place] if ids else None, **properties), declared.routing_key
            )
            for place in range(start, min(start + 500, len(bodies)))
        ))  # fmt: skip


async def publish_without_id(client: RawClient, declared: Declared, body: bytes) -> None:
    """Publish a body, confirmed; aio-pika gives each message an id."""
    client.write(raw_publish(declared.exchange.encode(), declared.routing_key.encode(), b"\x00\x00", body))
    await client._expect(commands.Basic.Ack)


async def received(queue: Queue, count: int) -> None:
    """Wait until so many messages are in the inbox."""

    async def there() -> bool:
        return bool(await queue.value("SELECT count(*) >= %s FROM queue_message", count))

    await until(there)


async def emptied(channel: AbstractChannel, name: str) -> None:
    """Wait until nothing is ready in a queue; once its receiver has ended, this says that all was acknowledged."""

    async def empty() -> bool:
        return (await channel.declare_queue(name, passive=True)).declaration_result.message_count == 0

    await until(empty)
