"""Settled messages: where they live, that they stay as they are, and how long."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from psycopg import errors

from relay.postgres.schema.migrate import migrate
from tests.support.database.queue import Queue
from tests.support.servers.logins import login

SETTLE = """
    WITH d AS (DELETE FROM queue_message RETURNING *)
    INSERT INTO queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at,
        created_at, attempts, replay_of, result, error_code, archived_at)
    SELECT xid, seq, id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at, created_at, attempts,
        replay_of, %s, %s, coalesce(%s::timestamptz, now()) FROM d
"""


async def settle(queue: Queue, result: str, *, code: str | None = None, at: str | None = None, **columns: object) -> str:
    """Insert a message and archive it; return its id."""
    [id_] = await queue.insert(**columns)
    await queue.sql(SETTLE, result, code, at)
    return id_


async def days(queue: Queue) -> list[str]:
    """Names of the archive's days, oldest first."""
    found = await queue.sql("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'queue_message_archive_daily'::regclass")
    return sorted(name.removeprefix("queue_message_archive_") for (name,) in found)


async def day_from_today(queue: Queue, shift: int) -> str:
    """Name of a UTC day's partition, without the prefix."""
    return str(await queue.value("SELECT to_char((now() AT TIME ZONE 'UTC')::date + %s, 'YYYYMMDD')", shift))


async def retain(queue: Queue, days_later: int = 0) -> list[tuple[Any, ...]]:
    """Run retention as if so many days had passed, in which it ran all the time: else it would not trust the clock."""
    await queue.sql("UPDATE queue_message_clock_seen SET seen_at = NULL")
    return await queue.sql("SELECT action, target, messages FROM queue_message_retain(now() + make_interval(days => %s))", days_later)


@pytest.mark.ids("A8", "A9", "A10", "A11", "A34", "C13")
@pytest.mark.parametrize("result", ["success", "discarded", "rejected", "failed", "lock_expired"])
async def test_each_result_has_its_place(queue: Queue, result: str) -> None:
    """Successes and discarded messages live by day, dead ones in a table of their own."""
    await settle(queue, result)

    place = await queue.value("SELECT tableoid::regclass::text FROM queue_message_archive")
    day = f"queue_message_archive_{await day_from_today(queue, 0)}"
    assert place == (day if result in {"success", "discarded"} else "queue_message_dead")


async def test_an_unknown_result_has_none(queue: Queue) -> None:
    """The words of the archive are five, and a message with another stays queued."""
    with pytest.raises(errors.CheckViolation):
        await settle(queue, "sent")
    assert 1 == await queue.waiting()


@pytest.mark.ids("A19")
async def test_the_archive_keeps_what_the_message_had(queue: Queue) -> None:
    """Every column of the message that matters is there, with the transaction that archived it."""
    id_ = await settle(queue, "success", routing_key="k", content='{"n": 1.0}', options='{"type": "t"}', ordering_key="o")

    kept = await queue.archived(id_)
    assert ("orders", "k", {"n": 1.0}, {"type": "t"}, "o", 0) == tuple(
        kept[name] for name in ("exchange", "routing_key", "content", "options", "ordering_key", "attempts")
    )
    assert kept["created_at"] <= kept["archived_at"]
    assert int(kept["xid"]) < int(kept["archived_xid"])


@pytest.mark.ids("B8")
@pytest.mark.parametrize("table", ["queue_message_archive", "queue_message_archive_daily", "queue_message_dead"])
@pytest.mark.parametrize("change", ["UPDATE {} SET result = result", "UPDATE {} SET error_detail = 'x'", "DELETE FROM {}"])
async def test_the_archive_is_final(queue: Queue, table: str, change: str) -> None:
    """Even the owner changes nothing, at whatever level of the partitions."""
    await settle(queue, "failed" if table == "queue_message_dead" else "success")

    with pytest.raises(errors.RestrictViolation, match=r"The archive is final: (UPDATE|DELETE) of message .* is refused; replay it"):
        await queue.sql(change.format(table))


async def test_days_are_made_ahead_and_once(queue: Queue) -> None:
    """A new database has yesterday to seven days ahead; later calls add only what is missing, in UTC whatever the session says."""
    assert [await day_from_today(queue, shift) for shift in range(-1, 8)] == await days(queue)

    await queue.sql("SET timezone = 'Pacific/Apia'")
    assert 0 == await queue.value("SELECT queue_message_ensure_partitions()")
    assert 2 == await queue.value("SELECT queue_message_ensure_partitions(9)")
    assert 1 == await queue.value("SELECT queue_message_ensure_partitions(now => now() + interval '3 days')")
    assert [await day_from_today(queue, shift) for shift in range(-1, 11)] == await days(queue)


@pytest.mark.parametrize("days_ahead", ["-1", "367", "NULL"])
async def test_more_than_a_year_of_days_is_refused(queue: Queue, days_ahead: str) -> None:
    """Who may have days made cannot fill the catalog with them."""
    with pytest.raises(errors.RaiseException, match=r"Between 0 and 366 days can be made ahead, not "):
        await queue.sql(f"SELECT queue_message_ensure_partitions({days_ahead})")


async def test_making_days_waits_for_no_settle(queue: Queue, database_url: str) -> None:
    """A settle in the middle of its transaction neither stops new days nor is stopped by them."""
    async with await psycopg.AsyncConnection.connect(database_url) as settling:
        await settling.execute("INSERT INTO queue_message (exchange) VALUES ('e')")
        await settling.execute(SETTLE.encode(), ("success", None, None))

        async with queue.connection.transaction():
            assert 3 == await queue.value("SELECT queue_message_ensure_partitions(10)")
            await settling.execute("INSERT INTO queue_message (exchange) VALUES ('e')")
            await settling.execute(SETTLE.encode(), ("success", None, None))


async def test_a_missing_day_leaves_messages_where_they_are(queue: Queue) -> None:
    """Without the day's partition the settle fails as a whole, and the status shows how far ahead the days reach."""
    assert 7 == await queue.value("SELECT partition_days_ahead FROM queue_message_status")
    for day in await days(queue):
        await queue.sql(f"DROP TABLE queue_message_archive_{day}")

    with pytest.raises(errors.CheckViolation, match="no partition"):
        await settle(queue, "success")

    assert (1, -1) == (await queue.waiting(), await queue.value("SELECT partition_days_ahead FROM queue_message_status"))


@pytest.mark.parametrize(("missing", "ahead"), [(0, -1), (1, 0), (3, 2), (7, 6), (-1, 7)])
async def test_days_ahead_end_at_the_first_gap(queue: Queue, missing: int, ahead: int) -> None:
    """Later days do not make up for an earlier gap. A missing day in the past does not matter."""
    await queue.sql(f"DROP TABLE queue_message_archive_{await day_from_today(queue, missing)}")

    assert ahead == await queue.value("SELECT partition_days_ahead FROM queue_message_status")


@pytest.mark.ids("D8")
async def test_retention_drops_one_old_day_a_call(queue: Queue) -> None:
    """Whole days go, the oldest first, and what is within the retention stays."""
    await queue.sql("SELECT queue_message_config_set('retention_days', '5')")
    first, second = await day_from_today(queue, -1), await day_from_today(queue, 0)

    assert [] == await retain(queue, 4)
    assert [("dropped", f"queue_message_archive_{first}", None)] == await retain(queue, 6)
    assert [("dropped", f"queue_message_archive_{second}", None)] == await retain(queue, 6)
    assert [] == await retain(queue, 6)
    await queue.sql("SELECT queue_message_config_set('retention_days', '0')")
    assert [] == await retain(queue, 1000)


async def test_a_partition_of_somebody_elses_making_is_never_dropped(queue: Queue) -> None:
    """Its name says nothing of its days: what was attached by hand, such as a whole year, stays until its owner detaches it."""
    await queue.sql("CREATE TABLE a_year (LIKE queue_message_archive_daily)")
    year = "FOR VALUES FROM ('2001-01-01 00:00+00') TO ('2002-01-01 00:00+00')"
    await queue.sql(f"ALTER TABLE queue_message_archive_daily ATTACH PARTITION a_year {year}")

    assert "a_year" not in [target for _, target, _ in await retain(queue, 40)]


async def test_a_reader_is_not_waited_for(queue: Queue, database_url: str) -> None:
    """A day that somebody reads is left for the next call, for the drop would make every settle wait behind the reader."""
    oldest = f"queue_message_archive_{await day_from_today(queue, -1)}"
    await queue.sql("SET statement_timeout = '10s'")
    async with await psycopg.AsyncConnection.connect(database_url) as reader:
        await reader.execute(f"SELECT count(*) FROM {oldest}".encode())
        assert [("busy", oldest, None)] == await retain(queue, 40)

    assert ("dropped", oldest, None) in await retain(queue, 40)


async def test_dead_messages_have_a_retention_of_their_own(queue: Queue) -> None:
    """Old ones go with what was said of them, and of a registered export only what it has verified."""
    old = await settle(queue, "failed", at="2020-01-01")
    young = await settle(queue, "failed")
    await queue.sql("SELECT queue_message_dead_acknowledge(%s), queue_message_config_set('export_registered', 'true')", old)

    assert [] == [row for row in await retain(queue) if row[0] == "deleted"]
    await queue.sql("INSERT INTO queue_message_export_position (exported_xid, lake, epoch, seen_at) VALUES ('7', 'a lake', 1, now())")
    await queue.sql(
        "INSERT INTO queue_message_export (partition, rows, exported_xid, verified_at, lake)"
        " VALUES ('queue_message_dead', 1, pg_current_xact_id(), now(), 'a lake')"
    )
    assert [("deleted", "queue_message_dead", 1)] == await retain(queue)
    assert [(young,)] == await queue.sql("SELECT id::text FROM queue_message_dead")
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_dead_ack")


@pytest.mark.ids("A14", "A15", "A40")
async def test_a_dead_message_raises_an_alarm(queue: Queue) -> None:
    """A WARNING of one printable line for the server's log, and a notification with the id."""
    warnings: list[str | None] = []
    queue.connection.add_notice_handler(lambda notice: warnings.append(f"{notice.severity} {notice.message_primary}"))
    await queue.sql("LISTEN dead_message")

    id_ = await settle(queue, "rejected", code="line\nbreak", exchange="red\x1b[31m\r\nexchange")

    [heard] = [notification async for notification in queue.connection.notifies(timeout=5, stop_after=1)]
    assert ("dead_message", {"id": id_}) == (heard.channel, json.loads(heard.payload))
    assert [f'WARNING dead message {id_} in public: result rejected, code line break, exchange "red [31m exchange"'] == warnings


async def test_a_success_raises_none(queue: Queue) -> None:
    """Discarded on purpose is no alarm either."""
    warnings: list[object] = []
    queue.connection.add_notice_handler(warnings.append)
    await settle(queue, "success")
    await settle(queue, "discarded", code="skipped")
    assert [] == warnings


@pytest.mark.ids("A31")
async def test_outside_public_the_alarm_names_the_table(empty_database_url: str) -> None:
    """Several outboxes share the channel."""
    migrate(empty_database_url, schema="Odd name")
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        queue = Queue(empty_database_url, connection)
        await queue.sql('SET search_path = "Odd name"')
        await queue.sql("LISTEN dead_message")
        id_ = await settle(queue, "failed")
        [heard] = [notification async for notification in connection.notifies(timeout=5, stop_after=1)]
    assert {"id": id_, "table": '"Odd name".queue_message_dead'} == json.loads(heard.payload)


LOCK_AHEAD = """
    DO $$ BEGIN
        FOR number IN {0} + 1 .. {0} + 400 LOOP
            BEGIN PERFORM nextval(number::oid::regclass); EXCEPTION WHEN OTHERS THEN END;
        END LOOP;
    END $$
"""
"""Locks tables that are not there yet by the numbers that they will have; `nextval` locks before it looks."""


async def test_who_keeps_a_day_from_being_made_is_named(queue: Queue) -> None:
    """Any login can; the day is made once its session has ended."""
    said: list[str] = []
    queue.connection.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
    late = await day_from_today(queue, 7)
    await queue.sql(f"DROP TABLE queue_message_archive_{late}")
    with login(queue.url) as url:
        async with await psycopg.AsyncConnection.connect(url) as other:
            await queue.sql("CREATE TABLE newest ()")
            await other.execute(LOCK_AHEAD.format(await queue.value("SELECT 'newest'::regclass::oid")).encode())

            assert 0 == await queue.value("SELECT queue_message_ensure_partitions()")
            await other.rollback()

            holder = f"process {other.info.backend_pid} of {other.info.user}"
    assert [f"archive partition queue_message_archive_{late} was not made, because another session has locked its table: {holder}"] == said
    assert 1 == await queue.value("SELECT queue_message_ensure_partitions()")


def test_a_prepared_transaction_that_keeps_a_day_from_being_made_is_named(preparing_url: str) -> None:
    """It has no process and no login."""
    said: list[str] = []
    with psycopg.connect(preparing_url, autocommit=True) as owner, psycopg.connect(preparing_url) as other:
        owner.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        [late] = owner.execute("SELECT to_char((now() AT TIME ZONE 'UTC')::date + 7, 'YYYYMMDD')").fetchone() or ()
        owner.execute(f"DROP TABLE queue_message_archive_{late}".encode())
        owner.execute("CREATE TABLE newest ()")
        [newest] = owner.execute("SELECT 'newest'::regclass::oid").fetchone() or ()
        other.execute(LOCK_AHEAD.format(newest).encode())
        other.execute("PREPARE TRANSACTION 'held'")

        assert (0,) == owner.execute("SELECT queue_message_ensure_partitions()").fetchone()
        owner.execute("ROLLBACK PREPARED 'held'")

        assert (1,) == owner.execute("SELECT queue_message_ensure_partitions()").fetchone()
    said = [each.removeprefix(f"archive partition queue_message_archive_{late} was not made, because ") for each in said]
    assert ["another session has locked its table: a prepared transaction"] == said


async def test_who_makes_a_table_meanwhile_is_not_blamed(queue: Queue) -> None:
    """Its table is not there for others yet either, and it may have written to it."""
    async with await psycopg.AsyncConnection.connect(queue.url) as other, await psycopg.AsyncConnection.connect(queue.url) as innocent:
        await other.execute("LOCK TABLE queue_message_archive_daily IN SHARE UPDATE EXCLUSIVE MODE")
        await innocent.execute("CREATE TABLE made (wide text)")
        await innocent.execute("INSERT INTO made VALUES ('x')")
        named = await queue.value("SELECT queue_message_in_the_way()")

        assert named == f"process {other.info.backend_pid} of {other.info.user}"
        await other.rollback()
        assert await queue.value("SELECT queue_message_in_the_way()") is None
        await innocent.rollback()
