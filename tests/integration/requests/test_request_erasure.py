"""What an erasure leaves of requests: neither their rows' keys nor digests of what they asked."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from relay.postgres.schema.migrate import migrate
from tests.support.database.older_schema import migrate_until
from tests.support.database.queue import MadeStore, Queue
from tests.support.database.requests import answered, asked, row

FORGOTTEN = 89
"""The migration that lets an erasure forget requests."""
TABLE = "CREATE TABLE page (id int PRIMARY KEY, url text, at timestamptz, code int, error text)"
REQUEST = "SELECT queue_message_request('page', '{at,code}', error => 'error')"
KEYS = "SELECT key ->> 'id' FROM queue_message_request_row ORDER BY 1"
ERASE = "SELECT queue_message_erase(part, ARRAY[%s::uuid], dry_run => false) FROM queue_message_archive_parts() part"
ENDS = ["failed", "rejected", "lock_expired", "discarded"]


async def _ended(queue: Queue, number: int, result: str = "failed") -> str:
    """A request that was archived without an answer."""
    id_ = await asked(queue, number)
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], %s, 'x', 'y', 'r')", id_, result)
    return id_


@pytest.fixture
async def table(inbox_queue: Queue) -> Queue:
    """A table of requests."""
    await inbox_queue.sql(TABLE)
    await inbox_queue.sql(REQUEST)
    return inbox_queue


@pytest.mark.parametrize("result", ENDS)
async def test_an_erasure_forgets_the_request(table: Queue, result: str) -> None:
    """However it ended; other requests stay known, and a dry run forgets none."""
    erased, _ = await _ended(table, 1, result), await _ended(table, 2, result)

    await table.sql(ERASE.replace("false", "true"), erased)
    assert [("1",), ("2",)] == await table.sql(KEYS)
    await table.sql(ERASE, erased)
    assert [("2",)] == await table.sql(KEYS)


@pytest.mark.parametrize("same_id", [False, True])
async def test_a_replay_that_waits_still_answers_after_the_erasure(table: Queue, store: MadeStore, same_id: bool) -> None:
    """It has an entry of its own, which its answer takes away, also where it has the id of the erased message."""
    erased = await _ended(table, 1)
    await table.sql("SELECT queue_message_replay(%s, same_id => %s)", erased, same_id)
    await table.sql(ERASE, erased)

    async with await psycopg.AsyncConnection[Any].connect(table.url) as answering:
        assert None is await answered(answering, await store.batch(), {"code": 200})
    assert 200 == (await row(table))["code"]
    assert [] == await table.sql(KEYS)


async def test_what_was_erased_before_an_upgrade_is_forgotten_by_it(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if retention has dropped the message meanwhile; what was not erased stays known."""
    migrate_until(empty_database_url, FORGOTTEN - 1, monkeypatch, seed={"direction": "inbox"})
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        queue = Queue(empty_database_url, connection)
        await queue.sql(TABLE)
        await queue.sql(REQUEST)
        await queue.sql(ERASE, await _ended(queue, 1))
        await queue.sql("SELECT queue_message_retain(now() + interval '10 years')")
        await queue.sql(ERASE, await _ended(queue, 2))
        await _ended(queue, 3)
        assert [("1",), ("2",), ("3",)] == await queue.sql(KEYS)

        migrate(empty_database_url)

        assert [("3",)] == await queue.sql(KEYS)
