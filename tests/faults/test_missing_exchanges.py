"""Thousands of exchanges that take nothing, each with a message: what goes to other exchanges goes out as if they were not there."""

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

ROUNDS = 3
"""Messages to each exchange that is there, one after another, while the missing ones are tried."""
FLOOD = """
    INSERT INTO queue_message (exchange, routing_key, options)
    SELECT %s || '.missing.' || n, 'key', '{"mandatory": false}' FROM generate_series(1, %s) AS n
"""
TRIED = "SELECT count(*) FROM queue_message WHERE attempts > 0"
FEW = 4
"""At most one in so many of the missing exchanges may be tried before the message behind them goes out, on any machine."""


@pytest.fixture
def missing(*, long_form: bool) -> int:
    """Exchanges that take nothing: more than the window holds, in the long form many times as many."""
    return 20_000 if long_form else 8000


@pytest.fixture
def prompt(*, long_form: bool) -> float:
    """Seconds that a message may take: as promised in the long form on a machine that has time."""
    return 2.0 if long_form and HAD_TIME else 15.0


@pytest.fixture
def broker_url(own_broker: devservers.RabbitMQ, unique: str, *, refusal: str) -> Iterator[str]:
    """As a user who may write everywhere, or not to what is missing."""
    if refusal == "missing":
        yield own_broker.url
        return
    with user_of(own_broker, unique, may_write=r"^(?!.*\.missing\.).*") as url:
        yield url


async def arrives(scene: Scene, made: Declared, seconds: float, *flood: object) -> None:
    """Send a message, if need be behind a flood of the same transaction; it comes within that time."""
    before = await scene.topology.waiting(made.queue)
    async with scene.queue.connection.transaction():
        if flood:
            await scene.queue.sql(FLOOD, *flood)
        await scene.queue.insert(1, exchange=made.exchange, routing_key=made.routing_key)
    began = time.monotonic()
    await until(lambda: scene.topology.has(made.queue, before + 1), seconds=seconds)
    assert time.monotonic() - began < seconds


@pytest.mark.fault(13, repeats=5)
@pytest.mark.ids("A10", "C9", "C15")
@pytest.mark.parametrize("refusal", ["missing", "forbidden"])
async def test_thousands_of_missing_exchanges_delay_no_message_of_another(
    scene: Scene, unique: str, broker_url: str, missing: int, prompt: float
) -> None:
    """A known exchange has its messages behind them and while they are tried, and so has a new one; each of them is tried."""
    relay = await scene.start(broker=broker_url)
    await arrives(scene, scene.inbox, 30)
    await arrives(scene, scene.inbox, prompt, unique, missing)
    assert await scene.queue.value(TRIED) < missing // FEW
    for number in range(ROUNDS):
        await arrives(scene, scene.inbox, prompt)
        new = await scene.topology.declare(f"{unique}.new.{number}", f"{unique}.new.{number}")
        scene.others.append(new.queue)
        await arrives(scene, new, prompt)

    async def all_were_tried() -> bool:
        return bool(missing == await scene.queue.waiting() == await scene.queue.value(TRIED))

    await until(all_were_tried, seconds=200)
    await arrives(scene, scene.inbox, prompt)
    assert 1 == len(relay.of("broker_up"))
    assert 0 == await relay.stop()
    await scene.queue.sql("DELETE FROM queue_message")


@pytest.mark.fault(13, repeats=5)
@pytest.mark.ids("A10", "C9", "C15")
@pytest.mark.parametrize("refusal", ["missing"])
async def test_a_relay_that_starts_behind_missing_exchanges_soon_knows_the_others(
    scene: Scene, unique: str, broker_url: str, missing: int, prompt: float
) -> None:
    """It has yet to learn which are there: by a new message of one, behind which all that waits for it goes."""
    await scene.queue.sql(FLOOD, unique, missing)
    await scene.queue.insert(5, exchange=scene.inbox.exchange, routing_key=scene.inbox.routing_key)
    relay = await scene.start(broker=broker_url)
    await until(lambda: scene.queue.value("SELECT count(*) > 0 FROM queue_message WHERE last_error IS NOT NULL"))

    await scene.queue.insert(1, exchange=scene.inbox.exchange, routing_key=scene.inbox.routing_key)
    before = await scene.queue.value(TRIED)
    began = time.monotonic()
    await until(lambda: scene.topology.has(scene.inbox.queue, 6), seconds=prompt)

    assert time.monotonic() - began < prompt
    assert await scene.queue.value(TRIED) - before < missing // (2 * FEW)
    assert 0 == await relay.stop()
    await scene.queue.sql("DELETE FROM queue_message")
