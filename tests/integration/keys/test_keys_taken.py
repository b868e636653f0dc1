"""Messages under a coalesce_key whose id somebody else has inserted into the queue: they are sent all the same, with another id."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from tests.support.database.keyed import contents, fates, fold, keyed, other, queued
from tests.support.database.queue import Queue
from tests.support.servers.logins import login

TAKE = "INSERT INTO queue_message (id, exchange) VALUES (%s, 'elsewhere')"

LEAK = (
    "CREATE TEMP TABLE seen (id uuid)",
    """CREATE FUNCTION pg_temp.leak(id uuid) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$
        BEGIN INSERT INTO seen VALUES (id); RETURN true; END $$""",
    "SELECT id FROM queue_message_keyed WHERE pg_temp.leak(id)",
)
"""What shows a row to a function before the view's own condition has been asked."""


async def sent_as(queue: Queue, id_: str) -> str:
    """With which id a message was sent whose own was taken."""
    detail = str(await queue.value("SELECT error_detail FROM queue_message_archive WHERE id = %s AND error_code = 'superseded'", id_))
    return detail.removeprefix("replaced by ")


async def test_a_message_whose_id_is_taken_is_sent_with_a_new_one(queue: Queue) -> None:
    """The archive gives the new id under the original one and under those of older versions. The message is not a replay."""
    first, second = [await keyed(queue, coalesce_key="c", content=n) for n in (1, 2)]
    await queue.sql(TAKE, second)

    assert 2 == await fold(queue)

    assert [{}, 2] == await contents(queue)
    assert {first: other(second), second: other(await sent_as(queue, second))} == await fates(queue)
    assert [(None,)] == await queue.sql("SELECT replay_of FROM queue_message WHERE id = %s", await sent_as(queue, second))


@pytest.mark.parametrize("sent", [False, True])
async def test_what_is_sent_with_a_new_id_counts_as_no_replay(queue: Queue, *, sent: bool) -> None:
    """A producer gives two messages the id of another's dead message. That one is replayed as ever."""
    await queue.sql("INSERT INTO queue_message (exchange) VALUES ('victim')")
    dead = str(await queue.value("SELECT id FROM queue_message"))
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', 'x', NULL, 'relay-1')", dead)
    await queue.sql(TAKE, dead)
    await queue.sql("INSERT INTO queue_message_keyed (id, exchange, coalesce_key) VALUES (%s, 'e', 'c')", dead)
    assert 1 == await fold(queue)
    if sent:
        await queue.sql("SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'relay-1') FROM queue_message")

    assert [(dead,)] == await queue.sql("SELECT id::text FROM queue_message_find(result => 'failed')")


async def test_the_next_version_replaces_what_was_sent_with_a_new_id(queue: Queue) -> None:
    """And leaves the row that took the id where it is."""
    taken = await keyed(queue, coalesce_key="c", content=1)
    await queue.sql(TAKE, taken)
    await fold(queue)
    sent = await sent_as(queue, taken)

    successor = await keyed(queue, coalesce_key="c", content=2)
    await fold(queue)

    assert [(taken, {}), (successor, 2)] == await queued(queue)
    assert {taken: other(sent), sent: other(successor)} == await fates(queue)


async def test_a_row_that_has_the_id_of_what_was_sent_is_not_replaced(queue: Queue) -> None:
    """What was sent has left the queue, and somebody inserts a message with its id: the next version of the key leaves that alone."""
    used = await keyed(queue, coalesce_key="c", content=1)
    await fold(queue)
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'success', NULL, NULL, 'relay-1')", used)
    await queue.sql(TAKE, used)

    await keyed(queue, coalesce_key="c", content=2)
    await fold(queue)

    assert [{}, 2] == await contents(queue)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_an_open_transaction_that_inserts_the_id_holds_up_no_fold(queue: Queue, ends: str) -> None:
    """However it ends, the message is sent once."""
    taken = await keyed(queue, coalesce_key="c", content=1)
    async with await psycopg.AsyncConnection.connect(queue.url) as foe:
        await foe.execute(TAKE, (taken,))
        await queue.sql("SET statement_timeout = '10s'")
        assert 1 == await fold(queue)
        assert [1] == await contents(queue)
        await (foe.commit() if ends == "commit" else foe.rollback())
    assert 0 == await fold(queue)
    assert [1] == [content for _, content in await queued(queue) if content]


async def test_an_open_transaction_that_inserts_many_ids_holds_up_no_other_key(queue: Queue) -> None:
    """A fold waits for one of them, and ends after two seconds; each wait counted, these would take half a minute."""
    ids = [await keyed(queue, coalesce_key=f"c{n}", content=n) for n in range(300)]
    await keyed(queue, coalesce_key="other", content=1)
    async with await psycopg.AsyncConnection.connect(queue.url) as foe:
        await foe.execute("INSERT INTO queue_message (id, exchange) SELECT id, 'elsewhere' FROM unnest(%s::uuid[]) AS id", (ids,))
        await queue.sql("SET statement_timeout = '15s'")
        assert 301 == sum([await fold(queue) for _ in range(5)])
        await foe.rollback()
    assert 301 == await queue.waiting()


async def test_a_locked_queue_is_not_taken_for_a_taken_id(queue: Queue) -> None:
    """Nothing changes, and the next fold sends the message with its own id."""
    id_ = await keyed(queue, coalesce_key="c", content=1)
    async with await psycopg.AsyncConnection.connect(queue.url) as owner:
        await owner.execute("LOCK TABLE queue_message IN SHARE MODE")
        with pytest.raises(errors.LockNotAvailable):
            await fold(queue)
    assert 1 == await fold(queue)
    assert ([(id_, 1)], {}) == (await queued(queue), await fates(queue))


async def test_a_producer_sees_the_ids_under_keys_that_its_own_transaction_inserted(queue: Queue) -> None:
    """So it learns no id that it could take. Any login that may read the table sees all."""
    await keyed(queue, coalesce_key="c", content=1)
    with login(queue.url, "queue_message_producer") as url:
        async with await psycopg.AsyncConnection.connect(url) as producer:
            mine = await (await producer.execute(
                "INSERT INTO queue_message_keyed (exchange, coalesce_key) VALUES ('e', 'd') RETURNING id")).fetchall()  # fmt: skip
            assert mine == await (await producer.execute("SELECT id FROM queue_message_keyed")).fetchall()
            await producer.commit()
            assert [] == await (await producer.execute("SELECT id FROM queue_message_keyed")).fetchall()
            for statement in LEAK:
                await producer.execute(statement.encode())
            assert [] == await (await producer.execute("SELECT * FROM seen")).fetchall()
    assert [(2,)] == await queue.sql("SELECT count(*) FROM queue_message_keyed")
