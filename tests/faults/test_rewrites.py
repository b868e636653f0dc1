"""The queue's table rewritten, altered or locked under load, and many messages taken back while an old snapshot is held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from relay import devservers
from relay.errors import LocalServerError
from tests.faults.repack import Repack
from tests.support.database.queue import unchecked, until
from tests.support.faults.play import SMALL, WINDOW, play, producing
from tests.support.faults.scene import LOCK_SECONDS, Scene
from tests.support.relays.processes import Line, RelayProcess, seconds_between
from tests.support.servers.shared import Say

REWRITES = (
    "VACUUM FULL queue_message",
    "CLUSTER queue_message USING queue_message_pkey",
    "REINDEX TABLE queue_message",
    "REINDEX TABLE CONCURRENTLY queue_message",
    "ALTER TABLE queue_message ADD COLUMN note text DEFAULT gen_random_uuid()::text",
    "ALTER TABLE queue_message DROP COLUMN note",
    "VACUUM FULL queue_message_archive",
)
LOCK = "LOCK TABLE queue_message IN ACCESS EXCLUSIVE MODE"
RESUMES = 10.0
"""Seconds after the end of a lock until something is delivered again, on any machine."""
TAKEN_BACK = 50_000
CANCEL = b"SELECT count(*) FILTER (WHERE queue_message_cancel(id)) FROM queue_message WHERE exchange = 'nowhere'"
PROMPT = 5.0
"""Seconds from a commit to its delivery that are prompt, on any machine."""


def misreports(relay: RelayProcess, *, expired: bool = False) -> list[Line]:
    """Failures not reported as a wait for a lock or, where locks expired and the sweep meets their settle, for rows."""
    told = relay.of("database_down") + relay.of("maintenance_failed") + relay.of("settle_failed")
    true = ("Another session holds a lock", *(["Another session holds these rows"] if expired else []))
    return [line for line in told if not line["error"].startswith(true)]


@asynccontextmanager
async def autocommitting(scene: Scene) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A session of an operator's, whose statements are transactions."""
    async with await psycopg.AsyncConnection.connect(scene.queue.url, autocommit=True) as connection:
        yield connection


@pytest.mark.fault(26, repeats=20)
@pytest.mark.ids("C9")
async def test_tables_that_are_rewritten_under_load_lose_and_double_nothing(scene: Scene) -> None:
    """The rewrites are VACUUM FULL, CLUSTER, REINDEX and ALTER TABLE; statements that waited for the lock continue, even prepared ones."""
    relay = await scene.start(**SMALL)

    async def fault() -> None:
        async with autocommitting(scene) as operator:
            for statement in REWRITES:
                before = await scene.queue.value("SELECT count(*) FROM queue_message_archive")
                await operator.execute(statement.encode())

                async def goes_on(before: int = before) -> bool:
                    return bool(await scene.queue.value("SELECT count(*) > %s + 50 FROM queue_message_archive", before))

                await until(goes_on)

    await play(scene, fault, relay)
    assert 0 == (await scene.check(relay)).duplicates
    assert [] == misreports(relay)


@pytest.mark.fault(26, repeats=20)
@pytest.mark.ids("C9")
async def test_pg_repack_under_load_loses_and_doubles_nothing(scene: Scene, own_postgres: devservers.Postgres, say: Say) -> None:
    """It copies the rows, replays from its log what changed meanwhile, and puts the new file in the table's place."""
    try:
        repack = Repack(own_postgres, say)
    except LocalServerError as error:
        pytest.skip(f"pg_repack is not to be had here: {error}")
    await repack.install(scene.queue)
    await scene.queue.insert(2000, exchange="later", available_at="2999-01-01T00:00:00Z")
    relay = await scene.start(**SMALL)
    file = "SELECT pg_relation_filenode('queue_message')"

    async def fault() -> None:
        before = await scene.queue.value(file)
        await repack.run(scene.queue.url, "public.queue_message")
        assert before != await scene.queue.value(file)

    await play(scene, fault, relay)
    assert 2000 == await scene.queue.value("SELECT count(queue_message_cancel(id)) FROM queue_message WHERE exchange = 'later'")
    async with unchecked(scene.queue):
        await scene.queue.sql("DELETE FROM queue_message_archive WHERE exchange = 'later'")
    assert 0 == (await scene.check(relay)).duplicates
    assert [] == misreports(relay)


@pytest.mark.fault(26, repeats=20)
@pytest.mark.parametrize("seconds", [LOCK_SECONDS / 3, 2.0 * LOCK_SECONDS])
@pytest.mark.ids("C9")
async def test_a_locked_queue_is_waited_for_and_goes_on_within_seconds(scene: Scene, seconds: float) -> None:
    """Nothing is lost; what was in flight is doubled at most where it is locked for longer than a message's lock lasts."""
    relay = await scene.start(**SMALL)

    async def fault() -> None:
        async with autocommitting(scene) as operator, operator.transaction():
            await operator.execute(LOCK.encode())
            if seconds > LOCK_SECONDS:
                scene.producer.fault(WINDOW)
            await asyncio.sleep(seconds)  # the length of the fault
        archived = "SELECT max(archived_at) > %s FROM queue_message_archive"
        ended = await scene.queue.value("SELECT now()")

        async def goes_on() -> bool:
            return bool(await scene.queue.value(archived, ended))

        await until(goes_on, RESUMES)

    await play(scene, fault, relay)
    report = await scene.check(relay, timed=False)
    assert report.duplicates <= (WINDOW if seconds > LOCK_SECONDS else 0)
    assert [] == misreports(relay, expired=seconds > LOCK_SECONDS)
    if downs := relay.of("database_down"):
        assert seconds_between(downs[0], relay.of("database_up")[-1]) < seconds + RESUMES


@pytest.mark.fault(18, repeats=3)
async def test_many_cancels_under_an_old_snapshot_delay_no_new_message(scene: Scene) -> None:
    """Vacuum cannot remove the cancelled messages, and no claim scans them."""
    relay = await scene.start()
    async with await psycopg.AsyncConnection.connect(scene.queue.url) as holder, autocommitting(scene) as operator:
        await holder.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await holder.execute("SELECT count(*) FROM queue_message")
        await operator.execute(
            "INSERT INTO queue_message (exchange, routing_key, available_at) SELECT 'nowhere', 'x', now() + interval '1 day' "
            "FROM generate_series(1, %s)", [TAKEN_BACK]
        )  # fmt: skip
        async with producing(scene):
            cancelled = await operator.execute(CANCEL)
            assert (TAKEN_BACK,) == await cancelled.fetchone()
        await scene.queue.settled()
        for _ in range(20):
            await scene.producer.insert(100)
            await scene.queue.settled(seconds=PROMPT)
        slowest = "SELECT max(extract(epoch FROM archived_at - created_at))::float8 FROM queue_message_archive WHERE exchange = %s"
        assert PROMPT > await scene.queue.value(slowest, scene.inbox.exchange)
    async with unchecked(scene.queue):
        await scene.queue.sql("DELETE FROM queue_message_archive WHERE exchange = 'nowhere'")
    assert 0 == (await scene.check(relay)).duplicates
