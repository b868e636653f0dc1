"""Request rows as the database guards them: what a statement may do to a row, and which answers find it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from relay.message import SUCCESS, Archive, Result
from tests.support.database.queue import MadeStore, MakeStore, Queue, until
from tests.support.database.requests import NO_ANSWER, answered, asked, row, settled
from tests.support.servers.logins import login

COLUMNS = "'{at,code}', error => 'error', own => '{note}'"


@pytest.fixture
async def table(inbox_queue: Queue) -> Queue:
    """A table of requests."""
    await inbox_queue.sql(
        "CREATE TABLE page (id int PRIMARY KEY, url text, seen jsonb, loud text GENERATED ALWAYS AS (upper(url)) STORED, note text,"
        " at timestamptz, code int, error text)"
    )
    await inbox_queue.sql(f"SELECT queue_message_request('page', {COLUMNS})")
    return inbox_queue


@pytest.fixture
async def other(table: Queue) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Another connection, not in autocommit."""
    async with await psycopg.AsyncConnection.connect(table.url) as connection:
        yield connection


@pytest.mark.ids("C16", "B8")
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("INSERT INTO page (id, code) VALUES (2, 200)", "leaves at, code, error empty"),
        ("INSERT INTO page (id, error) VALUES (2, 'x')", "leaves at, code, error empty"),
        ("UPDATE page SET code = 200", "by the settle of its request alone"),
        ("UPDATE page SET error = 'x'", "by the settle of its request alone"),
        ("UPDATE page SET url = 'other'", "a request does not change"),
        ("UPDATE page SET seen = 'null'", "a request does not change"),
        ("UPDATE page SET id = 2", "a request does not change"),
        ("INSERT INTO page (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET code = 1", "by the settle of its request alone"),
        ("UPDATE queue_message_request_row SET settled_xid = pg_current_xact_id()", "committed with its settle alone"),
    ],
)
async def test_no_statement_by_hand_moves_a_row(table: Queue, statement: str, words: str) -> None:
    """No login can write an answer or change a request by INSERT or UPDATE. The row stays as it was."""
    await asked(table)
    with pytest.raises(errors.RestrictViolation, match=words):
        await table.sql(statement)
    assert [(1, "u", None, None, None)] == await table.sql("SELECT id, url, at, code, error FROM page")


async def test_what_is_the_applications_own_may_change(table: Queue) -> None:
    """Its columns are no part of the message; an UPDATE that changes nothing passes, and so does a DELETE."""
    await asked(table)
    await table.sql("UPDATE page SET note = 'mine', url = url, code = code")
    assert {"id": 1, "url": "u", "seen": None, "loud": "U"} == await table.value("SELECT content FROM queue_message")
    await table.sql("DELETE FROM page")


@pytest.mark.ids("C16")
async def test_a_request_and_its_message_are_one_transaction(table: Queue, other: psycopg.AsyncConnection[Any]) -> None:
    """Rolled back together; of several rows each has a message, which names its table."""
    await other.execute("INSERT INTO page (id, url) VALUES (1, 'u')")
    await other.rollback()
    assert 0 == await table.waiting()
    await table.sql("INSERT INTO page (id, url) SELECT n, 'u' FROM generate_series(1, 3) AS n")
    assert [(1, "public.page"), (2, "public.page"), (3, "public.page")] == await table.sql(
        "SELECT (content->'id')::int, options->'headers'->>'x-relay-request' FROM queue_message ORDER BY 1"
    )


@pytest.mark.ids("C16", "B8")
async def test_an_answer_without_its_settle_is_not_committed(table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]) -> None:
    """The function writes the row, and the COMMIT refuses it while the message is in the queue; with the settle it passes."""
    await asked(table)
    batch = await store.batch()
    with pytest.raises(errors.RestrictViolation, match="committed with its settle alone"):
        await answered(other, batch, {"code": 200}, settle=False)
    assert NO_ANSWER == await row(table)
    assert None is await answered(other, batch, {"code": 200})
    assert {**NO_ANSWER, "code": 200} == await row(table)


@pytest.mark.ids("C16", "B8")
async def test_a_request_is_not_settled_without_its_answer(table: Queue, store: MadeStore) -> None:
    """No statement archives it `success` while its row waits."""
    await asked(table)
    batch = await store.batch()
    with pytest.raises(Exception, match="23001"):
        await settled(store, batch, SUCCESS)
    assert (1, NO_ANSWER) == (await table.waiting(), await row(table))


@pytest.mark.ids("B9", "C16")
async def test_who_lost_the_lock_answers_nothing(
    table: Queue, store: MadeStore, make_store: MakeStore, other: psycopg.AsyncConnection[Any]
) -> None:
    """The row waits for the worker that holds the message now."""
    [id_] = [await asked(table)]
    late = await store.batch()
    await table.expire(id_)
    await table.sql("SELECT queue_message_sweep()")
    successor = make_store("successor")
    await successor.register()
    now = await successor.found_batch("suspect")
    assert "lock_lost" == await answered(other, late, {"code": 1})
    assert None is await answered(other, now, {"code": 2})
    assert {**NO_ANSWER, "code": 2} == await row(table)


@pytest.mark.ids("C16", "B13")
async def test_a_dead_request_says_why_and_its_replay_answers_the_same_row(
    table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]
) -> None:
    """The answer clears the error. Any later answer gets the result that no row waits for it."""
    id_ = await asked(table)
    await settled(store, await store.batch(), Archive(Result.REJECTED, "page_unknown", "no such page"))
    assert {**NO_ANSWER, "error": "page_unknown: no such page"} == await row(table)
    replays = [await table.value("SELECT queue_message_replay(%s)", id_) for _ in range(2)]
    batches = [await store.batch(limit=1) for _ in replays]
    assert None is await answered(other, batches[0], {"code": 200})
    assert {**NO_ANSWER, "code": 200} == await row(table)
    assert "request_missing" == await answered(other, batches[1], {"code": 500})
    await settled(store, batches[1], Archive(Result.REJECTED, "request_missing", "x"))
    assert {**NO_ANSWER, "code": 200} == await row(table)


@pytest.mark.ids("A28")
async def test_expired_locks_and_cancellations_show_in_the_row(table: Queue, store: MadeStore) -> None:
    """They do, no matter who archives the message: the sweep or an operator."""
    await table.sql("SELECT queue_message_config_set('on_lock_expired', 'archive')")
    expired = await asked(table)
    await store.batch()
    await table.expire(expired)
    await table.sql("SELECT queue_message_sweep()")
    cancelled = await asked(table, 2)
    await table.sql("SELECT queue_message_cancel(%s)", cancelled)
    assert (await row(table))["error"].startswith("lock_expired: ")
    assert (await row(table, 2))["error"].startswith("cancelled")


async def test_a_row_that_somebody_holds_does_not_hold_up_the_dead(
    table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]
) -> None:
    """After a second for all of them the messages are archived all the same, without their errors in the rows."""
    for number in range(1, 7):
        await asked(table, number)
    await other.execute("SELECT FROM page WHERE id < 6 FOR UPDATE")
    began = time.monotonic()
    await settled(store, await store.batch(), Archive(Result.FAILED, "handler_failed", "x"))
    assert time.monotonic() - began < 4
    assert (0, NO_ANSWER) == (await table.waiting(), await row(table))
    assert "handler_failed: x" == (await row(table, 6))["error"]


@pytest.mark.ids("C16")
async def test_a_row_that_is_gone_is_answered_no_more(table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]) -> None:
    """Deleted meanwhile, or its whole table."""
    for number, statement in ((1, "DELETE FROM page"), (2, "DROP TABLE page")):
        await asked(table, number)
        batch = await store.batch()
        await table.sql(statement)
        assert "request_gone" == await answered(other, batch, {"code": 1})


async def test_a_message_that_is_no_request_has_no_answer(table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]) -> None:
    """Whatever its headers say, for anybody may write those."""
    await asked(table)
    await table.sql("DELETE FROM queue_message")
    forged = {"headers": {"x-relay-request": "public.page"}}
    await table.insert(content='{"id": 1}', options=json.dumps(forged))
    batch = await store.batch()
    assert "request_missing" == await answered(other, batch, {"code": 1})
    assert None is await answered(other, batch, None)
    assert (0, NO_ANSWER) == (await table.waiting(), await row(table))


@pytest.mark.parametrize(
    ("definition", "literal"),
    [
        ("a int, b text, PRIMARY KEY (b, a)", "'x', 1"),
        ("a uuid PRIMARY KEY", "'01a2072d-8162-7f84-b0b4-15d016ec6ae7'"),
        ("a timestamptz PRIMARY KEY", "'2031-01-01 00:00:00.123456+05'"),
        ("a bytea PRIMARY KEY", r"'\x00ff'"),
        ("a numeric PRIMARY KEY", "1.50"),
        ("a float8 PRIMARY KEY", "0.1 + 0.2"),
        ("a text[] PRIMARY KEY", "ARRAY['x', NULL, '\"']"),
        ("a tstzrange PRIMARY KEY", "'[2031-01-01 00:00+05,)'"),
        ("a elsewhere.mood PRIMARY KEY", "'a b'"),
        ("a elsewhere.short PRIMARY KEY", "'ab'"),
        ('"A b" int, PRIMARY KEY ("A b") INCLUDE (other), other int', "7"),
        ("a text PRIMARY KEY", "repeat('x', 2000)"),
    ],
)
async def test_a_primary_key_of_any_type_finds_its_row(
    inbox_queue: Queue, store: MadeStore, other_of: psycopg.AsyncConnection[Any], definition: str, literal: str
) -> None:
    """In whatever way the sessions that ask and answer print their values."""
    await inbox_queue.sql("CREATE SCHEMA elsewhere")
    await inbox_queue.sql("CREATE TYPE elsewhere.mood AS ENUM ('a b')")
    await inbox_queue.sql("CREATE DOMAIN elsewhere.short AS varchar(3) NOT NULL")
    await inbox_queue.sql(f'CREATE TABLE "The asked" ({definition}, code int)')
    await inbox_queue.sql("""SELECT queue_message_request('"The asked"', '{code}')""")
    await inbox_queue.sql("SET TimeZone = 'Asia/Tokyo'")
    await inbox_queue.sql("SET DateStyle = 'SQL, DMY'")
    await inbox_queue.sql("SET bytea_output = 'escape'")
    columns = definition.partition("KEY (")[2].partition(")")[0] or "a"
    await inbox_queue.sql(f'INSERT INTO "The asked" ({columns}) VALUES ({literal})')
    assert None is await answered(other_of, await store.batch(), {"code": 3})
    assert [(3,)] == await inbox_queue.sql('SELECT code FROM "The asked"')


@pytest.fixture
async def other_of(inbox_queue: Queue) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """As `other`, where the table is yet to be made."""
    async with await psycopg.AsyncConnection.connect(inbox_queue.url) as connection:
        yield connection


@pytest.mark.parametrize(
    ("definition", "arguments", "words"),
    [
        ("code int", "'t', '{code}'", "no primary key"),
        ("id int PRIMARY KEY", "'t', '{code}'", "column code is no answer"),
        ("id int PRIMARY KEY, code int NOT NULL", "'t', '{code}'", "may hold NULL"),
        ("id int PRIMARY KEY, code int DEFAULT 1", "'t', '{code}'", "no default"),
        ("id int PRIMARY KEY, code int", "'t', '{code,code}'", "named once"),
        ("id int PRIMARY KEY, code int", "'t', '{id}'", "column id is no answer"),
        ("id int PRIMARY KEY, code int", "'t', '{}'", "one answer column"),
        ("id int PRIMARY KEY, code int", "'t', '{code}', own => '{code}'", "named once"),
        ("id int PRIMARY KEY, code int", "'t', '{code}', own => '{x}'", "no column x"),
        ("id int PRIMARY KEY, code int", "'t', '{code}', own => '{id}'", "no column id that the application could keep"),
        ("id int PRIMARY KEY, code int, error int", "'t', '{code}', 'error'", "of type text"),
        ("id int PRIMARY KEY", "'queue_message_relay', '{state}'", "of the application's own"),
        ("id int PRIMARY KEY", "'v', '{code}'", "ordinary table"),
    ],
)
async def test_a_table_that_can_hold_no_requests_is_refused(inbox_queue: Queue, definition: str, arguments: str, words: str) -> None:
    """In one sentence, and nothing is made."""
    await inbox_queue.sql(f"CREATE TABLE t ({definition})")
    await inbox_queue.sql("CREATE VIEW v AS SELECT 1 AS code")
    with pytest.raises(errors.InvalidParameterValue, match=words):
        await inbox_queue.sql(f"SELECT queue_message_request({arguments})")
    assert 0 == await inbox_queue.value("SELECT count(*) FROM pg_trigger WHERE tgname ~ 'queue_message_request' AND tgname !~ 'commit'")


async def test_an_outbox_holds_no_requests(queue: Queue) -> None:
    """A relay would publish them."""
    await queue.sql("CREATE TABLE t (id int PRIMARY KEY, code int)")
    with pytest.raises(errors.InvalidParameterValue, match="holds an outbox"):
        await queue.sql("SELECT queue_message_request('t', '{code}')")


async def test_it_may_be_said_twice_and_taken_back(table: Queue) -> None:
    """With other lists the second time; afterwards the table and the queue are as if nothing had been."""
    await table.sql("SELECT queue_message_request('page', '{at}', own => '{note,code}')")
    await asked(table)
    await table.sql("UPDATE page SET code = 1")
    for _ in range(2):
        await table.sql("SELECT queue_message_request_end('page')")
    await table.sql("UPDATE page SET at = now(), url = 'other'")
    await table.sql("INSERT INTO page (id, code) VALUES (2, 2)")
    assert 1 == await table.waiting()
    assert [] == await table.sql("SELECT tgname FROM pg_trigger WHERE tgname ~ 'queue_message_request' AND tgname !~ 'commit'")
    await table.sql(f"SELECT queue_message_request('page', {COLUMNS})")
    await asked(table, 3)
    assert 2 == await table.waiting()


@pytest.mark.ids("A23", "C16")
async def test_an_application_needs_no_right_in_the_inbox(table: Queue) -> None:
    """INSERT on its own table is all; it names no table of requests, and answers nothing."""
    with login(table.url, "queue_message_producer") as url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await table.sql(f"GRANT INSERT, SELECT, UPDATE ON page TO {connection.info.user}")
            await table.sql("SELECT queue_message_dismiss('producer', %s)", connection.info.user)
            await connection.execute("INSERT INTO page (id, url) VALUES (1, 'u')")
            for statement in (
                "UPDATE page SET code = 1",
                "SELECT queue_message_request('page', '{code}')",
                "SELECT queue_message_answer(gen_random_uuid(), gen_random_uuid(), '{}')",
                "INSERT INTO queue_message_request_row (message, request, key) VALUES (gen_random_uuid(), 1, '{}')",
            ):
                with pytest.raises((errors.InsufficientPrivilege, errors.RestrictViolation)):
                    await connection.execute(statement.encode())
    assert 1 == await table.waiting()


async def test_retention_forgets_what_is_dead(table: Queue, store: MadeStore) -> None:
    """The entry of a dead request goes with it."""
    await asked(table)
    await settled(store, await store.batch(), Archive(Result.FAILED, "handler_failed", "x"))
    assert 1 == await table.value("SELECT count(*) FROM queue_message_request_row")
    await table.sql("SELECT queue_message_retain(now() + interval '10 years')")
    left = await table.sql("SELECT (SELECT count(*) FROM queue_message_dead), (SELECT count(*) FROM queue_message_request_row)")
    assert [(0, 0)] == left


async def test_two_who_answer_a_row_at_once_answer_it_once(table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]) -> None:
    """The second waits for the first, and finds that no row waits any more: no deadlock, no second answer."""
    id_ = await asked(table)
    await settled(store, await store.batch(), Archive(Result.FAILED, "handler_failed", "x"))
    for _ in range(2):
        await table.sql("SELECT queue_message_replay(%s)", id_)
    first, second = [await store.batch(limit=1) for _ in range(2)]
    values = (first.claims[0].id, first.token, '{"code": 1}')
    await other.execute("SELECT * FROM queue_message_answer(%s, %s, %s)", values)
    async with await psycopg.AsyncConnection.connect(table.url, application_name="late") as late:
        waiting = asyncio.create_task(answered(late, second, {"code": 2}))
        await until(lambda: table.is_held_up("late"))
        await other.execute("DELETE FROM queue_message WHERE id = %s", (values[0],))
        await other.commit()
        assert "request_missing" == await waiting
    assert {**NO_ANSWER, "code": 1} == await row(table)


async def test_a_replay_that_commits_beside_an_answer_does_not_answer_again(
    table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]
) -> None:
    """The answer waits for the replay's transaction, and takes its entry away too."""
    id_ = await asked(table)
    await settled(store, await store.batch(), Archive(Result.FAILED, "handler_failed", "x"))
    await table.sql("SELECT queue_message_replay(%s)", id_)
    first = await store.batch(limit=1)
    await other.execute("SELECT queue_message_replay(%s)", (id_,))
    async with await psycopg.AsyncConnection.connect(table.url, application_name="first") as connection:
        waiting = asyncio.create_task(answered(connection, first, {"code": 1}))
        await until(lambda: table.is_held_up("first"))
        await other.commit()
        assert None is await waiting
    assert "request_missing" == await answered(other, await store.batch(), {"code": 2})
    assert {**NO_ANSWER, "code": 1} == await row(table)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
async def test_a_replay_that_commits_beside_a_new_row_does_not_answer_that(
    table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any], level: str
) -> None:
    """The INSERT waits for the replay's transaction, and takes its entry away too, or fails where its snapshot cannot show it."""
    id_ = await asked(table)
    await settled(store, await store.batch(), Archive(Result.FAILED, "handler_failed", "x"))
    await table.sql("DELETE FROM page")
    await other.execute("SELECT queue_message_replay(%s)", (id_,))
    async with await psycopg.AsyncConnection.connect(table.url, application_name="anew") as connection:
        await connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        waiting = asyncio.create_task(connection.execute("INSERT INTO page (id, url) VALUES (1, 'new')"))
        await until(lambda: table.is_held_up("anew"))
        await other.commit()
        if level == "REPEATABLE READ":
            with pytest.raises(errors.SerializationFailure):
                await waiting
            return
        await waiting
        await connection.commit()
    assert "request_missing" == await answered(other, await store.batch(limit=1), {"code": 2})
    assert NO_ANSWER == await row(table)
