"""A message with a dedup_key is enqueued once within its window; what keys there are is judged by the INSERT."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.support.database.keyed import contents, fates, fold, insert, keyed, queued
from tests.support.database.queue import Queue, until
from tests.support.servers.logins import login


async def test_the_second_with_a_key_is_not_inserted(queue: Queue) -> None:
    """INSERT 0 0 and no id; another exchange and another key are others. The first is an ordinary message at once."""
    first = await keyed(queue, dedup_key="payment-7", content={"n": 1})

    assert await insert(queue.connection, dedup_key="payment-7", content={"n": 2}) is None
    await keyed(queue, dedup_key="payment-8", content={"n": 3})
    await keyed(queue, dedup_key="payment-7", exchange="audit", content={"n": 4})
    cursor = await queue.connection.execute(
        b"INSERT INTO queue_message_keyed (exchange, dedup_key) SELECT 'orders', k FROM unnest(ARRAY['a', 'a', 'b', 'payment-7']) AS k"
    )

    assert 2 == cursor.rowcount
    assert (first, {"n": 1}) == (await queued(queue))[0]
    assert [{"n": 1}, {"n": 3}, {"n": 4}, {}, {}] == await contents(queue)


async def test_a_key_is_new_again_after_its_window(queue: Queue) -> None:
    """The window is the message's own, or the setting's; retention forgets what has passed."""
    await keyed(queue, dedup_key="k", dedup_seconds=60)
    await queue.sql("SELECT queue_message_config_set('dedup_seconds', '7')")
    await keyed(queue, dedup_key="l")
    windows = "SELECT dedup_key, extract(epoch FROM until - now())::int > 7 FROM queue_message_dedup ORDER BY 1"
    assert [("k", True), ("l", False)] == await queue.sql(windows)

    await queue.sql("UPDATE queue_message_dedup SET until = now() WHERE dedup_key = 'k'")
    await keyed(queue, dedup_key="k", dedup_seconds=60)
    assert await insert(queue.connection, dedup_key="k") is None

    assert [("deleted", "queue_message_dedup", 1)] == await queue.sql("SELECT * FROM queue_message_retain(now() + interval '30 s')")
    assert [("k",)] == await queue.sql("SELECT dedup_key FROM queue_message_dedup")


@pytest.mark.parametrize("commits", [True, False])
async def test_a_second_waits_for_the_first_transaction(queue: Queue, commits: bool) -> None:
    """After its commit there is one message already; after its rollback the second is the first."""
    first = await psycopg.AsyncConnection.connect(queue.url)
    second = await psycopg.AsyncConnection.connect(queue.url, application_name="second")
    async with first, second:
        assert await insert(first, dedup_key="k", content=1)
        answer = asyncio.create_task(insert(second, dedup_key="k", content=2))
        await until(lambda: queue.is_held_up("second"))
        await (first.commit() if commits else first.rollback())
        assert commits == (await answer is None)
    assert [1 if commits else 2] == await contents(queue)


async def test_a_replay_and_a_cancel_leave_the_key_known(queue: Queue) -> None:
    """The key judges what an application inserts, and nothing else."""
    id_ = await keyed(queue, dedup_key="k")
    assert await queue.value("SELECT queue_message_cancel(%s)", id_)
    assert await insert(queue.connection, dedup_key="k") is None

    await queue.sql("SELECT queue_message_replay(%s)", id_)

    assert 1 == await queue.waiting()


async def test_a_dedup_key_goes_with_another_key(queue: Queue) -> None:
    """What is known already takes no part in a bundle, and replaces nothing."""
    for content in (1, 2):
        await insert(queue.connection, dedup_key="once", bundle_key="b", content=content)
        await insert(queue.connection, dedup_key="newest", coalesce_key="c", content=content)
    assert 2 == await fold(queue, "1 min")
    assert [1, [1]] == await contents(queue)
    assert ["bundled"] == [code for _, code, _ in (await fates(queue)).values()]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({}, "all null; insert a message without a key into queue_message"),
        ({"bundle_key": "a", "coalesce_key": "b"}, "bundle_key and coalesce_key are both given"),
        ({"bundle_key": "a", "body": b"x"}, "body and bundle_key are both given"),
        ({"dedup_key": "x" * 1025}, "dedup_key is 1025 bytes long; the limit is 1024 bytes"),
        ({"bundle_key": "ü" * 513}, "bundle_key is 1026 bytes long"),
        ({"coalesce_key": "x" * 1025}, "coalesce_key is 1025 bytes long"),
        ({"dedup_key": "x", "dedup_seconds": 0}, "dedup_seconds is 0; it must be from 1 to 31536000"),
        ({"coalesce_key": "x", "dedup_seconds": 5}, "beside a dedup_key"),
        ({"coalesce_key": "x", "exchange": "x" * 256}, "exchange is 256 bytes long"),
        ({"bundle_key": "x", "options": {"persistant": True}}, "unknown option"),
        ({"dedup_key": "x", "options": {"priority": 300}}, "options.priority must"),
        ({"coalesce_key": "x", "expires_at": "2031-01-01", "available_at": "2031-01-02"}, "could never be sent"),
        ({"bundle_key": "x", "available_at": "infinity"}, "available_at is infinite"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_a_sentence(queue: Queue, columns: dict[str, Any], sentence: str) -> None:
    """By the INSERT, in the words that the queue has for it; and no key is known by it."""
    with pytest.raises(errors.CheckViolation, match=sentence):
        await insert(queue.connection, **columns)
    assert [(0, 0, 0)] == await queue.sql(
        "SELECT (SELECT count(*) FROM queue_message_keyed), (SELECT count(*) FROM queue_message_dedup), count(*) FROM queue_message"
    )


@pytest.mark.parametrize("column", ["exchange", "content", "options", "routing_key", "id"])
async def test_null_is_refused_where_the_queue_refuses_it(queue: Queue, column: str) -> None:
    """This includes the messages of a bundle."""
    values = {"exchange": "'e'", column: "NULL"}
    for key in ("bundle_key", "coalesce_key", "dedup_key"):
        with pytest.raises(errors.NotNullViolation):
            await queue.sql(f"INSERT INTO queue_message_keyed ({key}, {', '.join(values)}) VALUES ('k', {', '.join(values.values())})")


async def test_roles_of_messages_with_a_key(queue: Queue) -> None:
    """A producer inserts and sees only ids; a relay and an operator fold. No role reads or changes waiting messages."""
    with login(queue.url, "queue_message_producer") as url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as app:
            for key in ("bundle_key", "coalesce_key", "dedup_key"):
                assert await insert(app, **{key: "k"})
            for statement in (
                "SELECT content FROM queue_message_keyed", "TABLE queue_message_keyed_row", "DELETE FROM queue_message_keyed",
                "UPDATE queue_message_keyed SET bundle_key = 'x'", "SELECT * FROM queue_message_fold()", "TABLE queue_message_dedup",
                "INSERT INTO queue_message_keyed_row (seq, exchange, due_at) VALUES (1, 'e', now())", "TABLE queue_message_coalesced",
                "SELECT queue_message_first('e', 'k', gen_random_uuid(), 1)", "DELETE FROM queue_message_dedup",
            ):  # fmt: skip
                with pytest.raises(errors.InsufficientPrivilege):
                    await app.execute(statement.encode())
    for role in ("queue_message_relay", "queue_message_operator"):
        with login(queue.url, role) as url:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                await connection.execute(b"SELECT * FROM queue_message_fold()")
                await connection.execute(b"SELECT count(*), min(due_at) FROM queue_message_keyed_row")
                for statement in (
                    "SELECT content FROM queue_message_keyed_row", "SELECT * FROM queue_message_fold('2999-01-01')",
                    "INSERT INTO queue_message_keyed (exchange, dedup_key) VALUES ('e', 'k')",
                ):  # fmt: skip
                    with pytest.raises(errors.InsufficientPrivilege):
                        await connection.execute(statement.encode())
