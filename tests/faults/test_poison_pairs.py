"""Poison of every kind, combined by a table: each row ends as the page says, and nothing else suffers from it.

The dimensions, each with its values in `tests/support/poison`, its `lab.py` or its `rows.py`:

- limit: of the login, the vhost, the connection, the relay's sizes and list, an exchange that is paused or sent at a rate (`WORLDS`);
- permission: an exchange, or a routing key of a topic exchange, that the login may not write to (`write`, `key`, `barred`);
- queue: every kind of queue and of link between brokers (`KINDS`); exchange: every type, and those that take nothing (`EXCHANGES`);
- option, column and header: the catalogue of malformed messages and more (`OPTIONS`, `COLUMNS`, `HEADERS` and `SHAPES`);
- key: under which a row is inserted, if any (`KEYS`).

An MQTT and a STOMP subscriber of each world see all that goes to a queue through an exchange, and must stay connected
(`tests/support/poison/subscribers.py`). Meanwhile memory and disk alarms come and go. CI draws every pair of values of any two dimensions.
The long form also draws all combinations of option, queue, permission and limit. It also plays the pairs on a node that has few channels
for all relays.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import psycopg
import pytest

from relay import devservers
from tests.support.database.queue import Queue
from tests.support.poison import lab as poison_lab
from tests.support.poison.arrivals import watching
from tests.support.poison.lab import PER_SECOND, WORLDS, Ports, alarms
from tests.support.poison.play import ATTEMPT, Play
from tests.support.poison.rows import ATTEMPTS, CROSSED, Row, draw
from tests.support.relays.processes import Relays
from tests.support.servers.private import version_of
from tests.support.servers.shared import Databases, Say

CHUNK = 60
"""Rows that are inserted together."""
AHEAD = 4
"""Chunks of which the good rows are waited for at the same time: a fold takes some seconds."""
MANY = 30
"""Mistakes that are shown."""
FEW = 5
"""How often a relay may connect where the broker closes connections over a limit that it does not announce; elsewhere it is once."""
CHANNELS = "length(rabbit_channel:list())"
KNOWN_SINCE = (3, 12, 13)
"""The first RabbitMQ that limits the channels of a node."""
QUEUES = """
    lists:sort([{rabbit_misc:rs(amqqueue:get_name(Q)), amqqueue:get_pid(Q), case amqqueue:get_type(Q) of
        rabbit_stream_queue -> stream;
        _ -> element(2, rabbit_amqqueue:stat(Q))
    end} || Q <- rabbit_amqqueue:list()]).
"""
"""Each queue's process, and how many messages it has for a consumer; a stream keeps them."""


@pytest.fixture(scope="module")
def ports() -> Ports:
    """Where subscribers connect."""
    return Ports(*devservers.free_ports(2))


@pytest.fixture(scope="module")
def node(say: Say, ports: Ports) -> Iterator[devservers.RabbitMQ]:
    """A private node with all worlds."""
    with devservers.rabbitmq(say=say, private=True, plugins=poison_lab.PLUGINS, config=poison_lab.config(ports)) as made:
        poison_lab.build(made)
        yield made


@pytest.fixture
async def plays(node: devservers.RabbitMQ, ports: Ports, relays: Relays, databases: Databases) -> AsyncIterator[list[Play]]:
    """Each world with a database, a relay and consumers."""
    names = [databases.create_migrated() for _ in WORLDS]
    async with AsyncExitStack() as stack:
        made = [playing(world, node, ports, databases.url(name)) for world, name in zip(WORLDS, names, strict=True)]
        plays = await asyncio.gather(*map(stack.enter_async_context, made))
        # What the node grants at a login holds for all that log in then.
        await asyncio.gather(*(start(play, node, relays) for play in plays if play.world.channel_max))
        await asyncio.gather(*(start(play, node, relays) for play in plays if not play.world.channel_max))
        yield plays
    for name in names:
        databases.drop(name)


@asynccontextmanager
async def playing(name: str, node: devservers.RabbitMQ, ports: Ports, url: str) -> AsyncIterator[Play]:
    """One world without its relay."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection, watching(node, ports, name) as arrivals:
        queue = Queue(url, connection)
        await configure(queue, name)
        yield Play(name, queue, arrivals)


async def configure(queue: Queue, name: str) -> None:
    """Set a world's policy."""
    world = WORLDS[name]
    await queue.sql(ATTEMPT)
    policy = {"max_attempts": ATTEMPTS, "backoff_base": 0.1, **({"max_body_bytes": world.most_bytes} if world.most_bytes else {})}
    for each, value in policy.items():
        await queue.sql("SELECT queue_message_config_set(%s, %s)", each, str(value))
    if world.paused:
        await queue.sql("SELECT queue_message_pause(%s)", world.paused)
    if world.limited:
        await queue.sql("SELECT queue_message_limit(%s, %s)", world.limited, PER_SECOND)


async def start(play: Play, node: devservers.RabbitMQ, relays: Relays) -> None:
    """Start a world's relay with the login of the same name."""
    broker = node.url.replace("guest:guest", f"{play.name}:secret") + play.name
    before = await asyncio.to_thread(grant, node, play.world.channel_max) if play.world.channel_max else ""
    play.relay = await relays.start(play.name, database=play.queue.url, broker=broker, settings=play.world.relay)
    if before:
        await asyncio.to_thread(grant, node, before)


def grant(node: devservers.RabbitMQ, channels: object) -> str:
    """Set how many channels the node grants a connection; return how many it granted before."""
    return node.ctl(
        "eval", f"{{ok, N}} = application:get_env(rabbit, channel_max), application:set_env(rabbit, channel_max, {channels}), N."
    )


@pytest.mark.fault(13, repeats=5)
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.ids("A9", "A10", "C3", "C9", "C15", "D6")
async def test_every_pair_ends_as_the_page_says_and_harms_nothing(
    node: devservers.RabbitMQ, plays: list[Play], chance: random.Random
) -> None:
    """Each row is refused, dead with its code or delivered unchanged; good rows next to it arrive, once and soon, and every queue lives."""
    await send(node, plays, draw(chance), chance)
    assert [] == [play.name for play in plays if play.connections > (FEW if play.name == "max-channels" else 1)]


@pytest.mark.fault(13, repeats=1)
@pytest.mark.long_only
@pytest.mark.slow
@pytest.mark.timeout(7200)
async def test_every_option_queue_permission_and_limit_end_so_together(
    node: devservers.RabbitMQ, plays: list[Play], chance: random.Random
) -> None:
    """The same of all combinations of these four."""
    await send(node, plays, draw(chance, CROSSED), chance)
    assert [] == [play.name for play in plays if play.connections > (FEW if play.name == "max-channels" else 1)]


@pytest.mark.fault(13, repeats=1)
@pytest.mark.long_only
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_every_pair_ends_so_where_the_node_has_few_channels(
    node: devservers.RabbitMQ, plays: list[Play], chance: random.Random
) -> None:
    """The same where all relays share fewer channels than they have exchanges: a limit that ends connections and is not announced."""
    if version_of(node) < KNOWN_SINCE:
        pytest.skip("this RabbitMQ does not limit the channels of a node")
    few = f"application:set_env(rabbit, channel_max_per_node, {CHANNELS} + {2 * len(plays)})."
    await asyncio.to_thread(node.ctl, "eval", few)
    try:
        await send(node, plays, draw(chance), chance)
    finally:
        await asyncio.to_thread(node.ctl, "eval", "application:set_env(rabbit, channel_max_per_node, infinity).")
    assert max(play.connections for play in plays) > 1


async def send(node: devservers.RabbitMQ, plays: list[Play], drawn: Iterable[Row], chance: random.Random) -> None:
    """Send rows through their worlds, under alarms that come and go, and judge all of it."""
    rows = [*drawn]
    chance.shuffle(rows)
    before = await queues(node)
    async with alarms(node), asyncio.TaskGroup() as group:
        for play in plays:
            group.create_task(send_all(play, [row for row in rows if row.world == play.name]))
    mistakes = [each for play in plays for each in await play.mistakes()]
    assert not mistakes, f"{len(mistakes)} mistakes:\n" + "\n".join(mistakes[:MANY])
    assert before == await queues(node)
    assert [] == [play.name for play in plays if not play.relay.of("broker_blocked")]


async def queues(node: devservers.RabbitMQ) -> set[str]:
    """Processes and contents of all queues."""
    return {*re.split(r"[\],\s]+(?={\"queue|$)", await asyncio.to_thread(node.ctl, "eval", QUEUES))}


async def send_all(play: Play, rows: list[Row]) -> None:
    """Send a world's rows, some at a time."""
    ahead = asyncio.Semaphore(AHEAD)

    async def put(some: list[Row]) -> None:
        async with ahead:
            await play.put(some)

    async with asyncio.TaskGroup() as group:
        for number in range(0, len(rows), CHUNK):
            group.create_task(put(rows[number : number + CHUNK]))
    await play.end()
    assert 0 == await play.relay.stop()
