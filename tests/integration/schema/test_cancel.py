"""A message is taken back before anybody claims it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors

from relay.message import SUCCESS
from relay.ports import SettleRow
from tests.support.database.queue import MadeStore, Queue, until
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

CANCEL = b"SELECT queue_message_cancel(%s)"


async def session(queue: Queue, name: str) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
    """Another session of a name, with transactions."""
    return await psycopg.AsyncConnection.connect(queue.url, application_name=name)


async def cancelled(connection: psycopg.AsyncConnection[Any], id_: str) -> bool:
    """What the function answers."""
    row = await (await connection.execute(CANCEL, (id_,))).fetchone()
    assert row is not None
    return bool(row[0])


@pytest.mark.parametrize("wait", [None, "1 hour"])
async def test_a_message_that_nobody_has_claimed_is_taken_back(queue: Queue, wait: str | None) -> None:
    """Ready, delayed or waiting for its next attempt: archived discarded with who did it and what its last error was."""
    id_, neighbour = await queue.insert(2)
    await queue.sql("UPDATE queue_message SET available_at = now() + %s::interval, last_error = 'nacked' WHERE id = %s", wait, id_)

    assert await queue.value("SELECT queue_message_cancel(%s, 'ann')", id_)

    kept = await queue.archived(id_)
    by = f"{await queue.value('SELECT session_user::text')} (as ann)"
    assert ("discarded", "cancelled", "nacked", by) == tuple(kept[c] for c in ("result", "error_code", "error_detail", "handled_by"))
    assert [(UUID(neighbour),)] == await queue.sql("SELECT id FROM queue_message")
    assert not await queue.value("SELECT queue_message_cancel(%s)", id_)
    assert not await queue.value("SELECT queue_message_cancel(%s)", str(uuid4()))
    assert not await queue.value("SELECT queue_message_cancel(NULL)")


async def test_what_is_claimed_is_not_taken_back(queue: Queue, store: MadeStore) -> None:
    """Nor is a message with an expired lock, as the broker may have it. Once the sweep has freed it, a cancel succeeds."""
    [id_] = await queue.insert()
    await store.batch()
    assert not await queue.value("SELECT queue_message_cancel(%s)", id_)
    await queue.expire()
    assert not await queue.value("SELECT queue_message_cancel(%s)", id_)

    await queue.sql("SELECT queue_message_sweep()")

    assert await queue.value("SELECT queue_message_cancel(%s)", id_)
    assert {id_: "discarded"} == await queue.results()


async def test_a_rollback_leaves_the_message_and_a_claim_steps_over_it_meanwhile(queue: Queue, store: MadeStore) -> None:
    """A cancel belongs to its transaction. No claim waits for that, and none takes a message that may be gone."""
    id_, other = await queue.insert(2)
    async with await session(queue, "app") as app:
        assert await cancelled(app, id_)
        assert [other] == await store.ids()
        await app.rollback()
    assert [id_] == await store.ids()


async def test_a_cancel_waits_for_a_claim_that_is_being_made(queue: Queue) -> None:
    """It then learns the outcome of the claim: claimed after a commit, free after a rollback."""
    lock = b"UPDATE queue_message SET lock_expires_at = now() + interval '1 min', lock_token = gen_random_uuid() WHERE id = %s"
    for commits in (True, False):
        [id_] = await queue.insert()
        async with await session(queue, "claimer") as claimer, await session(queue, "app") as app:
            await claimer.execute(lock, (id_,))
            answer = asyncio.create_task(cancelled(app, id_))
            await until(lambda: queue.is_held_up("app"))
            await (claimer.commit() if commits else claimer.rollback())
            assert (not commits) == await answer


async def test_an_open_transaction_that_was_refused_holds_up_no_settle(queue: Queue) -> None:
    """The cancel waited for the claim and so got the row's lock. It releases that with its answer."""
    [id_] = await queue.insert()
    async with await session(queue, "blocker") as blocker, await session(queue, "app") as app:
        await blocker.execute(b"SELECT FROM queue_message WHERE id = %s FOR SHARE", (id_,))
        answer = asyncio.create_task(cancelled(app, id_))
        await until(lambda: queue.is_held_up("app"))
        await blocker.execute(b"UPDATE queue_message SET lock_expires_at = now() + interval '1 min' WHERE id = %s", (id_,))
        await blocker.commit()
        assert not await answer
        await queue.sql("SELECT FROM queue_message WHERE id = %s FOR UPDATE NOWAIT", id_)


async def test_of_two_that_cancel_at_once_one_does(queue: Queue) -> None:
    """The second waits for the first, and then finds no message."""
    [id_] = await queue.insert()
    async with await session(queue, "first") as first, await session(queue, "second") as second:
        assert await cancelled(first, id_)
        answer = asyncio.create_task(cancelled(second, id_))
        await until(lambda: queue.is_held_up("second"))
        await first.commit()
        assert not await answer
    assert {id_: "discarded"} == await queue.results()


async def test_an_ordering_key_recovered(queue: Queue, store: MadeStore) -> None:
    """The successor of a head is due; in the middle of a key nothing else changes."""
    first, second, third, fourth = await queue.insert(4, ordering_key="k")
    assert await queue.value("SELECT queue_message_cancel(%s)", third)
    assert 0 == await queue.value("SELECT count(*) FROM queue_message WHERE available_at IS NOT NULL")

    assert await queue.value("SELECT queue_message_cancel(%s)", first)

    left = "SELECT id, available_at <= now() FROM queue_message ORDER BY seq"
    assert [(UUID(second), True), (UUID(fourth), None)] == await queue.sql(left)
    lanes = await store.keep_lanes()
    batch = (await store.claim_heads("k", lanes=lanes)).batch
    assert batch is not None
    assert [second] == [claim.id for claim in batch.claims]
    assert [] == await store.archive(batch, [SettleRow(batch.claims[0], SUCCESS, 1, 2)], again=False)


async def test_without_a_day_in_the_archive_nothing_is_lost(queue: Queue) -> None:
    """The cancel fails, and the message stays where it is."""
    [id_] = await queue.insert()
    days = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'queue_message_archive_daily'::regclass"
    for (day,) in await queue.sql(days):
        await queue.sql(f"DROP TABLE {day}")

    with pytest.raises(errors.CheckViolation, match="no partition"):
        await queue.sql("SELECT queue_message_cancel(%s)", id_)

    assert 1 == await queue.waiting()


async def test_a_cancelled_message_is_replayed_only_when_it_is_meant(queue: Queue) -> None:
    """By its id or by its code; who replays an hour does not send what was taken back."""
    [id_], [sent] = await queue.insert(), await queue.insert()
    await queue.sql("SELECT queue_message_cancel(%s)", id_)
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'success', NULL, NULL, 'r')", sent)
    find = "SELECT id::text FROM queue_message_find({}) ORDER BY id"

    assert [(sent,)] == await queue.sql(find.format(""))
    assert [(id_,)] == await queue.sql(find.format("result => 'discarded'"))
    assert [(id_,)] == await queue.sql(find.format("error_code => 'cancelled'"))
    again = await queue.value("SELECT queue_message_replay(%s)::text", id_)
    assert [(again, id_)] == await queue.sql("SELECT id::text, replay_of::text FROM queue_message")


def test_the_command_says_what_became_of_each(cli: Cli, seeded: Seeded) -> None:
    """Exit 0, 1 where one was claimed or settled, 3 where one is not there; the others are cancelled all the same."""
    one, two, sent, nobody = seeded.insert(), seeded.insert(), seeded.archive("success"), str(uuid4())
    claimed = seeded.insert()
    seeded.run("UPDATE queue_message SET lock_expires_at = now() + interval '1 min' WHERE id = %s", claimed)

    assert f"message {one} is cancelled\n" == cli("cancel", one)
    assert f"message {two} is cancelled\n" == cli("cancel", sent, two, claimed, nobody, code=1)

    lines = cli.stderr.splitlines()
    assert f"Message {sent} was settled already as success; `relay show {sent}` tells its story." == lines[0]
    assert lines[1].startswith(f"Message {claimed} is claimed until 20")
    assert f"No message has the id {nobody}, neither in the queue nor in the archive." == lines[2]
    assert f"Message {one} was settled already as discarded (cancelled)" in cli.refused("cancel", one, code=1)
    assert "No message has the id" in cli.refused("cancel", nobody, code=3)
    assert cli.refused("cancel", "x", code=2).startswith("ID must be an id such as")


async def test_who_may_cancel(queue: Queue) -> None:
    """Operators, and the application's login to which it was granted, with its name in the archive; a producer as such may not."""
    ids = await queue.insert(2)
    with login(queue.url, "queue_message_producer") as url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as app:
            with pytest.raises(errors.InsufficientPrivilege):
                await app.execute(CANCEL, (ids[0],))
            await queue.sql(f"GRANT EXECUTE ON FUNCTION queue_message_cancel TO {app.info.user}")
            assert await cancelled(app, ids[0])
            assert app.info.user == (await queue.archived(ids[0]))["handled_by"]
            await queue.sql(f"REVOKE EXECUTE ON FUNCTION queue_message_cancel FROM {app.info.user}")
    with login(queue.url, "queue_message_operator") as url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as operator:
            assert await cancelled(operator, ids[1])
