"""The fixtures that other tests stand on."""

from __future__ import annotations

import aio_pika
import psycopg
import pytest

from tests.support.broker.topology import Topology
from tests.support.servers.shared import Declare, Drain


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_has_a_database_of_its_own_with_the_schema(database_url: str, time: str) -> None:
    """The table is there and empty, though the other run of this test filled its own."""
    with psycopg.connect(database_url) as db:
        assert (0,) == db.execute("SELECT count(*) FROM queue_message").fetchone()
        db.execute("INSERT INTO queue_message (exchange, routing_key) VALUES ('', %s)", [time])


def test_an_empty_database_has_no_schema(empty_database_url: str) -> None:
    """Nothing was migrated in it."""
    with psycopg.connect(empty_database_url) as db:
        assert (None,) == db.execute("SELECT to_regclass('queue_message')::text").fetchone()


async def _publish(url: str, exchange: str, routing_key: str, count: int) -> None:
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        source = await channel.get_exchange(exchange, ensure=False)
        for number in range(count):
            await source.publish(aio_pika.Message(str(number).encode()), routing_key)


async def test_what_is_published_to_a_declared_exchange_is_drained_from_its_queue(amqp_url: str, declare: Declare, drain: Drain) -> None:
    """The binding leads from one to the other, and order is kept."""
    exchange, queue, routing_key = await declare()
    await _publish(amqp_url, exchange, routing_key, 3)

    assert [b"0", b"1"] == [message.body for message in await drain(queue, 2)][:2]
    assert [] == await drain(queue)


async def test_a_drain_that_waits_in_vain_says_how_many_came(amqp_url: str, declare: Declare, drain: Drain) -> None:
    """The failure names what came, what was expected, and where."""
    exchange, queue, routing_key = await declare()
    await _publish(amqp_url, exchange, routing_key, 1)

    with pytest.raises(pytest.fail.Exception, match=f"1 of 2 messages came to {queue}, and no more within 0.2 s"):
        await drain(queue, 2, seconds=0.2)


async def test_what_a_test_declared_is_gone_after_it(amqp_url: str, unique: str) -> None:
    """Names can be used again at once."""
    async with Topology(amqp_url, unique) as topology:
        await topology.declare(kind="fanout")
    async with Topology(amqp_url, unique) as topology:
        exchange, queue, _ = await topology.declare(kind="topic", arguments={"x-max-length": 1})
        assert 0 == await topology.waiting(queue)
        assert exchange.startswith(unique)


async def test_a_vhost_of_its_own_is_empty(vhost_url: str, declare: Declare) -> None:
    """What is declared in the shared vhost is not seen there."""
    _, queue, _ = await declare()
    async with await aio_pika.connect(vhost_url) as connection, connection.channel() as channel:
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
            await channel.declare_queue(queue, passive=True)
