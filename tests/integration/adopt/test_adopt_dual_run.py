"""Two relays run side by side while applications continue to insert: in every phase, exactly one of them sends each committed row, once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import psycopg
import pytest

from tests.support.applications.other_outboxes import POLLED, OldRelay, Outbox
from tests.support.applications.outbox_writers import EACH_PHASE, Writers
from tests.support.broker.topology import Declared
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays
from tests.support.servers.shared import Drain


@pytest.fixture
async def connections() -> AsyncIterator[AsyncExitStack]:
    """Closes what it is given."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("outbox", "by"), [*((outbox, "trigger") for outbox in POLLED), (POLLED[0], "view")], ids=lambda value: getattr(value, "layout", value)
)
async def test_each_committed_row_is_sent_once_by_one_side(
    queue: Queue, relays: Relays, amqp_url: str, inbox: Declared, drain: Drain, chance: random.Random, outbox: Outbox, by: str,
    connections: AsyncExitStack,
) -> None:  # fmt: skip
    """Mirror, switch, drain, finish, back, and all over again with what waits taken over: nothing lost, nothing doubled."""
    await queue.sql(outbox.definition)
    ours = await relays.start(database=queue.url, broker=amqp_url)
    old = OldRelay(await connections.enter_async_context(await psycopg.AsyncConnection.connect(queue.url, autocommit=True)), outbox)
    writers = Writers(queue.url, outbox, inbox, chance)
    ended = asyncio.Event()

    async def adopt(*words: str) -> str:
        return await relays.command("adopt", *words, database=queue.url)

    async with asyncio.TaskGroup() as group:
        group.create_task(old.run(ended))
        writing = group.create_task(writers.run())
        await writers.more()
        await adopt("mirror", outbox.layout, outbox.table, "--by", by, *outbox.options(inbox.exchange))
        await writers.more()
        assert 0 == await queue.value("SELECT count(*) FROM queue_message_archive")
        await adopt("switch", outbox.table)
        await writers.more()
        await old_is_done(queue, outbox)
        for step in ("finish", "back"):
            await adopt(step, outbox.table)
            await writers.more()
        await adopt("mirror", outbox.layout, outbox.table, "--by", by, *outbox.options(inbox.exchange))
        for step in ("switch", "take"):
            await adopt(step, outbox.table)
            await writers.more()
        writers.stop()
        await writing
        ended.set()
    await queue.settled()
    await ours.stop()

    sent = [str(message.message_id) for message in await drain(inbox.queue)]
    assert min(len(sent), len(old.published)) > 2 * EACH_PHASE
    assert Counter(writers.committed) == Counter(sent) + Counter(old.published)


async def old_is_done(queue: Queue, outbox: Outbox) -> None:
    """Wait until the old relay has nothing left."""
    kept = await queue.value("SELECT kept FROM queue_message_adoption")
    await until(lambda: nothing_open(queue, kept, outbox))


async def nothing_open(queue: Queue, kept: str, outbox: Outbox) -> bool:
    """No row waits or is claimed."""
    return bool(await queue.value(f"SELECT count(*) = 0 FROM {kept} WHERE {outbox.open}"))


@pytest.mark.parametrize("by", ["trigger", "view"])
async def test_a_switch_that_is_killed_while_it_waits_changes_nothing(queue: Queue, relays: Relays, by: str) -> None:
    """The application whose lock it waited for commits to the old relay, and so does everybody after."""
    outbox = POLLED[0]
    await queue.sql(outbox.definition)
    await relays.command("adopt", "mirror", outbox.layout, outbox.table, "--by", by, database=queue.url)
    async with await psycopg.AsyncConnection.connect(queue.url) as writer:
        await writer.execute(outbox.insert.encode(), outbox.row("e", "k"))
        process = await relays.start(database=queue.url, broker="", ready=False, command=("adopt", "switch", outbox.table))
        await until(lambda: queue.is_held_up("outbox-relay console"))
        await process.kill()
    # Its session may get the lock yet; what it then does is never committed.
    await until(lambda: no_session(queue))
    await queue.connection.execute(outbox.insert.encode(), outbox.row("e", "k"))

    assert ("mirror", 2, 0) == (
        await queue.value("SELECT phase FROM queue_message_adoption"),
        await queue.value(f"SELECT count(*) FROM {outbox.table}"),
        await queue.waiting(),
    )


async def no_session(queue: Queue) -> bool:
    """No command has a session."""
    consoles = "datname = current_database() AND application_name = 'outbox-relay console'"
    return bool(await queue.value(f"SELECT count(*) = 0 FROM pg_stat_activity WHERE {consoles}"))
