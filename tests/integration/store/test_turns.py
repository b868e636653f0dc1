"""Rows that say who is at work: they go when the work has ended, and never while it lasts."""

from __future__ import annotations

import asyncio

import psycopg

from tests.support.database.queue import Queue, until

REPLAY = "SELECT count(*) FROM queue_message_replay_many(dry_run => false, job => %s)"
TURNS = "SELECT task FROM queue_message_turn ORDER BY task"
LASTING = [("fold",), ("partitions",), ("renumber",), ("replay by id",)]
TAKE = "SELECT queue_message_take_watch(%s)"


async def retain(queue: Queue) -> None:
    """Run what relays run each hour."""
    await queue.sql("SELECT * FROM queue_message_retain()")


async def test_the_row_of_a_replay_job_goes_when_the_job_has_ended(queue: Queue) -> None:
    """The rows of the other tasks stay."""
    for job in ("one", "two"):
        await queue.sql(REPLAY, job)
    assert [*LASTING, ("replay one",), ("replay two",)] == await queue.sql(TURNS)

    await retain(queue)

    assert LASTING == await queue.sql(TURNS)


async def test_the_row_of_a_replay_that_is_under_way_stays(queue: Queue) -> None:
    """A second call of the same job waits for it, as before."""
    await queue.sql(REPLAY, "job")
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute(REPLAY, ["job"])
        await retain(queue)
        assert [*LASTING, ("replay job",)] == await queue.sql(TURNS)


async def test_a_turn_whose_row_is_deleted_meanwhile_is_taken_all_the_same(queue: Queue) -> None:
    """A transaction that waits for the row adds it again, so that a third one finds it taken."""
    await queue.sql(REPLAY, "job")
    async with (
        await psycopg.AsyncConnection.connect(queue.url) as deletes,
        await psycopg.AsyncConnection.connect(queue.url) as waits,
    ):
        await deletes.execute("DELETE FROM queue_message_turn WHERE task = 'replay job'")
        waiting = asyncio.create_task(waits.execute("SELECT queue_message_take_turn('replay job', patient => true)"))
        await until(queue.is_held_up)
        await deletes.commit()
        assert (True,) == await (await waiting).fetchone()

        assert not await queue.value("SELECT EXISTS (SELECT FROM queue_message_turn WHERE task = 'replay job' FOR UPDATE SKIP LOCKED)")
        await waits.commit()
    assert [*LASTING, ("replay job",)] == await queue.sql(TURNS)


async def test_the_row_of_a_watch_goes_with_its_session_and_not_before(queue: Queue) -> None:
    """A watch that is at work keeps another with the same handlers from acting, also after a retention."""
    async with await psycopg.AsyncConnection.connect(queue.url, autocommit=True) as alive:
        async with await psycopg.AsyncConnection.connect(queue.url, autocommit=True) as ended:
            for session, handlers in ((alive, "alive"), (ended, "ended")):
                assert (True,) == await (await session.execute(TAKE, [handlers])).fetchone()
            process = ended.info.backend_pid

        async def gone() -> bool:
            return not await queue.value("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s)", process)

        await until(gone)
        await retain(queue)

        assert [("alive",)] == await queue.sql("SELECT handlers FROM queue_message_watch")
        assert not await queue.value(TAKE, "alive")
