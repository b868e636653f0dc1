"""The walk that finds contents which no client can be handed prints them, and ends by time: each call does one at least."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.database.queue import Queue, resize, unchecked
from tests.support.servers.encodings import encoded_database, letter
from tests.support.servers.shared import Databases

SLOW = "(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 100))"
"""Takes a kilobyte, has 13 megabytes as text, and is printed in hundredths of a second."""
ENDLESS = "(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000))"
"""More than a gigabyte."""
LATER = f"INSERT INTO queue_message (exchange, available_at, content) SELECT 'e', '9990-01-01', {SLOW} FROM generate_series(1, %s)"
WALKED = """SELECT count(*) FROM queue_message m, queue_message_walk w
    WHERE w.name = 'reject_unprintable' AND (m.xid, m.seq) <= (w.xid, w.seq)"""
REJECT = "SELECT queue_message_reject_unprintable()"


async def out_of_time(queue: Queue) -> None:
    """Let the time of each part of a call be over at once."""
    for part in ("near", "page"):
        await resize(queue, f"queue_message_reject_{part}", "'1 s'", "'0 s'")


async def fill(queue: Queue, *contents: str, available_at: str = "9990-01-01") -> list[str]:
    """Insert a message of each content, bypassing the triggers."""
    statement = "INSERT INTO queue_message (exchange, available_at, content) VALUES ('e', %s::timestamptz, {}) RETURNING id::text"
    async with unchecked(queue):
        return [await queue.value(statement.format(content), available_at) for content in contents]


async def test_a_call_ends_however_long_contents_are(queue: Queue) -> None:
    """Of many that print for long it does some, and of them each call does the next."""
    async with unchecked(queue):
        await queue.sql(LATER, 400)
    walked = []
    for _ in range(2):
        await queue.sql(REJECT)
        walked.append(await queue.value(WALKED))
    assert 0 < walked[0] < walked[1] < 400


async def test_each_call_does_one_at_least_and_comes_to_the_end(queue: Queue) -> None:
    """This holds even if each single message takes all of the time. After the last one, the walk begins again."""
    await out_of_time(queue)
    *_, endless = await fill(queue, SLOW, "'1'", SLOW, ENDLESS)
    said = []
    for _ in range(5):
        rejected = await queue.value(REJECT)
        said.append((rejected, await queue.value(WALKED)))
    assert [(0, 1), (0, 2), (0, 3), (1, 3), (0, 0)] == said
    assert {endless: "rejected"} == await queue.results()


async def test_what_came_due_first_is_tried_in_turn(queue: Queue) -> None:
    """It is found behind slow ones, one per call, wherever the walk of the queue is. Then the calls begin with the first again."""
    await out_of_time(queue)
    await fill(queue, *["'1'"] * 20)
    await fill(queue, SLOW, ENDLESS, ENDLESS, SLOW, available_at="2020-01-01")
    assert [0, 1, 1, 0, 0] == [await queue.value(REJECT) for _ in range(5)]
    await fill(queue, ENDLESS, available_at="2019-01-01")
    assert 1 == await queue.value(REJECT)


def test_a_sweep_of_the_minute_ends_however_long_contents_are(databases: Databases) -> None:
    """In a database of another encoding, a sweep prints messages as well. The next one continues where it stopped."""
    with encoded_database(databases, "LATIN1") as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(LATER.encode(), (400,))
        walked = []
        for _ in range(2):
            connection.execute("SELECT queue_message_sweep_minute()")
            [(count,)] = connection.execute(WALKED.encode()).fetchall()
            walked.append(count)
        assert 0 < walked[0] < walked[1] < 400


@pytest.mark.parametrize("stood", ["(SELECT max(xid), max(seq) FROM queue_message)", "('0'::xid8, 0)"])
def test_all_letters_are_mended_in_one_call(databases: Databases, stood: str) -> None:
    """This holds wherever the minute's walk was, although one part of it ends before it has seen all."""
    with encoded_database(databases, "WIN1252") as url, psycopg.connect(url, autocommit=True, client_encoding="UTF8") as connection:
        [(definition,)] = connection.execute("SELECT pg_get_functiondef('queue_message_reject_page'::regproc)").fetchall()
        connection.execute(definition.replace("'1 s'", "'0 s'").encode())
        connection.execute("SET session_replication_role = replica")
        for content in (letter("WIN1252"), "'good'::text", "'good'::text", letter("WIN1252")):
            connection.execute(
                f"INSERT INTO queue_message (exchange, available_at, content) VALUES ('e', '9990-01-01', to_jsonb({content}))".encode()
            )
        connection.execute("RESET session_replication_role")
        connection.execute(f"UPDATE queue_message_walk SET (xid, seq) = {stood} WHERE name = 'reject_unprintable'".encode())
        assert (2,) == connection.execute("SELECT queue_message_mend_letters()").fetchone()
