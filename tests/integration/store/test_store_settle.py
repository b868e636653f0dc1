"""Settling: what is archived, what is fenced, and what happens to a row that the archive refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from relay import events
from relay.engine.policy import Policy
from relay.engine.settler import RetryingSettler
from relay.errors import StoreError
from relay.message import CONFIRMED, SUCCESS, Archive, Batch, Claim, GiveBack, Outcome, Portion, Result, Retry
from relay.ports import SettleRow
from relay.postgres.session import Session
from tests.support.database.queue import MadeStore, MakeStore, Queue, lost, positions_of

COPIED = (
    "xid", "seq", "id", "exchange", "routing_key", "content", "body", "options", "ordering_key", "available_at", "expires_at",
    "created_at", "attempts", "replay_of",
)  # fmt: skip


def rows(claims: Sequence[Claim], outcome: Outcome = SUCCESS) -> list[SettleRow]:
    """The claims with one outcome, published after 1,500 and confirmed after 2,500 microseconds."""
    return [SettleRow(claim, outcome, 1500, 2500) for claim in claims]


def portion(claims: Sequence[Claim]) -> Portion:
    """Claims that were all confirmed."""
    return Portion(list(claims), [CONFIRMED] * len(claims), [0.0] * len(claims), [0.0] * len(claims))


@pytest.mark.ids("A8", "C6", "C13")
async def test_a_confirmed_message_moves_to_the_archive_whole(queue: Queue, store: MadeStore) -> None:
    """Everything the row had, with who handled it and when it was claimed, published and confirmed."""
    [id_] = await queue.insert(
        routing_key="new", content='{"n": 1.00}', options='{"priority": 3}', ordering_key="k", expires_at="2999-01-01T00:00:00Z",
        available_at="2020-01-01T00:00:00Z", replay_of="00000000-0000-7000-8000-000000000001",
    )  # fmt: skip
    batch = (await store.claim_heads("k")).batch
    assert batch is not None
    before = await queue.row(id_)

    assert [] == await store.archive(batch, rows(batch.claims), again=False)

    archived = await queue.archived(id_)
    assert 0 == await queue.waiting()
    assert {name: before[name] for name in COPIED} == {name: archived[name] for name in COPIED}
    assert ("success", None, None, store._name) == tuple(archived[name] for name in ("result", "error_code", "error_detail", "handled_by"))
    zero = batch.claimed_at
    assert pytest.approx([zero, zero + 0.0015, zero + 0.0025], abs=2e-6) == [
        datetime.fromisoformat(archived[name]).astimezone(UTC).timestamp() for name in ("claimed_at", "published_at", "confirmed_at")
    ]
    assert archived["archived_at"] is not None


@pytest.mark.ids("A9", "A10", "A34")
async def test_each_message_gets_its_own_result(queue: Queue, store: MadeStore) -> None:
    """Successes, dead and discarded messages of one batch are distinguished, with code and sentence."""
    ids = await queue.insert(4)
    batch = await store.batch()
    outcomes = [
        SUCCESS,
        Archive(Result.REJECTED, "big", "17 MB."),
        Archive(Result.FAILED, "nack", "No."),
        Archive(Result.DISCARDED, "x"),
    ]

    left = await store.archive(batch, [SettleRow(c, o, None, None) for c, o in zip(batch.claims, outcomes, strict=True)], again=False)

    assert [] == left
    assert dict(zip(ids, ("success", "rejected", "failed", "discarded"), strict=True)) == await queue.results()
    assert [("failed", "nack", "No."), ("rejected", "big", "17 MB.")] == await queue.sql(
        "SELECT result, error_code, error_detail FROM queue_message_dead ORDER BY result"
    )
    rejected = await queue.archived(ids[1])
    assert (None, None) == (rejected["published_at"], rejected["confirmed_at"])


@pytest.mark.ids("A11", "B9")
async def test_a_late_settle_does_not_touch_a_message_claimed_anew(queue: Queue, store: MadeStore, make_store: MakeStore) -> None:
    """The relay whose lock expired cannot settle the message that its successor now holds."""
    [id_] = await queue.insert()
    late = await store.batch()
    await queue.expire(id_)
    await store.sweep()
    other = make_store("other")
    await other.register()
    successor = await other.found_batch("suspect")

    assert lost(id_) == await store.archive(late, rows(late.claims), again=False)
    assert lost(id_) == await store.release(late, rows(late.claims, Retry(1.0, "x", "y")), again=False)
    assert 0 == await store.renew(late, positions_of(late))
    assert successor.token == (await queue.row(id_))["lock_token"]
    assert {} == await queue.results()


async def test_an_expired_lock_that_nobody_took_still_settles(queue: Queue, store: MadeStore) -> None:
    """The token fences, not the time: a confirmed message is archived though its lock has run out."""
    await queue.insert()
    batch = await store.batch()
    await queue.expire()

    assert [] == await store.archive(batch, rows(batch.claims), again=False)


async def test_lost_messages_are_named_beside_those_that_were_settled(queue: Queue, store: MadeStore) -> None:
    """Of a batch with one foreign token the others are archived, and the one is returned."""
    ids = await queue.insert(3)
    batch = await store.batch()
    await queue.expire(ids[1])
    await queue.sql("UPDATE queue_message SET lock_token = gen_random_uuid() WHERE id = %s", ids[1])

    assert lost(ids[1]) == await store.archive(batch, rows(batch.claims), again=False)
    assert {ids[0]: "success", ids[2]: "success"} == await queue.results()


@pytest.mark.ids("A29")
async def test_successes_need_not_be_kept(queue: Queue, make_store: MakeStore) -> None:
    """With archive = failures a success leaves the queue without a trace, and a dead message does not."""
    store = make_store(policy=Policy(keep_successes=False))
    await store.register()
    _, dead = await queue.insert(2)
    batch = await store.batch()
    outcomes = [SUCCESS, Archive(Result.REJECTED, "no", "No.")]

    assert [] == await store.archive(batch, [SettleRow(c, o, 1, 2) for c, o in zip(batch.claims, outcomes, strict=True)], again=False)

    assert (0, {dead: "rejected"}) == (await queue.waiting(), await queue.results())


@pytest.mark.parametrize(("park", "held"), [(True, [("k", "too-large")]), (False, [])])
async def test_a_dead_head_parks_its_key_by_policy(queue: Queue, make_store: MakeStore, park: bool, held: list[tuple[str, str]]) -> None:
    """With on_dead_key = park the key of a dead message is held; keys of others never are."""
    store = make_store(policy=Policy(park_dead_keys=park))
    await store.register()
    await queue.insert(ordering_key="k")
    await queue.insert(ordering_key="l")
    batch = (await store.claim_heads("k", "l")).batch
    assert batch is not None
    outcomes = [Archive(Result.REJECTED, "too-large", "17 MB."), SUCCESS]

    await store.archive(batch, [SettleRow(c, o, 1, 2) for c, o in zip(batch.claims, outcomes, strict=True)], again=False)

    assert held == await queue.sql("SELECT ordering_key, reason FROM queue_message_key_hold")


async def test_a_settle_whose_answer_was_lost_is_read_again(queue: Queue, store: MadeStore) -> None:
    """What an earlier settle of ours archived unheard is not called lost; what others took still is."""
    ids = await queue.insert(2)
    batch = await store.batch()
    await store.archive(batch, rows(batch.claims[:1]), again=False)
    await queue.expire(ids[1])
    await queue.sql("UPDATE queue_message SET lock_token = gen_random_uuid() WHERE id = %s", ids[1])

    assert lost(ids[1]) == await store.archive(batch, rows(batch.claims), again=True)
    assert lost(*ids) == await store.archive(batch, rows(batch.claims), again=False)


async def test_a_settle_whose_answer_was_lost_is_read_again_where_successes_are_not_kept(queue: Queue, make_store: MakeStore) -> None:
    """A success that is gone was ours. What others hold or archived is lost, and so is a dead message that was not archived by us."""
    store = make_store(policy=Policy(keep_successes=False))
    await store.register()
    done, dead, taken, expired = await queue.insert(4)
    batch = await store.batch()
    outcomes = [SUCCESS, Archive(Result.FAILED, "no", "No."), SUCCESS, Archive(Result.FAILED, "no", "No.")]
    told = [SettleRow(c, o, 1, 2) for c, o in zip(batch.claims, outcomes, strict=True)]
    await store.archive(batch, told[:2], again=False)
    await queue.sql("UPDATE queue_message_setting SET value = '1' WHERE name = 'max_attempts'")
    await queue.expire(expired)
    await store.sweep()
    await queue.expire(taken)
    await queue.sql("UPDATE queue_message SET lock_token = gen_random_uuid() WHERE id = %s", taken)

    assert lost(taken, expired) == await store.archive(batch, told, again=True)
    assert {dead: "failed", expired: "lock_expired"} == await queue.results()
    assert done not in await queue.results()


GONE, NACKED = GiveBack("gone", "The broker went."), Retry(0.0, "nacked", "Full.")


@pytest.mark.parametrize(("outcome", "attempts"), [(GONE, 0), (NACKED, 1)])
async def test_a_release_whose_answer_was_lost_is_read_again(queue: Queue, store: MadeStore, outcome: Outcome, attempts: int) -> None:
    """A second release finds nothing to do, gives no attempt back twice, and reports no lost lock."""
    [id_] = await queue.insert()
    batch = await store.batch()
    back = rows(batch.claims, outcome)

    assert [[], []] == [await store.release(batch, back, again=False), await store.release(batch, back, again=True)]
    assert attempts == (await queue.row(id_))["attempts"]


@pytest.mark.parametrize("outcome", [GONE, NACKED])
async def test_a_release_that_others_took_up_is_no_lost_lock(queue: Queue, store: MadeStore, outcome: Outcome) -> None:
    """The message was released first. Then another claim took it and archived it."""
    await queue.insert()
    batch = await store.batch()
    back = rows(batch.claims, outcome)
    await store.release(batch, back, again=False)
    next_one = await store.found_batch()
    assert [] == await store.release(batch, back, again=True)

    await store.archive(next_one, rows(next_one.claims), again=False)
    assert [] == await store.release(batch, back, again=True)


@pytest.mark.parametrize("outcome", [GONE, NACKED])
async def test_a_lock_that_was_lost_before_a_second_release_is_counted(queue: Queue, store: MadeStore, outcome: Outcome) -> None:
    """Swept, taken by another, or archived as expired: the release changed nothing, and says so at every stage."""
    [id_] = await queue.insert()
    batch = await store.batch()
    back = rows(batch.claims, outcome)
    await queue.expire()
    await store.sweep()

    assert lost(id_) == await store.release(batch, back, again=True)
    await store.found_batch("suspect")
    assert lost(id_) == await store.release(batch, back, again=True)
    await queue.sql("UPDATE queue_message_setting SET value = '1' WHERE name = 'max_attempts'")
    await queue.expire()
    await store.sweep()
    assert {id_: "lock_expired"} == await queue.results()
    assert lost(id_) == await store.release(batch, back, again=True)


@pytest.mark.parametrize(("outcome", "suspect"), [(GONE, True), (NACKED, False)])
async def test_a_suspect_that_is_given_back_stays_a_suspect(queue: Queue, store: MadeStore, outcome: Outcome, suspect: bool) -> None:
    """It was not proven harmless, so it goes alone again. One that the broker took up and refused is like any other message."""
    [id_] = await queue.insert()
    await store.batch()
    await queue.expire()
    await store.sweep()
    batch = await store.found_batch("suspect")

    assert [] == await store.release(batch, rows(batch.claims, outcome), again=False)
    assert [] == await store.release(batch, rows(batch.claims, outcome), again=True)

    assert ([] if suspect else [id_]) == await store.found_ids()
    assert ([id_] if suspect else []) == await store.found_ids("suspect")


class Answerless(Session):
    """A session whose first statement gets through although its answer is lost."""

    lost = 0

    async def fetch(self, statement: bytes, values: Mapping[str, object], **options: Any) -> list[tuple[object, ...]]:
        """Run the statement; raise in spite of it the first time."""
        answer = await super().fetch(statement, values, **options)
        if self.lost == 0:
            self.lost += 1
            raise StoreError("PostgreSQL does not answer.")
        return answer


async def test_a_lost_answer_neither_loses_nor_doubles_a_settle(queue: Queue, store: MadeStore) -> None:
    """Settlement tries again, learns that it was written, and counts one archived message and no lost lock."""
    [id_] = await queue.insert()
    batch = await store.batch()
    told: list[events.Event] = []
    store._settling._session = session = Answerless(queue.url, application_name="answerless")
    store._sessions.append(session)

    written = [part async for part in RetryingSettler(store=store, emit=told.append).settle(batch, portion(batch.claims), [SUCCESS])]

    assert [(portion(batch.claims), [SUCCESS], [])] == written
    assert {id_: "success"} == await queue.results()
    assert [events.SettleFailed(1, "PostgreSQL does not answer.", 1)] == told


@pytest.fixture
async def guilty(queue: Queue, store: MadeStore) -> tuple[list[str], Batch]:
    """Nine claimed messages of which the archive refuses the sixth."""
    ids = await queue.insert(9)
    await queue.sql(f"ALTER TABLE queue_message_archive ADD CONSTRAINT refuse CHECK (id <> '{ids[5]}')")
    return ids, await store.batch()


async def test_a_row_that_the_archive_refuses_is_named_guilty(guilty: tuple[list[str], Batch], store: MadeStore) -> None:
    """SQLSTATE classes 22 and 23 mean that the others may pass without it."""
    with pytest.raises(StoreError, match="SQLSTATE 23514") as caught:
        await store.archive(guilty[1], rows(guilty[1].claims), again=False)

    assert caught.value.row_is_guilty


async def test_a_guilty_row_does_not_hold_its_neighbours(guilty: tuple[list[str], Batch], queue: Queue, store: MadeStore) -> None:
    """The batch is halved until the row is alone. The eight others are archived; it waits under its lock until the cause is gone."""
    ids, batch = guilty
    told: list[events.Event] = []
    writing = aiter(RetryingSettler(store=store, emit=told.append).settle(batch, portion(batch.claims), [SUCCESS] * 9))

    neighbours = await asyncio.wait_for(anext(writing), 20)
    assert [id_ for id_ in ids if id_ != ids[5]] == [claim.id for claim in neighbours.portion.claims]
    assert {*ids} - {ids[5]} == {*await queue.results()}
    assert [(ids[5],)] == await queue.sql("SELECT id::text FROM queue_message WHERE lock_token = %s", batch.token)
    assert [1] == [event.messages for event in told if isinstance(event, events.SettleFailed)]

    await queue.sql("ALTER TABLE queue_message_archive DROP CONSTRAINT refuse")
    assert [[ids[5]]] == [[claim.id for claim in written.portion.claims] async for written in writing]
    assert {*ids} == {*await queue.results()}


async def test_without_a_partition_the_whole_batch_waits_until_the_relay_has_made_it(queue: Queue, store: MadeStore) -> None:
    """No row is at fault for a missing day. Nothing is halved, rows stay unharmed, and the next try finds the day."""
    await queue.insert(4)
    batch = await store.batch()
    days = await queue.sql("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'queue_message_archive_daily'::regclass")
    for (day,) in days:
        await queue.sql(f"DROP TABLE {day}")
    failed: asyncio.Queue[events.Event] = asyncio.Queue()
    writing = aiter(RetryingSettler(store=store, emit=failed.put_nowait).settle(batch, portion(batch.claims), [SUCCESS] * 4))

    assert (portion(batch.claims), [SUCCESS] * 4, []) == await asyncio.wait_for(anext(writing), 20)

    told = failed.get_nowait()
    assert isinstance(told, events.SettleFailed)
    assert (4, 1, True) == (told.messages, told.attempt, "run `SELECT queue_message_ensure_partitions()`" in told.error)
    assert failed.empty()
    assert 0 == await queue.waiting()


async def test_a_renewed_lock_lasts_from_now_on(queue: Queue, store: MadeStore) -> None:
    """Renewal moves the database's lock and the relay's own, earlier deadline, of the named messages alone."""
    first, second = await queue.insert(2)
    batch = await store.batch()
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 s'")
    batch.deadline = 0.0

    assert 1 == await store.renew(batch, positions_of(batch)[:1])

    left: dict[str, float] = dict(
        await queue.sql("SELECT id::text, extract(epoch FROM lock_expires_at - now())::float8 FROM queue_message")
    )
    assert left[first] > 25
    assert left[second] <= 1
    assert batch.deadline > batch.claimed_tick
