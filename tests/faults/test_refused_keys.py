"""Thousands of routing keys that the broker refuses of some exchanges: what goes elsewhere goes out as if they were not there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from relay import devservers
from tests.faults.conftest import HAD_TIME
from tests.support.broker.topology import Declared
from tests.support.database.queue import until
from tests.support.faults.scene import Scene
from tests.support.servers.private import user_of

TOPICS = 5
"""Exchanges with such keys: so many that none of them is more than half of a claim."""
ALLOWED = 10
"""One key of so many is allowed."""
TWICE = 16 * TOPICS
"""Allowed ones that may come twice: what was between two marks when the first key of an exchange was refused."""
FLOOD = """
    INSERT INTO queue_message (exchange, routing_key)
    SELECT %s || n %% %s, CASE WHEN n / %s %% %s = 0 THEN 'open.' ELSE 'closed.' END || n FROM generate_series(1, %s) AS n
"""
REFUSED = "SELECT count(*) FROM queue_message WHERE last_error IS NOT NULL"
ERRORS = "SELECT count(DISTINCT routing_key), count(DISTINCT exchange) FROM queue_message WHERE last_error LIKE 'access_refused: %%'"


@pytest.fixture
def flood(*, long_form: bool) -> int:
    """Messages with a key of their own each: more than the window holds, in the long form several times as many."""
    return 20_000 if long_form else 8000


@pytest.fixture
def prompt(*, long_form: bool) -> float:
    """Seconds that a message of another exchange may take: as promised in the long form on a machine that has time."""
    return 2.0 if long_form and HAD_TIME else 15.0


@pytest.fixture
async def topics(scene: Scene, unique: str) -> list[Declared]:
    """Exchanges with a queue behind each that takes every key."""
    names = [f"{unique}.topic.{number}" for number in range(TOPICS)]
    made = [await scene.topology.declare(name, name, routing_key="#", kind="topic") for name in names]
    scene.others.extend(one.queue for one in made)
    return made


@pytest.fixture
def limited_url(own_broker: devservers.RabbitMQ, topics: list[Declared], unique: str) -> Iterator[str]:
    """As a user who may write some keys of these exchanges."""
    with user_of(own_broker, unique, may_write=".*") as url:
        for made in topics:
            own_broker.ctl("set_topic_permissions", "-p", "/", unique, made.exchange, "^open.*", "")
        yield url


async def arrives(scene: Scene, seconds: float) -> None:
    """Send a message to another exchange; it comes within that time."""
    before = await scene.topology.waiting(scene.inbox.queue)
    began = time.monotonic()
    await scene.queue.insert(1, exchange=scene.inbox.exchange, routing_key=scene.inbox.routing_key)
    await until(lambda: scene.topology.has(scene.inbox.queue, before + 1), seconds=seconds)
    assert time.monotonic() - began < seconds


@pytest.mark.fault(13, repeats=3)
@pytest.mark.ids("A10", "C9", "C15")
async def test_thousands_of_refused_keys_delay_no_message_of_another_exchange(
    scene: Scene, unique: str, topics: list[Declared], limited_url: str, flood: int, prompt: float
) -> None:
    """It comes before half of them were refused; each allowed one among them comes, and each other one is refused over its key."""
    relay = await scene.start(broker=limited_url)
    await arrives(scene, 30)
    await scene.queue.sql(FLOOD, f"{unique}.topic.", TOPICS, TOPICS, ALLOWED, flood)
    await until(lambda: scene.queue.value(f"SELECT ({REFUSED}) > 0"))
    for _ in range(3):
        await arrives(scene, prompt)
    assert await scene.queue.value(REFUSED) < flood // 2

    closed = flood - flood // ALLOWED

    async def all_were_refused() -> bool:
        return bool(closed == await scene.queue.waiting() == await scene.queue.value(REFUSED))

    await until(all_were_refused, seconds=200)
    await arrives(scene, prompt)
    came = [message.message_id for made in topics for message in await scene.topology.drain(made.queue)]
    assert flood // ALLOWED == len({*came}) >= len(came) - TWICE
    assert [(closed, TOPICS)] == await scene.queue.sql(ERRORS)
    assert 1 == len(relay.of("broker_up"))
    assert 0 == await relay.stop()
    await scene.queue.sql("DELETE FROM queue_message")
