"""`relay receive` and its servers die while messages come in: each is in the inbox, and once."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aio_pika
import psycopg
import pytest
from aio_pika.exceptions import AMQPError

from relay import devservers
from tests.support.broker.topology import Declared
from tests.support.database.queue import Queue, until
from tests.support.network.proxy import Proxy
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.relays.scrape import HTTP, shows

KILLS, MANY_KILLS = 4, 40
"""In a run of the short form and of the long one."""
A_ROUND = 1000
"""Messages between two kills."""
SMALL = {**HTTP, "RELAY_BATCH_SIZE": "50", "RELAY_RECEIVE_PREFETCH": "300", "RELAY_INBOX_LIMIT": "1000000"}


class Sender:
    """Publishes numbered messages, again until confirmed, so that some come twice; notes what the broker has taken."""

    def __init__(self, url: str, to: Declared) -> None:
        self._url = url
        self._to = to
        self.sent = 0
        self.most = math.inf
        """It waits when it has sent so many."""
        self._ended = False

    async def run(self) -> None:
        """Publish until `end`; a broker that is away is waited for."""
        while not self._ended:
            try:
                async with await aio_pika.connect(self._url) as connection:
                    exchange = await (await connection.channel()).get_exchange(self._to.exchange, ensure=False)
                    while not self._ended:
                        await until(lambda: self._ended or self.sent < self.most, math.inf)
                        await asyncio.gather(*(self._publish(exchange, self.sent + number) for number in range(100)))
                        self.sent += 100
            except (AMQPError, OSError, RuntimeError, asyncio.CancelledError):
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                await asyncio.sleep(0.1)

    def end(self) -> None:
        """Publish no more."""
        self._ended = True

    async def _publish(self, exchange: aio_pika.abc.AbstractExchange, number: int) -> None:
        body, name = b"%d" % number, f"message-{number}"
        message = aio_pika.Message(body, message_id=name, content_type="application/json", delivery_mode=2)
        await exchange.publish(message, self._to.routing_key)


class Stage:
    """A broker of its own with a queue, an inbox, and receivers between them."""

    def __init__(self, relays: Relays, inbox: Queue, broker: devservers.RabbitMQ, to: Declared) -> None:
        self._relays = relays
        self.inbox = inbox
        self.broker = broker
        self._to = to
        self.sender = Sender(broker.url, to)

    async def start(self, name: str, *, database: str | None = None, broker: str | None = None, ready: bool = True) -> RelayProcess:
        """Start a receiver."""
        settings = {**SMALL, "RELAY_RECEIVE_QUEUES": self._to.queue}
        return await self._relays.start(
            name, database=database or self.inbox.url, broker=broker or self.broker.url, command="receive", settings=settings, ready=ready
        )

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Publish meanwhile."""
        task = asyncio.create_task(self.sender.run())
        await self.grown(100)
        yield
        self.sender.end()
        await task

    async def count(self) -> int:
        """Messages in the inbox."""
        return int(await self.inbox.value("SELECT count(*) FROM queue_message"))

    async def grown(self, by: int) -> None:
        """Wait until so many messages more are published."""
        goal = self.sender.sent + by
        await until(lambda: self.sender.sent >= goal)

    async def check(self) -> None:
        """Every message that the broker took is in the inbox, and none is there twice."""
        await until(self._all_there)
        twice = await self.inbox.sql("SELECT content, count(*) FROM queue_message GROUP BY content HAVING count(*) > 1")
        assert [] == twice

    async def _all_there(self) -> bool:
        statement = "SELECT count(DISTINCT content::int) FILTER (WHERE content::int < %s) = %s FROM queue_message"
        return bool(await self.inbox.value(statement, self.sender.sent, self.sender.sent))


@pytest.fixture
async def stage(relays: Relays, queue: Queue, own_broker: devservers.RabbitMQ, inbox: Declared) -> Stage:
    """Everything that a fault of the receive direction needs."""
    await queue.sql("SELECT queue_message_config_set('direction', 'inbox')")
    return Stage(relays, queue, own_broker, inbox)


@pytest.mark.fault(32, repeats=5)
@pytest.mark.timeout(900)
@pytest.mark.ids("C16")
async def test_kill_9_of_a_receiver_at_random_moments_loses_nothing(stage: Stage, chance: random.Random, *, long_form: bool) -> None:
    """Between delivery, COMMIT and acknowledgement: whatever it was at comes again, and is known."""
    running = await stage.start("receiver-0")
    async with stage.sending():
        for number in range(MANY_KILLS if long_form else KILLS):
            # Not more than receivers get done that are killed all the time.
            stage.sender.most = stage.sender.sent + A_ROUND
            await asyncio.sleep(chance.uniform(0.1, 1.0))  # the random moment
            await running.kill()
            running = await stage.start(f"receiver-{number + 1}")
    await stage.check()


@pytest.mark.fault(32, repeats=20)
@pytest.mark.ids("C16")
async def test_commits_that_are_not_acknowledged_come_again_and_change_nothing(stage: Stage) -> None:
    """The connection to the broker is cut after deliveries were committed: the broker brings all of them again."""
    async with Proxy.before(stage.broker.url) as proxy:
        receiver = await stage.start("receiver", broker=proxy.url(stage.broker.url))
        async with stage.sending():
            proxy.hold_requests()
            before = await stage.count()
            await until(lambda: _more(stage, before))
            proxy.reset()
            proxy.heal()
            await receiver.logged("broker_up", 2)
            await stage.grown(100)
        await stage.check()


async def _more(stage: Stage, before: int) -> bool:
    return await stage.count() > before


@pytest.mark.fault(32, repeats=20)
@pytest.mark.ids("C16")
async def test_a_broker_that_is_killed_under_receivers_loses_nothing(stage: Stage) -> None:
    """Two receivers of one queue both continue by themselves."""
    stage.broker.persist_topology()
    receivers = [await stage.start(f"receiver-{number}") for number in range(2)]
    async with stage.sending():
        stage.broker.crash()
        for receiver in receivers:
            await receiver.logged("broker_down")
            await shows(receiver, "relay_broker_up", 0)
        await asyncio.to_thread(stage.broker.start)
        for receiver in receivers:
            await receiver.logged("broker_up", 2)
        await stage.grown(200)
    await stage.check()


@pytest.mark.fault(32, repeats=20)
@pytest.mark.ids("C16")
@pytest.mark.parametrize("how", ["crash", "restart"])
async def test_a_database_that_dies_under_a_receiver_loses_nothing(stage: Stage, own_postgres: devservers.Postgres, how: str) -> None:
    """Nothing is acknowledged that was not committed, and what was not heard of is written again, once."""
    receiver = await stage.start("receiver")
    async with stage.sending():
        await asyncio.to_thread(getattr(own_postgres, how))
        await receiver.logged("receive_failed")
        await asyncio.to_thread(own_postgres.start)
        await stage.grown(200)
    async with await psycopg.AsyncConnection.connect(stage.inbox.url, autocommit=True) as connection:
        stage.inbox.connection = connection
        await stage.check()
