"""What retention drops alongside an export, and that no settle waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg import errors

from relay.message import Archive, Result
from relay.ports import SettleRow
from relay.postgres.maintenance_store import PostgresMaintenance
from tests.support.database.queue import MakeStore, Queue
from tests.support.servers.logins import login

SETTLE = """INSERT INTO queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts, result,
        archived_at)
    VALUES (pg_current_xact_id(), %s, gen_random_uuid(), 'e', '', '{}', '{}', now(), 1, %s, coalesce(%s::timestamptz, now()))"""
SETTLE_MANY = """INSERT INTO queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts, result,
        archived_at)
    SELECT pg_current_xact_id(), n, gen_random_uuid(), 'e', '', '{}', '{}', now(), 1, 'failed', now() - interval '2 days'
    FROM generate_series(1, %s) n"""
RETAIN = "SELECT action, messages FROM queue_message_retain(now() + make_interval(days => 1)) WHERE target = %s"
SEEN = "INSERT INTO queue_message_export_position (exported_xid, lake, epoch, seen_at) VALUES ('0', 'a lake', 1, clock_timestamp())"
VERIFY = """INSERT INTO queue_message_export (partition, rows, checksum, exported_xid, verified_at, lake)
    SELECT %s, %s, 0, pg_snapshot_xmin(pg_current_snapshot()), now(), 'a lake'
    ON CONFLICT (partition) DO UPDATE SET rows = excluded.rows, exported_xid = excluded.exported_xid, verified_at = now()"""
LIMIT = 0.2
"""Seconds that a lock is waited for."""
SLACK = 0.4
"""Seconds that a machine with other work may add."""


@pytest.fixture
async def yesterday(queue: Queue) -> str:
    """The day before this one, with three messages, past its retention tomorrow, of a registered export whose lake was just seen."""
    await queue.sql(SEEN)
    await queue.sql("SELECT queue_message_config_set('export_registered', 'true'), queue_message_config_set('retention_days', '1')")
    for seq in range(3):
        await archive(queue, seq)
    return str(await queue.value("SELECT 'queue_message_archive_' || to_char((now() AT TIME ZONE 'UTC')::date - 1, 'YYYYMMDD')"))


async def archive(queue: Queue, seq: int, result: str = "success") -> None:
    """Archive a message as of the day before."""
    await queue.sql(SETTLE, seq, result, await queue.value("SELECT (now() - interval '1 day')::text"))


@asynccontextmanager
async def transaction(queue: Queue, statement: str, *values: object) -> AsyncIterator[psycopg.AsyncConnection[object]]:
    """Another session in the middle of its transaction; it commits in the end."""
    async with await psycopg.AsyncConnection.connect(queue.url) as connection:
        await connection.execute(statement.encode(), values or None)
        yield connection


async def test_only_what_is_verified_whole_is_dropped(queue: Queue, yesterday: str) -> None:
    """Not without a verification, not with another count, not with one that covers no transaction; then it is."""
    assert [("unverified", None)] == await queue.sql(RETAIN, yesterday)
    await queue.sql(VERIFY, yesterday, 4)
    assert [("unverified", 3)] == await queue.sql(RETAIN, yesterday)
    await queue.sql(VERIFY, yesterday, 3)
    await queue.sql("UPDATE queue_message_export SET exported_xid = NULL")
    assert [("unverified", None)] == await queue.sql(RETAIN, yesterday)
    await queue.sql(VERIFY, yesterday, 3)
    assert [("dropped", 3)] == await queue.sql(RETAIN, yesterday)


@pytest.mark.parametrize(
    "unseen",
    [
        "seen_at = NULL",
        "seen_at = clock_timestamp() - interval '26 hours'",
        "seen_at = clock_timestamp() + interval '1 minute'",
        "problem = 'the lake is gone'",
        None,
    ],
)
async def test_nothing_is_dropped_while_the_lake_was_not_seen_lately(queue: Queue, yesterday: str, unseen: str | None) -> None:
    """Never, too long ago, in the future of a clock that was set back, not where it should be, or no lake; until it is seen again."""
    await archive(queue, 10, "failed")
    await queue.sql(VERIFY, yesterday, 3)
    await queue.sql(VERIFY, "queue_message_dead", 1)
    await queue.sql(f"UPDATE queue_message_export_position SET {unseen}" if unseen else "DELETE FROM queue_message_export_position")

    assert [("unseen", None)] == await queue.sql(RETAIN, yesterday)
    assert 0 == await queue.value("SELECT queue_message_delete_dead(now(), true)")
    await queue.sql("DELETE FROM queue_message_export_position")
    await queue.sql(SEEN)
    assert 1 == await queue.value("SELECT queue_message_delete_dead(now(), true)")
    assert [("dropped", 3)] == await queue.sql(RETAIN, yesterday)


async def test_how_long_a_look_at_the_lake_counts_is_a_setting(queue: Queue, yesterday: str) -> None:
    """In whole hours."""
    await queue.sql(VERIFY, yesterday, 3)
    await queue.sql("UPDATE queue_message_export_position SET seen_at = clock_timestamp() - interval '2 hours'")
    await queue.sql("SELECT queue_message_config_set('lake_seen_hours', '2')")
    assert [("unseen", None)] == await queue.sql(RETAIN, yesterday)
    await queue.sql("SELECT queue_message_config_set('lake_seen_hours', '3')")
    assert [("dropped", 3)] == await queue.sql(RETAIN, yesterday)


async def test_what_another_lake_holds_or_this_one_has_lost_is_kept(queue: Queue, yesterday: str) -> None:
    """The day that was compared with another lake, or whose files are damaged; and dead messages while any file is, which may hold them."""
    await archive(queue, 10, "failed")
    await queue.sql(VERIFY, yesterday, 3)
    await queue.sql(VERIFY, "queue_message_dead", 1)
    for spoilt, mended in (("lake = 'another'", "lake = 'a lake'"), ("damage = 'a file is missing'", "damage = NULL")):
        await queue.sql(f"UPDATE queue_message_export SET {spoilt}")
        assert [("unverified", None)] == await queue.sql(RETAIN, yesterday)
        assert 0 == await queue.value("SELECT queue_message_delete_dead(now(), true)")
        await queue.sql(f"UPDATE queue_message_export SET {mended}")
    await queue.sql("INSERT INTO queue_message_export (partition, rows, damage) VALUES ('queue_message_archive_20200101', 0, 'lost')")
    assert 0 == await queue.value("SELECT queue_message_delete_dead(now(), true)")
    assert [("dropped", 3)] == await queue.sql(RETAIN, yesterday)


async def test_damage_is_told_to_the_servers_log_and_counted(queue: Queue) -> None:
    """Also of a day that PostgreSQL has dropped."""
    heard: list[str | None] = []
    queue.connection.add_notice_handler(lambda notice: heard.append(f"{notice.severity} {notice.message_primary}"))
    await queue.sql("INSERT INTO queue_message_export (partition, rows, damage) VALUES ('queue_message_archive_20200101', 0, E'a\nb')")

    assert ["WARNING archive partition queue_message_archive_20200101 in public is damaged in the lake: a b"] == heard
    assert 1 == await queue.value("SELECT export_differing_partitions FROM queue_message_status")


async def test_a_message_after_the_verification_keeps_its_day(queue: Queue, yesterday: str) -> None:
    """Also where the count is what was verified; what was said of the day is taken back until it is compared again."""
    await queue.sql(VERIFY, yesterday, 4)
    await archive(queue, 3)

    assert [("unverified", None)] == await queue.sql(RETAIN, yesterday)
    assert [(None,)] == await queue.sql("SELECT verified_at FROM queue_message_export")
    await queue.sql(VERIFY, yesterday, 4)
    assert [("dropped", 4)] == await queue.sql(RETAIN, yesterday)


async def test_a_message_that_is_being_archived_keeps_its_day(queue: Queue, yesterday: str) -> None:
    """A writer that has not committed yet makes the day busy, and then the day is not what was verified."""
    await queue.sql(VERIFY, yesterday, 3)
    late = await queue.value("SELECT (now() - interval '1 day')::text")
    async with transaction(queue, SETTLE, 3, "success", late):
        assert [("busy", None)] == await queue.sql(RETAIN, yesterday)

    assert [("unverified", None)] == await queue.sql(RETAIN, yesterday)


async def test_a_verification_of_the_same_moment_is_waited_for_or_left(queue: Queue, yesterday: str) -> None:
    """While another verification is written the day is busy, and then that one counts."""
    await queue.sql(VERIFY, yesterday, 3)
    async with transaction(queue, "UPDATE queue_message_export SET verified_at = NULL"):
        assert [("busy", None)] == await queue.sql(RETAIN, yesterday)

    assert [("unverified", None)] == await queue.sql(RETAIN, yesterday)


async def test_a_transaction_that_sees_the_past_drops_nothing(queue: Queue, yesterday: str) -> None:
    """Under REPEATABLE READ a message that was archived since would be dropped unseen."""
    await queue.sql(VERIFY, yesterday, 3)
    await queue.sql("SET default_transaction_isolation = 'repeatable read'")
    with pytest.raises(errors.ActiveSqlTransaction, match="READ COMMITTED"):
        await queue.sql(RETAIN, yesterday)


async def test_a_transaction_that_sees_the_past_deletes_no_dead_message(queue: Queue) -> None:
    """Under REPEATABLE READ it would not see that the lake has been found damaged since."""
    await queue.sql("SELECT queue_message_config_set('export_registered', 'true')")
    await queue.sql("SET default_transaction_isolation = 'repeatable read'")
    with pytest.raises(errors.ActiveSqlTransaction, match="READ COMMITTED"):
        await queue.sql("SELECT * FROM queue_message_retain()")


async def test_two_retentions_at_once_do_not_stand_in_each_others_way(queue: Queue, yesterday: str) -> None:
    """The second finds the day busy at once and leaves it to the first."""
    await queue.sql(VERIFY, yesterday, 3)
    async with transaction(queue, f"LOCK TABLE {yesterday} IN SHARE ROW EXCLUSIVE MODE"):
        assert [("busy", None)] == await queue.sql(RETAIN, yesterday)

    assert [("dropped", 3)] == await queue.sql(RETAIN, yesterday)


@pytest.mark.parametrize("table", ["{day}", "queue_message_archive"])
async def test_no_settle_waits_for_a_reader(queue: Queue, yesterday: str, make_store: MakeStore, table: str) -> None:
    """During a long read of the day, retention is tried again and again. Settles continue as if it were not."""
    await queue.sql(VERIFY, yesterday, 3)
    done = asyncio.Event()
    async with transaction(queue, f"SELECT count(*) FROM {table.format(day=yesterday)}"):
        settling = asyncio.create_task(_settle_until(done, queue.url, make_store))
        tried = [await queue.sql(RETAIN, yesterday) for _ in range(10)]
        done.set()
        slowest = await settling

    assert [[("busy", None)]] * 10 == tried
    assert slowest < LIMIT + SLACK
    assert [("dropped", 3)] == await queue.sql(RETAIN, yesterday)


async def test_a_settle_waits_no_longer_than_the_lock_is_waited_for(queue: Queue, yesterday: str, make_store: MakeStore) -> None:
    """Where a long transaction holds the table of all days, DROP waits for it, settles wait for DROP, and DROP gives up."""
    await queue.sql(VERIFY, yesterday, 3)
    done = asyncio.Event()
    async with transaction(queue, SETTLE, 9, "success", None):
        settling = asyncio.create_task(_settle_until(done, queue.url, make_store))
        tried = [await queue.sql(RETAIN, yesterday) for _ in range(10)]
        done.set()
        slowest = await settling

    assert [[("busy", None)]] * 10 == tried
    assert slowest < LIMIT + SLACK


async def _settle_until(done: asyncio.Event, url: str, make_store: MakeStore) -> float:
    """Enqueue, claim and settle one message after the other by the relay's own statements; return the seconds of the slowest settle."""
    store, slowest = make_store(url=url), 0.0
    await store.register()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as app:
        while not done.is_set():
            await app.execute("INSERT INTO queue_message (exchange) VALUES ('e')")
            batch = await store.batch()
            begin = time.monotonic()
            rows = [SettleRow(claim, Archive(Result.SUCCESS), None, None) for claim in batch.claims]
            assert [] == await store.archive(batch, rows, again=False)
            slowest = max(slowest, time.monotonic() - begin)
    return slowest


async def test_dead_messages_go_below_the_verified_transaction_only(queue: Queue, yesterday: str) -> None:
    """What is dead and old stays until it was verified, and again when a comparison finds a difference."""
    await archive(queue, 10, "failed")
    await queue.sql(VERIFY, "queue_message_dead", 1)
    await archive(queue, 11, "failed")
    delete = "SELECT queue_message_delete_dead(now(), true)"

    await queue.sql("UPDATE queue_message_export SET verified_at = NULL, difference = 'x'")
    assert 0 == await queue.value(delete)
    await queue.sql("UPDATE queue_message_export SET verified_at = now(), difference = NULL")
    assert 1 == await queue.value(delete)
    assert [(11,)] == await queue.sql("SELECT seq FROM queue_message_dead")


@pytest.mark.parametrize(("mark", "came", "gone"), [("here", "before", 1), ("here", "after", 0), ("of another cluster", "before", 0)])
async def test_dead_messages_of_another_cluster_go_if_they_were_here_when_the_lake_was_verified(
    queue: Queue, yesterday: str, mark: str, came: str, gone: int
) -> None:
    """Their ids are above every mark, so the transaction that brought them tells; a mark that came with a dump tells nothing."""
    await queue.sql("SELECT queue_message_config_set('export_registered', 'true')")
    foreign = SETTLE.replace("archived_at)", "archived_at, archived_xid)").replace("now()))", "now()), '9000000000000')")
    if came == "after":
        await queue.sql(VERIFY, "queue_message_dead", 1)
    await queue.sql(foreign, 10, "failed", await queue.value("SELECT (now() - interval '1 day')::text"))
    if came == "before":
        await queue.sql(VERIFY, "queue_message_dead", 1)
    if mark == "of another cluster":
        await queue.sql("UPDATE queue_message_export SET exported_xid = '8000000000000'")

    assert gone == await queue.value("SELECT queue_message_delete_dead(now(), true)")


async def test_a_difference_is_told_to_the_servers_log(queue: Queue, yesterday: str) -> None:
    """A WARNING of one line names the partition and what differs."""
    heard: list[str | None] = []
    queue.connection.add_notice_handler(lambda notice: heard.append(f"{notice.severity} {notice.message_primary}"))
    await queue.sql("INSERT INTO queue_message_export (partition, rows, difference) VALUES (%s, 3, E'1 row\nis missing')", yesterday)

    assert [f"WARNING archive partition {yesterday} in public differs from the lake and is kept: 1 row is missing"] == heard


async def test_the_lag_is_the_age_of_the_first_message_that_is_not_exported(queue: Queue, yesterday: str) -> None:
    """In seconds, 0 when all is exported, null where no export is registered; an export noted late changes nothing."""
    lag = "SELECT queue_message_export_lag()"
    assert pytest.approx(86400, abs=60) == await queue.value(lag)

    await queue.sql("SELECT queue_message_export_progress(pg_snapshot_xmin(pg_current_snapshot()))")
    assert 0 == await queue.value(lag)
    await queue.sql("SELECT queue_message_export_progress('3')")
    assert 0 == await queue.value(lag)
    await queue.sql(SETTLE, 5, "failed", None)
    assert 0 < await queue.value(lag) < 60
    await queue.sql("SELECT queue_message_config_set('export_registered', 'false')")
    assert await queue.value(lag) is None


async def test_progress_from_before_a_restore_is_overruled(queue: Queue, yesterday: str) -> None:
    """An export position above every transaction of this server belongs to another server."""
    await queue.sql("SELECT queue_message_export_progress('9000000000000')")
    await queue.sql("SELECT queue_message_export_progress('3')")

    assert [("3",)] == await queue.sql("SELECT exported_xid::text FROM queue_message_export_position")


async def test_days_that_wait_for_their_verification_are_counted(queue: Queue, yesterday: str) -> None:
    """Only those past their retention; null where no export is registered."""
    waiting = "SELECT queue_message_days_unverified()"
    assert 0 == await queue.value(waiting)
    await queue.sql(f"ALTER TABLE {yesterday} RENAME TO queue_message_archive_20200101")
    assert 1 == await queue.value(waiting)
    await queue.sql(VERIFY, "queue_message_archive_20200101", 3)
    await queue.sql("UPDATE queue_message_export SET lake = 'another'")
    assert 1 == await queue.value(waiting)
    await queue.sql("UPDATE queue_message_export SET lake = 'a lake'")
    assert 0 == await queue.value(waiting)
    await queue.sql("SELECT queue_message_config_set('export_registered', 'false')")
    assert await queue.value(waiting) is None


async def test_what_one_step_leaves_over_the_next_ones_take(queue: Queue, upkeep: PostgresMaintenance) -> None:
    """A day and 5,000 dead messages in each; when nothing went, nothing is left."""
    await queue.sql("SELECT queue_message_config_set('retention_days', '1'), queue_message_config_set('dead_retention_days', '1')")
    await queue.sql("SELECT queue_message_ensure_partitions(0, now() - make_interval(days => d)) FROM unnest(ARRAY[5, 6]) d")
    await queue.sql(SETTLE_MANY, 5500)

    assert [(1, 5000), (1, 500)] == [await upkeep.retain() for _ in range(2)]
    while (1, 0) == (went := await upkeep.retain()):
        pass
    assert (0, 0) == went
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_dead")


DEPENDING = (
    "CREATE TEMP VIEW mine AS SELECT id FROM {}",
    "CREATE TEMP TABLE mine (day {})",
    "CREATE FUNCTION pg_temp.mine(day {}) RETURNS int LANGUAGE sql AS 'SELECT 1'",
)
"""What somebody without a right on a day can make to depend on it."""


@pytest.mark.parametrize("depending", DEPENDING)
async def test_what_depends_on_a_day_keeps_that_day_alone(queue: Queue, depending: str) -> None:
    """A producer can make it. The other days are dropped, and this one when it is gone."""
    await queue.sql("SELECT queue_message_config_set('retention_days', '1')")
    days = "SELECT o FROM queue_message_old_days(now() + interval '2 days') AS o ORDER BY o"
    retain = "SELECT action, target FROM queue_message_retain(now() + interval '2 days')"
    [(first,), (second,)] = await queue.sql(days)
    with login(queue.url, "queue_message_producer") as url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as producer:
            await producer.execute(depending.format(f"public.{first}").encode())
            assert [("depended on", first), ("dropped", second)] == await queue.sql(retain)
            await producer.execute("DISCARD TEMP")
    assert [("dropped", first)] == await queue.sql(retain)


async def test_a_locked_dead_message_holds_up_no_other(queue: Queue) -> None:
    """An erasure or a replay that somebody leaves open has it; the next call deletes it."""
    for seq in (1, 2):
        await archive(queue, seq, "failed")
    deleted = "SELECT messages FROM queue_message_retain(now() + interval '400 days') WHERE target = 'queue_message_dead'"
    async with transaction(queue, "SELECT FROM queue_message_dead WHERE seq = 1 FOR SHARE"):
        assert [(1,)] == await queue.sql(deleted)
    assert [(1,)] == await queue.sql(deleted)
