"""Large bodies: at the limit, over it, and many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from tests.support.database.queue import until
from tests.support.faults.play import UNHURRIED
from tests.support.faults.scene import Scene
from tests.support.relays.processes import peak_memory
from tests.support.relays.scrape import HTTP, counted
from tests.support.servers.shared import Say

MIB = 1 << 20
AT_ONCE = 32
WINDOW_BYTES = 16 * MIB
COPIES = 5
"""Times that a payload may be in memory: as PostgreSQL's answer, in a buffer that doubles, as the claim that is made of it, as frames, and
in the socket's buffer."""
Sizes = dict[str, list[int]]


@asynccontextmanager
async def consumed(scene: Scene) -> AsyncIterator[Sizes]:
    """Take everything off the inbox as it comes, and keep of each delivery its id and its size."""
    came: Sizes = {}

    async def take(message: AbstractIncomingMessage) -> None:
        came.setdefault(str(message.headers["x-relay-id"]), []).append(message.body_size)
        await message.ack()

    async with await aio_pika.connect(scene.broker.url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.get_queue(scene.inbox.queue, ensure=False)
        await queue.consume(take)
        yield came


@pytest.mark.fault(22, repeats=20)
@pytest.mark.ids("A9", "C9", "C15")
async def test_a_body_over_the_limit_is_rejected_and_one_below_it_arrives(scene: Scene) -> None:
    """Bodies of 16.1 MiB end as `body_too_large`. Those of 15.9 MiB, and all messages between them, arrive once."""
    large, small = [int(15.9 * MIB), 16 * MIB, int(16.1 * MIB), 16 * MIB + 1], 100
    order = [scene.chance.choice(large) for _ in range(3)] + large
    scene.chance.shuffle(order)
    relay = await scene.start(**HTTP)
    sizes: dict[str, int] = {}
    async with scene.queue.connection.transaction():
        for size in order:
            sizes[await scene.insert_body(size)] = size
            sizes[await scene.insert_body(small)] = small
    good = {id_: [size] for id_, size in sizes.items() if size <= 16 * MIB}
    async with consumed(scene) as came:
        await scene.queue.settled()
        await until(lambda: came.keys() >= good.keys())

    assert good == came
    codes: dict[str, str] = dict(await scene.queue.sql("SELECT id::text, error_code FROM queue_message_dead"))
    assert dict.fromkeys(sizes.keys() - good.keys(), "body_too_large") == codes
    assert len(codes) == await counted(relay, len(codes), "relay_dead_total", code="body_too_large")
    assert codes.keys() >= {line["id"] for line in relay.of("message_dead")} > set()
    assert f"{len(codes)} rejected (body_too_large)" in await scene.status()


@pytest.mark.fault(22, repeats=20)
@pytest.mark.long_only
@pytest.mark.timeout(600)
@pytest.mark.ids("C9")
async def test_many_large_bodies_take_no_more_memory_than_the_window(scene: Scene, say: Say, *, long_form: bool) -> None:
    """32 bodies, up to 90 MiB (in the short form 12) where 100 MiB are allowed: memory by bytes of the window, each arrives once."""
    await scene.configure(max_body_bytes=100 * MIB, lock_seconds=UNHURRIED)
    largest = (90 if long_form else 12) * MIB
    sizes = [largest, *(scene.chance.randint(largest // 2, largest) for _ in range(AT_ONCE - 1))]
    scene.chance.shuffle(sizes)
    ids = {await scene.insert_body(size): [size] for size in sizes}
    relay = await scene.start(RELAY_WINDOW_BYTES=str(WINDOW_BYTES), **HTTP)
    rest = peak_memory(relay.pid)
    async with consumed(scene) as came:
        await scene.queue.settled(seconds=300)
        await until(lambda: came.keys() >= ids.keys())
    used = peak_memory(relay.pid) - rest
    say(f"{sum(sizes) / MIB:,.0f} MiB in bodies up to {largest / MIB:.0f}: {rest >> 20} MB at rest, {used >> 20} MB more at the peak")

    assert ids == came
    assert used <= COPIES * (WINDOW_BYTES + largest)
    assert {"success": AT_ONCE} == Counter((await scene.queue.results()).values())
    assert 0 == await relay.stop()
