"""The database's clock is set: dead relays' locks come free, living ones' stay, and retention drops nothing that is not due."""

from __future__ import annotations

import pytest

from relay.postgres.maintenance_store import PostgresMaintenance
from tests.support.database.queue import MadeStore, MakeStore, Queue

STEP = "1 h"
LANES = 64
LOCK_SECONDS = 30
SWEEP = "SELECT released, archived FROM queue_message_sweep_minute(now() + make_interval(secs => %s))"


async def set_back(queue: Queue) -> None:
    """Let everything that was written lie an hour ahead, as after the clock was set back by one."""
    await queue.sql("UPDATE queue_message SET lock_expires_at = lock_expires_at + %s::interval", STEP)
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = heartbeat_at + %s::interval", STEP)
    await queue.sql("UPDATE queue_message_clock_seen SET seen_at = seen_at + %s::interval", STEP)


async def beat(queue: Queue, store: MadeStore, seconds: float = 0) -> None:
    """A relay reports."""
    await queue.sql(
        "UPDATE queue_message_relay SET heartbeat_at = now() + make_interval(secs => %s) WHERE id = %s", seconds, store.relay_id
    )


async def sweep(queue: Queue, seconds: float = 0) -> tuple[int, int]:
    """Sweep as the minute does, so many seconds from now."""
    [swept] = await queue.sql(SWEEP, seconds)
    return swept[0], swept[1]


@pytest.mark.ids("A12")
@pytest.mark.parametrize("swept_before", [True, False])
async def test_a_dead_relays_locks_are_over_after_the_clock_was_set_back(queue: Queue, store: MadeStore, *, swept_before: bool) -> None:
    """They do not expire before a living relay had time to report again, but well before an hour has passed."""
    await queue.insert()
    await store.batch()
    if swept_before:
        assert (0, 0) == await sweep(queue)
    await set_back(queue)

    assert (0, 0) == await sweep(queue)
    assert (0, 0) == await sweep(queue, LOCK_SECONDS - 5)
    assert (1, 0) == await sweep(queue, LOCK_SECONDS + 5)


async def test_a_living_relays_locks_hold_after_the_clock_was_set_back(queue: Queue, store: MadeStore) -> None:
    """Locks that were set by hand hold too, no matter which relay held the message before."""
    by_hand, again, _ = await queue.insert(3)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 h' WHERE id = %s", by_hand)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 h', locked_by = 99 WHERE id = %s", again)
    await store.batch()
    await set_back(queue)
    assert (0, 0) == await sweep(queue)
    await beat(queue, store, LOCK_SECONDS)

    assert (0, 0) == await sweep(queue, LOCK_SECONDS + 5)


async def test_a_lock_far_ahead_holds_where_no_clock_was_set(queue: Queue, store: MadeStore) -> None:
    """Its relay may have had a longer lock time; its own time alone counts."""
    await queue.insert()
    await store.batch()
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 h'")
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '1 h'")

    assert [(0, 0), (0, 0)] == [await sweep(queue), await sweep(queue, LOCK_SECONDS + 5)]


async def test_a_dead_relays_lanes_are_taken_after_the_clock_was_set_back(queue: Queue, make_store: MakeStore) -> None:
    """Its last report lies in the future, and a living relay reports every few seconds."""
    dead, living = make_store("dead"), make_store("living")
    await dead.register()
    assert LANES == len(await dead.keep_lanes())
    await set_back(queue)
    await living.register()

    assert LANES == len(await living.keep_lanes())
    shown = await queue.sql("SELECT name, alive FROM queue_message_relay_state ORDER BY name")
    assert [("dead", False), ("living", True)] == shown


async def test_a_dead_relay_has_no_part_of_a_limit_after_the_clock_was_set_back(
    queue: Queue, make_store: MakeStore, upkeep: PostgresMaintenance
) -> None:
    """Else the living would send at a part of the rate for as long as the step."""
    dead = make_store("dead")
    await dead.register()
    assert 2 == (await upkeep.refresh_policy()).relays
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() + interval '1 h' WHERE id = %s", dead.relay_id)

    assert 1 == (await upkeep.refresh_policy()).relays


async def retained(queue: Queue, days: float) -> list[str]:
    """What retention does so many days from now."""
    statement = "SELECT action FROM queue_message_retain(now() + make_interval(secs => %s * 86400))"
    return [action for (action,) in await queue.sql(statement, days)]


async def test_retention_drops_nothing_after_the_clock_jumped_ahead(queue: Queue) -> None:
    """It drops nothing for a day. Once the clock is right again, it continues as before."""
    await queue.sql("SELECT queue_message_config_set('retention_days', '5')")
    assert [] == await retained(queue, 0)

    assert [["distrusted"], ["distrusted"], ["distrusted"]] == [await retained(queue, days) for days in (30, 30.04, 30.1)]
    assert [] == await retained(queue, 0.1)
    assert [] == await retained(queue, 0.2)


async def test_retention_believes_a_clock_that_stays_where_it_is(queue: Queue) -> None:
    """It does so after a day in which the clock was not set back. The jump then means that no relay ran before."""
    await queue.sql("SELECT queue_message_config_set('retention_days', '5')")
    assert [] == await retained(queue, 0)
    waited = [await retained(queue, 30 + hours / 24) for hours in range(0, 24, 2)]

    assert [["distrusted"]] * 12 == waited
    assert ["dropped"] == await retained(queue, 31.01)


@pytest.mark.parametrize("pause", [4, 15, 25, 24 * 7])
async def test_retention_continues_where_nothing_runs_for_hours_regularly(queue: Queue, pause: int) -> None:
    """A pause does not extend a wait: one day after the first pause what is due is dropped, after the same pause again."""
    await queue.sql("SELECT queue_message_config_set('retention_days', '5')")
    assert [] == await retained(queue, 0)
    runs = range(24 * 30, 24 * 31 + pause, pause)
    done = [await retained(queue, 0.01 + hours / 24) for hours in runs]

    assert [["distrusted"]] * (len(runs) - 1) + [["dropped"]] == done


async def test_a_clock_that_is_set_right_while_retention_waits_ends_the_wait(queue: Queue) -> None:
    """And the next jump begins another one, of a whole day."""
    await queue.sql("SELECT queue_message_config_set('retention_days', '5')")
    done = [await retained(queue, days) for days in (0, 30, 30.5, 0.1, 30.6, 31.5)]

    assert [[], ["distrusted"], ["distrusted"], [], ["distrusted"], ["distrusted"]] == done
    assert ["dropped"] == await retained(queue, 31.61)


async def test_two_retentions_at_once_do_not_wait_for_each_other(queue: Queue) -> None:
    """A retention that finds the note of the clock locked by another reads it and continues."""
    async with queue.connection.transaction():
        await queue.sql("SELECT * FROM queue_message_retain()")
        async with await queue.connection.connect(queue.url) as other:
            await other.execute("SET statement_timeout = '5s'")
            cursor = await other.execute("SELECT * FROM queue_message_retain()")
            assert [] == await cursor.fetchall()


async def test_a_sweep_in_a_transaction_that_was_opened_long_ago_takes_the_clock_for_no_earlier_one(queue: Queue) -> None:
    """A login could have locks of living relays freed by it: to the next sweep, the clock seemed to have been set back."""
    await queue.sql("BEGIN")
    await queue.sql("SELECT pg_sleep(0.3)")
    await queue.sql("SELECT queue_message_sweep_minute()")

    late = "SELECT seen_at - now() >= interval '0.3 s', moved_at FROM queue_message_clock_seen WHERE chore = 'sweep'"
    assert [(True, None)] == await queue.sql(late)
    await queue.sql("ROLLBACK")


@pytest.mark.parametrize("task", ["sweep_minute", "retain", "run_schedules", "fold"])
async def test_no_maintenance_task_goes_by_the_beginning_of_its_transaction(queue: Queue, task: str) -> None:
    """What it notes is the time of the call."""
    await queue.sql("BEGIN")
    await queue.sql("SELECT pg_sleep(0.3)")
    await queue.sql(f"SELECT queue_message_{task}()")

    assert [] == await queue.sql("SELECT chore, seen_at FROM queue_message_clock_seen WHERE seen_at = now()")
    await queue.sql("ROLLBACK")
