"""Schedules as SQL: what is due is inserted once, what was missed as the schedule says, and what makes no sense is refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.support.database.queue import Queue

ADD = "SELECT queue_message_schedule_add({})"
TICKS = "SELECT options -> 'headers' ->> 'x-relay-tick' FROM queue_message ORDER BY xid, seq"


async def add(queue: Queue, name: str = "n", spec: str = "@hourly", **more: object) -> datetime:
    """Add a schedule for the exchange `reports`; return its first tick."""
    named: dict[str, object] = {"name": name, "spec": spec, "exchange": "reports", **more}
    first: datetime = await queue.value(ADD.format(", ".join(f"{key} => %s" for key in named)), *named.values())
    return first


async def run(queue: Queue, now: datetime | None = None) -> tuple[int, datetime | None]:
    """Insert what is due, as if it were that time."""
    [(inserted, next_at)] = await queue.sql("SELECT * FROM queue_message_run_schedules(%s)", now)
    return inserted, next_at


async def state(queue: Queue, name: str = "n") -> dict[str, Any]:
    """The current state of one schedule."""
    return dict(await queue.value("SELECT to_jsonb(s) FROM queue_message_schedule s WHERE name = %s", name))


async def due_since(queue: Queue, ago: timedelta, name: str = "n") -> datetime:
    """Move the next tick of an hourly schedule that far back, as if no relay had run since. Returns the tick."""
    await queue.sql("UPDATE queue_message_schedule SET next_at = date_trunc('hour', now() - %s) WHERE name = %s", ago, name)
    tick: datetime = await queue.value("SELECT next_at FROM queue_message_schedule WHERE name = %s", name)
    return tick


@pytest.mark.ids("A20", "A36")
async def test_a_tick_is_a_message_and_names_itself(queue: Queue) -> None:
    """It has what the schedule says and is due at once. Its headers add the schedule and the tick to those of the options."""
    options = '{"priority": 5, "headers": {"a": 1}}'
    first = await add(queue, content='{"total": 1.10}', routing_key="k", options=options, ordering_key="o", expires_after="1 hour")
    assert (0, first) == await run(queue)

    assert (1, first + timedelta(hours=1)) == await run(queue, first)

    [row] = await queue.sql(
        "SELECT exchange, routing_key, content::text, options, ordering_key, available_at, expires_at FROM queue_message"
    )
    headers = {"a": 1, "x-relay-schedule": "n", "x-relay-tick": first.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    assert ("reports", "k", '{"total": 1.10}', {"priority": 5, "headers": headers}, "o", None, first + timedelta(hours=1)) == row
    told = await state(queue)
    assert (first, await queue.value("SELECT id::text FROM queue_message")) == (datetime.fromisoformat(told["last_at"]), told["last_id"])


async def test_headers_of_the_options_are_not_overwritten(queue: Queue) -> None:
    """A person who names one of our headers has a reason."""
    first = await add(queue, options='{"headers": {"x-relay-tick": "mine"}}')
    await run(queue, first)

    assert [{"x-relay-schedule": "n", "x-relay-tick": "mine"}] == [
        await queue.value("SELECT options -> 'headers' FROM queue_message")
    ]  # fmt: skip


async def test_callers_at_once_insert_each_tick_once(queue: Queue) -> None:
    """This holds for any number of relays, also with pg_cron alongside them."""
    for number in range(20):
        await add(queue, f"n{number}", missed=["once", "all"][number % 2])
    start = await queue.value("SELECT min(next_at) FROM queue_message_schedule")
    callers = [await psycopg.AsyncConnection.connect(queue.url, autocommit=True) for _ in range(4)]
    try:
        for hour in range(6):
            now = start + timedelta(hours=hour)
            await asyncio.gather(*(Queue(queue.url, caller).sql("SELECT queue_message_run_schedules(%s)", now) for caller in callers * 2))
    finally:
        for caller in callers:
            await caller.close()

    found = "SELECT options -> 'headers' FROM queue_message"
    ticks = [(headers["x-relay-schedule"], headers["x-relay-tick"]) for (headers,) in await queue.sql(found)]
    assert (120, 120) == (len(ticks), len(set(ticks)))


async def test_what_another_caller_holds_is_stepped_over(queue: Queue) -> None:
    """The caller does not wait. If the other one rolls back, as it does when it is killed, the tick is still owed."""
    first = await add(queue)
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("SELECT queue_message_run_schedules(%s)", [first])
        assert (0, first) == await run(queue, first)
        await other.rollback()

    assert (1, first + timedelta(hours=1)) == await run(queue, first)


@pytest.mark.parametrize(("missed", "hours", "sent"), [("skip", 5, []), ("once", 5, [0]), ("all", 5, [5, 4, 3, 2, 1, 0]), ("all", 0, [0])])
async def test_missed_ticks_are_sent_as_the_schedule_says(queue: Queue, missed: str, hours: int, sent: list[int]) -> None:
    """It sends none, the last, or each, named by its own time. Then it continues at its next tick."""
    await add(queue, missed=missed)
    first = await due_since(queue, timedelta(hours=hours))
    now = first + timedelta(hours=hours, minutes=30)

    assert (len(sent), first + timedelta(hours=hours + 1)) == await run(queue, now)

    times = [(first + timedelta(hours=hours - back)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for back in sent]
    assert [(text,) for text in times] == await queue.sql(TICKS)


async def test_a_tick_that_is_found_late_is_not_missed(queue: Queue) -> None:
    """With skip: pg_cron looks once a minute, and a relay may be busy."""
    first = await add(queue, missed="skip")
    await add(queue, "later", missed="skip")

    assert 2 == (await run(queue, first + timedelta(minutes=2)))[0]
    assert 0 == (await run(queue, first + timedelta(hours=1, minutes=2, seconds=1)))[0]


async def test_a_year_of_minutes_is_passed_over_at_once(queue: Queue) -> None:
    """With once: the last tick is found without those before it."""
    await add(queue, spec="* * * * *")
    await due_since(queue, timedelta(days=400))
    await queue.sql("SET statement_timeout = '5s'")

    assert 1 == (await run(queue))[0]


async def test_a_long_outage_comes_in_portions_and_keeps_no_other(queue: Queue) -> None:
    """With all: no transaction is larger than a thousand messages, and the others are first."""
    await add(queue, "flood", "EVERY 1 second", missed="all")
    await add(queue, "other")
    now = await due_since(queue, timedelta(0), "other")
    await queue.sql(
        "UPDATE queue_message_schedule SET next_at = %s, created_at = %s WHERE name = 'flood'", *[now - timedelta(seconds=2500)] * 2
    )

    portions = [(await run(queue, now))[0] for _ in range(4)]

    assert [1000, 1000, 501, 0] == portions
    assert "other" == await queue.value("SELECT options -> 'headers' ->> 'x-relay-schedule' FROM queue_message ORDER BY xid, seq LIMIT 1")
    assert 2500 == await queue.value(
        'SELECT count(DISTINCT options) FROM queue_message WHERE options @? \'$.headers ? (@."x-relay-schedule" == "flood")\''
    )


async def test_one_that_is_refused_holds_up_no_other(queue: Queue) -> None:
    """Its error is kept until its next message, and it continues at its next tick."""
    await queue.sql("ALTER TABLE queue_message ADD CONSTRAINT mine CHECK (exchange <> 'closed')  NOT VALID")
    await add(queue, "good")
    await queue.sql("ALTER TABLE queue_message DROP CONSTRAINT mine")
    first = await add(queue, "bad", exchange="closed")
    await queue.sql("ALTER TABLE queue_message ADD CONSTRAINT mine CHECK (exchange <> 'closed')  NOT VALID")

    assert (1, first + timedelta(hours=1)) == await run(queue, first)
    assert 'new row for relation "queue_message" violates check constraint "mine"' == (await state(queue, "bad"))["last_error"]
    await queue.sql("ALTER TABLE queue_message DROP CONSTRAINT mine")
    assert 2 == (await run(queue, first + timedelta(hours=1)))[0]
    assert (await state(queue, "bad"))["last_error"] is None


async def test_a_full_disk_owes_the_tick_still(queue: Queue) -> None:
    """What would fail for any message fails the call, and nothing is passed over."""
    first = await add(queue)
    await queue.sql(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = 'disk_full'; END $$"
    )
    await queue.sql("CREATE TRIGGER fail BEFORE INSERT ON queue_message EXECUTE FUNCTION fail()")
    with pytest.raises(errors.DiskFull):
        await run(queue, first)
    await queue.sql("DROP TRIGGER fail ON queue_message")

    assert 1 == (await run(queue, first))[0]


async def test_a_zone_whose_rules_have_changed_is_asked_again(queue: Queue) -> None:
    """A tick that was found by the old rules is none any more, and what is none is not sent."""
    await add(queue, spec="0 3 * * *")
    wrong = await queue.value("UPDATE queue_message_schedule SET next_at = date_trunc('day', next_at) + '2h' RETURNING next_at")

    assert (0, wrong + timedelta(hours=1)) == await run(queue, wrong)


async def test_a_zone_that_is_gone_holds_up_no_other(queue: Queue) -> None:
    """PostgreSQL may come with other zones one day; the schedule says so and is looked at each hour."""
    first = await add(queue)
    await add(queue, "lost", time_zone="Europe/Berlin")
    await queue.sql("ALTER TABLE queue_message_schedule DISABLE TRIGGER queue_message_schedule_check")
    await queue.sql("UPDATE queue_message_schedule SET time_zone = 'Mars/Olympus' WHERE name = 'lost'")
    await queue.sql("ALTER TABLE queue_message_schedule ENABLE TRIGGER queue_message_schedule_check")

    assert (1, first + timedelta(hours=1)) == await run(queue, first)
    assert "invalid parameter value" in (await state(queue, "lost"))["last_error"]
    assert (await queue.value("SELECT queue_message_shown(next_at, time_zone) FROM queue_message_schedule WHERE name = 'lost'")).endswith(
        "+00:00"
    )


async def test_what_a_paused_schedule_misses_is_not_sent(queue: Queue) -> None:
    """It continues at its next tick from now, whatever it does with missed ones."""
    first = await add(queue, missed="all")
    assert await queue.value("SELECT queue_message_schedule_pause('n')")
    assert not await queue.value("SELECT queue_message_schedule_pause('n')")
    assert (0, None) == await run(queue, first + timedelta(hours=5))

    assert await queue.value("SELECT queue_message_schedule_resume('n')")
    assert not await queue.value("SELECT queue_message_schedule_resume('n')")
    assert (0, first) == await run(queue)


async def test_one_message_at_once_moves_no_tick(queue: Queue) -> None:
    """Also of a paused schedule; it names the schedule and no tick."""
    await add(queue, paused=True)
    assert (0, None) == await run(queue)
    id_ = await queue.value("SELECT queue_message_schedule_run_now('n')::text")

    assert {"headers": {"x-relay-schedule": "n"}} == (await queue.row(id_))["options"]
    assert (await state(queue))["last_id"] is None


async def test_a_replaced_schedule_keeps_its_place(queue: Queue) -> None:
    """The same times stay due, other times count from now, and one that was paused stays so."""
    await add(queue)
    due = await due_since(queue, timedelta(hours=2))
    assert due == await add(queue, exchange="audit", replace=True)
    assert due < await add(queue, spec="@daily", replace=True)
    await queue.sql("SELECT queue_message_schedule_pause('n')")

    assert await add(queue, replace=True) is None
    with pytest.raises(errors.DuplicateObject, match="There is a schedule 'n' already: remove it first, or replace it"):
        await add(queue)
    assert await queue.value("SELECT queue_message_schedule_remove('n')")
    assert not await queue.value("SELECT queue_message_schedule_remove('n')")


async def test_a_schedule_is_a_row(queue: Queue) -> None:
    """Any client is enough: the table judges what is written, and finds the tick by its own clock."""
    await queue.sql("INSERT INTO queue_message_schedule (name, spec, exchange, next_at) VALUES ('n', '@yearly', 'e', '2000-01-01')")
    assert await queue.value(
        "SELECT next_at = (date_trunc('year', now() AT TIME ZONE 'UTC') + '1 year') AT TIME ZONE 'UTC' FROM queue_message_schedule"
    )
    await queue.sql("UPDATE queue_message_schedule SET spec = 'EVERY 1h'")
    assert await queue.value("SELECT next_at - created_at BETWEEN '00:59:59' AND '01:00:00' FROM queue_message_schedule")
    with pytest.raises(errors.CheckViolation, match="minute of a schedule is '60'"):
        await queue.sql("UPDATE queue_message_schedule SET spec = '60 * * * *'")
    await queue.sql("UPDATE queue_message_schedule SET paused = true")
    assert (0, None) == await run(queue)


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("spec", "60 * * * *", "The minute of a schedule is '60'; it must be"),
        ("spec", "* 24 * * *", "The hour of a schedule is '24'"),
        ("spec", "* * 0 * *", "The day of month of a schedule is '0'"),
        ("spec", "* * * foo *", "The month of a schedule is 'foo'; it must be .*, or numbers from 1 to 12 or names from jan to dec"),
        ("spec", "* * * * fri-mon", "The day of week of a schedule is 'fri-mon'"),
        ("spec", "5/10 * * * *", "The minute of a schedule is '5/10'"),
        ("spec", "*/0 * * * *", r"The minute of a schedule is '\*/0'"),
        ("spec", "*/60 * * * *", r"The minute of a schedule is '\*/60'"),
        ("spec", "1,, * * * *", "The minute of a schedule is '1,,'"),
        ("spec", "\u0661 * * * *", "The minute of a schedule is '\u0661'"),
        ("spec", "* * * *", "must be the five fields of a cron line"),
        ("spec", "* * * * * *", "must be the five fields of a cron line"),
        ("spec", "", "must be the five fields of a cron line"),
        ("spec", "@reboot", "must be the five fields of a cron line"),
        ("spec", "@daily\n", "must be the five fields of a cron line"),
        ("spec", "EVERY 1 month", "must be EVERY and a length from 1 second to 3660 days.*for months and years write a cron line"),
        ("spec", "EVERY 0s", "must be EVERY and a length"),
        ("spec", "EVERY", "must be EVERY and a length"),
        ("spec", "EVERY 999999999w 999999999w", "must be EVERY and a length"),
        ("spec", "0 0 30 2 *", "The schedule '0 0 30 2 .' never comes: there is no such date"),
        ("spec", "0" * 1001, "at most 1000 characters"),
        ("time_zone", "Mars/Olympus", "PostgreSQL knows no time zone 'Mars/Olympus'"),
        ("time_zone", "europe/berlin", "PostgreSQL knows no time zone 'europe/berlin'"),
        ("time_zone", "FOO+3", "PostgreSQL knows no time zone"),
        ("time_zone", "CET", "PostgreSQL takes 'CET' for a fixed distance from UTC"),
        ("missed", "some", "What becomes of missed ticks is 'some'; it must be one of skip, once, all"),
        ("name", "", "must be 1 to 63 printable characters"),
        ("name", "a\nb", "must be 1 to 63 printable characters"),
        ("name", "x" * 64, "must be 1 to 63 printable characters"),
        ("exchange", "x" * 256, "exchange is 256 bytes long; the limit is 255 bytes"),
        ("ordering_key", "x" * 1025, "ordering_key is 1025 bytes long"),
        ("options", '{"persistant": true}', "options has the unknown option .persistant."),
        ("options", "[]", "options must be a JSON object"),
        ("options", '{"headers": 5}', "options.headers must be an object"),
        ("content", "[" + "1e131071," * 9 + "0]", "content takes"),
        ("expires_after", "-1 hour", "must be from 1 millisecond to 100 years"),
    ],
)  # fmt: skip
async def test_what_makes_no_sense_is_refused_at_once(queue: Queue, column: str, value: str, sentence: str) -> None:
    """In one sentence, in the words of the INSERT where its message is meant, and nothing is left of the attempt."""
    with pytest.raises(errors.CheckViolation, match=sentence):
        await add(queue, **{column: value})

    assert (0, 0) == (await queue.waiting(), await queue.value("SELECT count(*) FROM queue_message_schedule"))


@pytest.mark.parametrize("column", ["spec", "time_zone", "content", "options", "missed", "exchange"])
async def test_nothing_may_be_left_out_by_null(queue: Queue, column: str) -> None:
    """A function is called with what a program has, which may be nothing."""
    with pytest.raises((errors.NotNullViolation, errors.CheckViolation)):
        await add(queue, **{column: None})  # type: ignore[arg-type]


async def test_a_schedule_is_tried_and_nothing_stays_of_that(queue: Queue) -> None:
    """Its message is inserted and rolled back. No row remains, and no notification is sent."""
    await queue.sql("SELECT queue_message_config_set('notify', 'always')")
    async with await psycopg.AsyncConnection.connect(queue.url, autocommit=True) as listener:
        await listener.execute("LISTEN queue_message")
        await add(queue)
        assert 0 == await queue.waiting()
        await queue.sql("NOTIFY queue_message, 'end'")
        async for heard in listener.notifies(timeout=20):
            assert "end" == heard.payload
            break
