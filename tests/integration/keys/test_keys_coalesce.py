"""Of the messages with one coalesce_key only the newest that is not sent yet goes out."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import psycopg
import pytest
from psycopg import errors

from relay.message import SUCCESS
from relay.ports import SettleRow
from tests.support.database.keyed import contents, fates, fold, insert, keyed, other, queued
from tests.support.database.queue import MadeStore, Queue, until


async def test_the_newest_is_sent_and_the_older_say_what_replaced_them(queue: Queue) -> None:
    """With its own id; keys and exchanges do not mix, a later version by routing key replaces as well."""
    first, second, third = [await keyed(queue, coalesce_key="c", content=n, routing_key=str(n)) for n in (1, 2, 3)]
    await keyed(queue, coalesce_key="c", exchange="audit", content=4)
    await keyed(queue, coalesce_key="d", content=5)

    assert 5 == await fold(queue)

    assert [3, 4, 5] == await contents(queue)
    assert third == (await queued(queue))[0][0]
    assert {first: other(third), second: other(third)} == await fates(queue)
    assert (0, {"folded": 0, "next_at": None, "superseded": 0, "bundled": 0}) == (
        await fold(queue),
        await queue.value("SELECT to_jsonb(f) FROM queue_message_fold() f"),
    )


async def test_what_was_sent_to_the_queue_and_is_not_claimed_is_replaced(queue: Queue) -> None:
    """So a broker that is down for long leaves one message for each key, also where the last one waits for another try."""
    ids = []
    for n in range(10):
        ids.append(await keyed(queue, coalesce_key="c", content=n))
        await fold(queue)
        await queue.sql("UPDATE queue_message SET available_at = now() + interval '10 min', last_error = 'broker_down'")
    assert [(ids[-1], 9)] == await queued(queue)
    assert {id_: other(after) for id_, after in pairwise(ids)} == await fates(queue)


async def test_what_is_claimed_is_left_alone(queue: Queue, store: MadeStore) -> None:
    """It is on its way; its successor waits behind it where the key is an ordering key too."""
    await keyed(queue, coalesce_key="c", ordering_key="c", content=1)
    await fold(queue)
    lanes = await store.keep_lanes()
    batch = (await store.claim_heads("c", lanes=lanes)).batch
    assert batch is not None
    second = await keyed(queue, coalesce_key="c", ordering_key="c", content=2)
    await fold(queue)
    assert [1, 2] == await contents(queue)
    assert (await store.claim_heads("c", lanes=lanes)).batch is None

    assert [] == await store.archive(batch, [SettleRow(batch.claims[0], SUCCESS, 1, 2)], again=False)

    successor = (await store.claim_heads("c", lanes=lanes)).batch
    assert successor is not None
    assert [second] == [claim.id for claim in successor.claims]


async def test_a_claim_that_is_being_made_is_not_waited_for(queue: Queue) -> None:
    """The fold steps over it, so both go out; it changes no row that somebody holds."""
    first = await keyed(queue, coalesce_key="c", content=1)
    await fold(queue)
    await keyed(queue, coalesce_key="c", content=2)
    async with await psycopg.AsyncConnection.connect(queue.url) as claimer:
        await claimer.execute(b"UPDATE queue_message SET lock_expires_at = now() + interval '1 min' WHERE id = %s", (first,))
        assert 1 == await fold(queue)
        await claimer.commit()
    assert [1, 2] == await contents(queue)
    assert {} == await fates(queue)


async def test_the_replaced_head_of_an_ordering_key_lets_it_go_on(queue: Queue) -> None:
    """The message behind it is due."""
    await keyed(queue, coalesce_key="c", ordering_key="k", content=1)
    await fold(queue)
    [behind] = await queue.insert(ordering_key="k")
    await keyed(queue, coalesce_key="c", ordering_key="k", content=2)
    await fold(queue)
    assert [(behind, {}), (await queue.value("SELECT id::text FROM queue_message ORDER BY seq DESC LIMIT 1"), 2)] == await queued(queue)
    assert await queue.value("SELECT available_at <= now() FROM queue_message WHERE id = %s", behind)


async def test_the_newest_is_who_inserted_last_whatever_its_transaction_began(queue: Queue) -> None:
    """One that began to write first and then waited for the other's row lock holds the truth; the transactions' ids do not say so."""
    await queue.sql("CREATE TABLE price (amount int)")
    await queue.sql("INSERT INTO price VALUES (0)")
    early = await psycopg.AsyncConnection.connect(queue.url, application_name="early")
    late = await psycopg.AsyncConnection.connect(queue.url)
    async with early, late:
        await early.execute(b"SELECT pg_current_xact_id()")
        await late.execute(b"UPDATE price SET amount = 1")
        await insert(late, coalesce_key="price", content=1)
        waiting = asyncio.create_task(early.execute(b"UPDATE price SET amount = 2"))
        await until(lambda: queue.is_held_up("early"))
        await late.commit()
        await waiting
        await insert(early, coalesce_key="price", content=2)
        await early.commit()
    await fold(queue)
    assert [2] == await contents(queue)
    assert 2 == await queue.value("SELECT amount FROM price")


async def test_an_older_one_that_commits_late_or_was_meant_for_later_is_not_sent(queue: Queue) -> None:
    """A newer one has been sent; it says which. Retention forgets after a day that it was."""
    async with await psycopg.AsyncConnection.connect(queue.url) as late:
        slow = await insert(late, coalesce_key="c", content=1)
        await keyed(queue, coalesce_key="c", content=2, available_at=await queue.value("SELECT now() + interval '1 hour'"))
        newest = await keyed(queue, coalesce_key="c", content=3)
        await fold(queue)
        await late.commit()
    await queue.sql("SELECT queue_message_retain(now() + interval '2 days')")
    assert 1 == await fold(queue)
    assert 1 == await fold(queue, "2 hours")
    assert slow is not None
    assert [(newest, 3)] == await queued(queue)
    assert other(newest) == (await fates(queue))[slow]
    await queue.sql("SELECT queue_message_cancel(%s)", newest)
    await queue.sql("SELECT queue_message_delete_keys(now() + interval '3 days')")
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_coalesced")


async def test_numbers_that_begin_anew_supersede_nothing(queue: Queue) -> None:
    """As after a TRUNCATE that restarts them: what is inserted after the last fold is newer."""
    await queue.insert(100)
    await keyed(queue, coalesce_key="c", content=1)
    await fold(queue)
    await queue.sql("TRUNCATE queue_message RESTART IDENTITY")
    await keyed(queue, coalesce_key="c", content=2)
    await fold(queue)
    assert [2] == await contents(queue)


async def test_a_limit_lets_no_older_one_through(queue: Queue) -> None:
    """Of more than a fold takes the newest go first, and the rest is replaced by it."""
    ids = [await keyed(queue, coalesce_key="c", content=n) for n in range(7)]
    while await queue.value("SELECT folded FROM queue_message_fold(most => 3)"):
        assert [(ids[-1], 6)] == await queued(queue)
    assert dict.fromkeys(ids[:-1], other(ids[-1])) == await fates(queue)


async def test_two_folds_at_once_send_once(queue: Queue) -> None:
    """Who finds another at it leaves it; a fold that is rolled back has changed nothing."""
    ids = [await keyed(queue, coalesce_key="c", content=n) for n in (1, 2)]
    async with await psycopg.AsyncConnection.connect(queue.url) as first:
        await first.execute(b"SELECT queue_message_fold()")
        assert 0 == await fold(queue)
        await first.rollback()
    assert (0, {}) == (await queue.waiting(), await fates(queue))
    assert 2 == await fold(queue)
    assert [(ids[1], 2)] == await queued(queue)


async def test_a_fold_does_not_begin_before_the_other_has_ended(queue: Queue) -> None:
    """It could not see what the other fold sent, and would leave that message next to its successor."""
    first = await keyed(queue, coalesce_key="c", content=1)
    await queue.sql("SET lock_timeout = '1s'")
    async with await psycopg.AsyncConnection.connect(queue.url) as other_fold:
        await other_fold.execute(b"SELECT queue_message_fold()")
        second = await keyed(queue, coalesce_key="c", content=2)
        assert 0 == await fold(queue)
        await other_fold.commit()
    assert 1 == await fold(queue)
    assert [(second, 2)] == await queued(queue)
    assert {first: other(second)} == await fates(queue)


async def test_many_folds_and_inserts_at_once_lose_and_double_nothing(queue: Queue) -> None:
    """Each message is in the queue or archived, once, and the last of each key is in the queue."""

    async def write(number: int) -> None:
        async with await psycopg.AsyncConnection.connect(queue.url, autocommit=True) as connection:
            for n in range(40):
                await insert(connection, coalesce_key=f"c{number % 2}", content=[number, n])

    async def folds() -> None:
        async with await psycopg.AsyncConnection.connect(queue.url, autocommit=True) as connection:
            for _ in range(40):
                await connection.execute(b"SELECT queue_message_fold()")

    await asyncio.gather(*(write(number) for number in range(4)), folds(), folds())
    await fold(queue)
    fate = await fates(queue)
    last = [content[1] for content in await contents(queue)]
    assert [39, 39] == last
    assert {("discarded", "superseded")} == {(result, code) for result, code, _ in fate.values()}
    assert 160 == len(fate) + 2
    assert 160 == await queue.value("SELECT count(*) FROM queue_message_archive") + 2


async def test_what_waits_under_its_key_is_taken_back_and_shown(queue: Queue) -> None:
    """By its id: the view of states says keyed, and after a cancel discarded."""
    id_ = await keyed(queue, coalesce_key="c")
    state = "SELECT state FROM queue_message_state WHERE id = %s"
    assert "keyed" == await queue.value(state, id_)
    assert await queue.value("SELECT queue_message_cancel(%s)", id_)
    assert "discarded" == await queue.value(state, id_)
    assert 0 == await fold(queue)
    assert 0 == await queue.waiting()


async def test_a_cancel_and_a_fold_at_once(queue: Queue) -> None:
    """The fold steps over what is being cancelled; a cancel that waited for a fold finds the message in the queue."""
    first, second = [await keyed(queue, coalesce_key=key) for key in "ab"]
    async with await psycopg.AsyncConnection.connect(queue.url, application_name="app") as app:
        await app.execute(b"SELECT queue_message_cancel(%s)", (first,))
        assert 1 == await fold(queue)
        await app.commit()
        third = await keyed(queue, coalesce_key="c")
        async with await psycopg.AsyncConnection.connect(queue.url) as folder:
            await folder.execute(b"SELECT queue_message_fold()")
            answer = asyncio.create_task(app.execute(b"SELECT queue_message_cancel(%s)", (third,)))
            await until(lambda: queue.is_held_up("app"))
            await folder.commit()
            assert (True,) == await (await answer).fetchone()
            await app.commit()
    assert [second] == [id_ for id_, _ in await queued(queue)]
    assert {first: "cancelled", third: "cancelled"} == {id_: code for id_, (_, code, _) in (await fates(queue)).items()}


async def test_a_missing_day_leaves_what_waits_where_it_is(queue: Queue) -> None:
    """The fold fails as a whole, and is done once the day is there; nothing goes to the dead side."""
    for key in ("coalesce_key", "bundle_key"):
        for n in (1, 2):
            await keyed(queue, **{key: "k", "content": n})
    for (day,) in await queue.sql(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'queue_message_archive_daily'::regclass"
    ):
        await queue.sql(f"DROP TABLE {day}")
    with pytest.raises(errors.CheckViolation, match="no partition"):
        await fold(queue, "1 min")
    assert (0, {}) == (await queue.waiting(), await fates(queue))
    await queue.sql("SELECT queue_message_ensure_partitions()")
    assert 4 == await fold(queue, "1 min")
    assert [2, [1, 2]] == await contents(queue)


async def test_what_the_queue_refuses_at_the_fold_is_dead_and_holds_up_no_other(queue: Queue) -> None:
    """An example is a message that bypassed the triggers."""
    bad = await keyed(queue, coalesce_key="c", content=1)
    await queue.sql("UPDATE queue_message_keyed_row SET options = '{\"priority\": 300}'")
    await keyed(queue, coalesce_key="d", content=2)
    assert 2 == await fold(queue)
    assert [2] == await contents(queue)
    assert ("rejected", "refused") == (await fates(queue))[bad][:2]


async def test_a_replay_of_a_replaced_message_sends_it_by_itself(queue: Queue) -> None:
    """Only where it is named; it replaces nothing and is not replaced."""
    first, second = [await keyed(queue, coalesce_key="c", content=n) for n in (1, 2)]
    await fold(queue)
    assert [] == await queue.sql("SELECT id FROM queue_message_find()")
    assert [(first,)] == await queue.sql("SELECT id::text FROM queue_message_find(error_code => 'superseded')")
    await queue.sql("SELECT queue_message_replay(%s)", first)
    third = await keyed(queue, coalesce_key="c", content=3)
    await fold(queue)
    assert [1, 3] == await contents(queue)
    assert {first: other(second), second: other(third)} == await fates(queue)
