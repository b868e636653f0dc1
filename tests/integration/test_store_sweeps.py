"""What comes back: expired locks of dead relays and of others, suspects one at a time, stranded messages, and the relay's own row."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack

import psycopg
import pytest

from relay import events
from relay.claims.intake import Intake
from relay.claims.streams import Streams
from relay.errors import StoreError
from relay.inhand import InHand
from relay.maintenance import LockKeeper, Maintenance
from relay.message import Position
from relay.policy import Controls, Policy
from relay.ports import Due
from relay.postgres.upkeep import Upkeep
from relay.retry import RetryPolicy
from tests.support.queue import PLENTY, SILENCE, MadeStore, MakeStore, Queue, Where, ids_of, until

FAR = Position(1 << 40, 0)


@pytest.fixture
async def dead(make_store: MakeStore, queue: Queue) -> MadeStore:
    """A relay that has been silent for ten seconds and holds three messages under expired locks."""
    store = make_store("dead")
    await store.register()
    await queue.insert(3)
    await store.batch()
    await queue.expire()
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '10 s' WHERE id = %s", store.relay_id)
    return store


@pytest.mark.ids("A12", "A17", "A18", "B9")
async def test_what_a_dead_relay_held_goes_back_to_the_queue(queue: Queue, dead: MadeStore, upkeep: Upkeep) -> None:
    """Any living relay frees it; the attempt stays counted and the row says why it came back."""
    assert (3, 0) == await upkeep.sweep_silent(FAR)

    rows = await queue.sql("SELECT lock_expires_at, lock_token, locked_by, attempts, available_at <= now(), last_error FROM queue_message")
    assert [(None, None, dead.relay_id, 1, True)] * 3 == [row[:5] for row in rows]
    assert all(row[5].startswith("lock expired at ") for row in rows)
    assert (0, 0) == await upkeep.sweep_silent(FAR)


async def test_what_a_living_relay_holds_is_left_alone(queue: Queue, dead: MadeStore, upkeep: Upkeep) -> None:
    """Neither a lock that still holds nor one of a relay that was heard lately is touched by the sweep of silent relays."""
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now()")
    assert (0, 0) == await upkeep.sweep_silent(FAR)

    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '10 s'")
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '5 s'")
    assert (0, 0) == await upkeep.sweep_silent(FAR)


async def test_suspects_go_together_once_and_then_alone(queue: Queue, dead: MadeStore, store: MadeStore, upkeep: Upkeep) -> None:
    """A message that kills relays takes no neighbour with it: after the second lost lock each is claimed alone."""
    await upkeep.sweep_silent(FAR)

    assert [] == await store.ids(Due.WAITING)
    assert 3 == len(await store.ids(Due.SUSPECT))
    await queue.expire()
    await upkeep.sweep_all()
    suspects = [await store.ids(Due.SUSPECT) for _ in range(4)]

    assert [1, 1, 1, 0] == [len(ids) for ids in suspects]
    assert 3 == len({id_ for ids in suspects for id_ in ids})


async def test_suspects_go_alone_from_the_first_where_few_attempts_are_allowed(
    queue: Queue, dead: MadeStore, make_store: MakeStore, upkeep: Upkeep
) -> None:
    """No bystander may run out of attempts in a group."""
    strict = make_store("strict", policy=Policy(retry=RetryPolicy(max_attempts=3)))
    await strict.register()
    await upkeep.sweep_silent(FAR)

    assert [1, 1, 1] == [len(await strict.ids(Due.SUSPECT)) for _ in range(3)]


def fence(epochs: Mapping[int, int]) -> Where:
    """Lanes and their epochs, as a relay names them that believes to own them."""
    return {"lanes": list(epochs), "epochs": list(epochs.values())}


@pytest.fixture
async def suspect_head(queue: Queue, store: MadeStore, upkeep: Upkeep) -> str:
    """The head of a key, back from an expired lock; a successor waits behind it."""
    first, _ = await queue.insert(2, ordering_key="k")
    assert [first] == await store.heads("k")
    await queue.expire()
    assert (1, 0) == await upkeep.sweep_all()
    return first


async def test_a_suspect_with_a_key_is_claimed_by_the_lanes_owner_and_as_a_head(
    store: MadeStore, make_store: MakeStore, suspect_head: str
) -> None:
    """Coming back from an expired lock does not break the order of its key."""
    epochs = await store.keep_lanes()
    stranger = make_store("stranger")
    await stranger.register()

    assert [] == await stranger.ids(Due.SUSPECT, fence(epochs))
    assert [suspect_head] == await store.ids(Due.SUSPECT, fence(epochs))


async def test_a_suspect_with_a_key_is_not_claimed_under_an_epoch_of_before(queue: Queue, store: MadeStore, suspect_head: str) -> None:
    """A relay that lost its lanes and got them back meanwhile must begin anew: another may have sent what it remembers as the head."""
    before = await store.keep_lanes()
    await queue.sql("UPDATE queue_message_lane SET epoch = epoch + 2")

    assert [] == await store.ids(Due.SUSPECT, fence(before))
    assert [suspect_head] == await store.ids(Due.SUSPECT, fence(await store.keep_lanes()))


async def test_a_suspect_with_a_key_and_a_takeover_at_once_let_one_owner_in(queue: Queue, store: MadeStore, suspect_head: str) -> None:
    """As for any head, a takeover that is under way is waited for, then believed."""
    mine = fence(await store.keep_lanes())
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("UPDATE queue_message_lane SET owner = 99, epoch = epoch + 1 WHERE lane = queue_message_lane_of('k')")
        claiming = asyncio.create_task(store.ids(Due.SUSPECT, mine))
        await until(queue.is_held_up)
        assert not claiming.done()
        await other.commit()

    assert [] == await claiming
    assert (await queue.row(suspect_head))["lock_token"] is None


async def test_a_suspect_waits_for_no_lane_but_its_own(queue: Queue, store: MadeStore, suspect_head: str) -> None:
    """Lanes in which nothing came back are not locked: neither waited for nor written to at each look."""
    mine = fence(await store.keep_lanes())
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("SELECT FROM queue_message_lane WHERE lane <> queue_message_lane_of('k') FOR UPDATE")
        assert [suspect_head] == await asyncio.wait_for(store.ids(Due.SUSPECT, mine), 10)


@pytest.mark.ids("A11", "A28")
@pytest.mark.parametrize(("setting", "value"), [("max_attempts", "1"), ("on_lock_expired", "archive")])
async def test_a_lock_that_expired_once_too_often_ends_in_the_archive(
    queue: Queue, dead: MadeStore, upkeep: Upkeep, setting: str, value: str
) -> None:
    """Past the limit, or by the strict convention at once, the result is lock_expired."""
    await queue.sql("UPDATE queue_message_setting SET value = %s WHERE name = %s", value, setting)

    assert (0, 3) == await upkeep.sweep_silent(FAR)
    assert ["lock_expired"] * 3 == [*(await queue.results()).values()]


@pytest.mark.ids("A12")
async def test_a_lock_set_by_hand_is_swept_too(queue: Queue, upkeep: Upkeep) -> None:
    """Programs that follow the convention set lock_expires_at and nothing else; the minute's sweep finds it."""
    [id_] = await queue.insert()
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() - interval '1 s'")

    assert (1, 0) == await upkeep.sweep_all()
    row = await queue.row(id_)
    assert (None, 1) == (row["lock_expires_at"], row["attempts"])


async def test_the_sweep_begins_where_the_relay_last_claimed_below(queue: Queue, make_store: MakeStore, upkeep: Upkeep) -> None:
    """A claim below what was reported lowers the relay's position at once, so its death a moment later loses sight of nothing."""
    old = await queue.insert(available_at="2020-01-01T00:00:00Z")
    [new] = await queue.insert()
    store = make_store("low")
    await store.register()
    position = Position(int((await queue.row(new))["xid"]), 0)
    assert await store.heartbeat(low=position, head=position, top=position, state="{}")

    assert old == await store.ids(Due.WAITING)

    await queue.expire()
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '10 s' WHERE id = %s", store.relay_id)
    assert (1, 0) == await upkeep.sweep_silent(FAR)


async def test_our_own_locks_are_looked_for_after_a_claim_whose_answer_was_lost(queue: Queue, store: MadeStore, upkeep: Upkeep) -> None:
    """Else what we hold is ours to renew, and no backlog is walked for it; then it is in nobody's hand."""
    await queue.insert(2)
    await store.batch()
    await queue.expire()
    assert (0, 0) == await upkeep.sweep_silent(FAR)

    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("LOCK TABLE queue_message")
        with pytest.raises(StoreError):
            await store.take()

    assert (2, 0) == await upkeep.sweep_silent(FAR)


class WithoutTheMinute(Upkeep):
    """The chores but for the minute's sweep, which in a long queue looks no further than the lowest heads."""

    async def sweep_all(self) -> tuple[int, int]:
        """Nothing."""
        return 0, 0


async def test_a_held_exchange_keeps_nobody_from_what_a_dead_relay_held(queue: Queue, dead: MadeStore, store: MadeStore) -> None:
    """Its stream stands still far below, and nothing of its backlog is walked; the age of the queue counts it all the same."""
    intake, told = Intake(store=store, poll_interval=1), asyncio.Queue[events.Event]()
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 min'")
    intake.hold(["audit"])
    await queue.sql("SELECT queue_message_pause('audit')")
    [paused], [_] = await queue.insert(exchange="audit"), await queue.insert()
    await dead.take(where={"except": ["audit"]})
    await queue.insert()
    assert await intake.claim(100, PLENTY)
    tended = WithoutTheMinute(store=store, silence=SILENCE, needs=1, adopt=lambda policy, settings: None)
    in_hand = InHand(window=10, window_bytes=10)
    keeper = LockKeeper(store=tended, in_hand=in_hand, lock_seconds=lambda: 30.0, silent=dict, emit=told.put_nowait)
    chores = Maintenance(
        store=tended, intake=intake, keeper=keeper, state=dict, gauges=lambda status: None, emit=told.put_nowait, nudge=lambda: None
    )
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() - interval '1 s' WHERE locked_by = %s", dead.relay_id)
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '1 min' WHERE id = %s", dead.relay_id)

    tending = asyncio.create_task(chores.run())
    async with asyncio.timeout(10):
        while not isinstance(event := await told.get(), events.LocksSwept):
            pass
    await until(lambda: heard(queue, store))
    tending.cancel()
    await asyncio.gather(tending, return_exceptions=True)

    assert events.LocksSwept(4, 0) == event
    below = "SELECT xid < (SELECT low_xid FROM queue_message_relay WHERE id = %s) FROM queue_message WHERE id = %s"
    assert await queue.value(below, store.relay_id, paused)
    assert await queue.value("SELECT queue_message_oldest() = created_at FROM queue_message WHERE id = %s", paused)


async def heard(queue: Queue, store: MadeStore) -> bool:
    """Whether a heartbeat came."""
    return bool(await queue.value("SELECT low_xid > '0' FROM queue_message_relay WHERE id = %s", store.relay_id))


async def test_a_stranded_message_is_made_due(queue: Queue, store: MadeStore, upkeep: Upkeep) -> None:
    """SKIP LOCKED stepped over a row whose other claimer then rolled back: it stands below every head, and is found."""
    first, second = await queue.insert(2)
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [first])
        assert [second] == await store.ids()
        await other.rollback()
    head = Position(int((await queue.row(second))["xid"]), 1 << 40)
    await store.heartbeat(low=Position(0, 0), head=head, top=head, state="{}")

    assert 1 == await upkeep.free_stranded(FAR)
    assert [first] == await store.ids(Due.WAITING)
    assert 0 == await upkeep.free_stranded(FAR)


async def test_what_a_head_has_not_passed_is_not_stranded(queue: Queue, store: MadeStore, make_store: MakeStore, upkeep: Upkeep) -> None:
    """Only what stands below the lowest head of all living relays is looked at."""
    [id_] = await queue.insert()
    await store.heartbeat(low=Position(0, 0), head=FAR, top=FAR, state="{}")
    slow = make_store("slow")
    await slow.register()

    assert 0 == await upkeep.free_stranded(FAR)
    await slow.unregister(holds_locks=False)
    async with await psycopg.AsyncConnection.connect(queue.url) as writer:
        await writer.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [id_])
        assert 0 == await upkeep.free_stranded(FAR)
    assert 1 == await upkeep.free_stranded(FAR)


async def test_what_a_relay_will_still_claim_is_not_stranded(queue: Queue, store: MadeStore, upkeep: Upkeep) -> None:
    """A pending transaction that ends while claims stand still, as when the broker is away, is left to the next claim.

    What was stepped over below it is stranded.
    """
    streams = Streams(store)
    async with AsyncExitStack() as stack:
        claimer, early = [await stack.enter_async_context(await psycopg.AsyncConnection.connect(queue.url)) for _ in range(2)]
        [over] = await queue.insert()
        await claimer.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [over])
        await early.execute("INSERT INTO queue_message (exchange) VALUES ('orders')")
        [id_] = await queue.insert()
        assert [id_] == ids_of(await streams.claim(limit=100, limit_bytes=PLENTY))
        await claimer.rollback()
        await early.commit()
    await store.heartbeat(low=streams.low, head=streams.head, top=streams.top, state="{}")

    assert 1 == await upkeep.free_stranded(streams.low)

    assert [over] == await store.ids(Due.WAITING)
    assert 1 == len(ids_of(await streams.claim(limit=100, limit_bytes=PLENTY)))
    assert 0 == await upkeep.free_stranded(streams.low)


async def test_a_relay_that_holds_locks_leaves_its_row_behind(queue: Queue, store: MadeStore, upkeep: Upkeep) -> None:
    """Others free what it kept, and its lanes are free at once."""
    await queue.insert()
    await store.batch()
    await store.keep_lanes()

    await store.unregister(holds_locks=True)

    assert [(store.relay_id,)] == await queue.sql("SELECT id FROM queue_message_relay")
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_lane WHERE owner IS NOT NULL")
    await store.unregister(holds_locks=False)
    assert [] == await queue.sql("SELECT id FROM queue_message_relay")


async def test_a_relay_that_was_forgotten_enters_again(queue: Queue, store: MadeStore, upkeep: Upkeep) -> None:
    """A heartbeat that finds no row makes a new one under a new id."""
    before = store.relay_id
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '1 day'")
    await upkeep.sweep_all()
    assert [] == await queue.sql("SELECT id FROM queue_message_relay")

    await upkeep.heartbeat(low=Position(1, 1), head=Position(2, 2), top=Position(2, 2), state={"broker": "up"})

    assert before != store.relay_id
    assert [(store.relay_id,)] == await queue.sql("SELECT id FROM queue_message_relay")


async def test_the_policy_is_read_from_the_database(queue: Queue, store: MadeStore) -> None:
    """Settings reach the relay as a policy; held exchanges by name, limits with their figures and how many relays share them."""
    told = []
    upkeep = Upkeep(store=store, silence=SILENCE, needs=1, adopt=lambda policy, settings: told.append((policy, settings)))
    await queue.sql("SELECT queue_message_config_set('max_attempts', '3'), queue_message_pause('audit')")

    await queue.sql("SELECT queue_message_limit('orders', 0.25)")
    assert Controls(paused=["audit"], limits={"orders": 0.25}, relays=1) == await upkeep.refresh_policy()

    [(policy, settings)] = told
    assert (3, "3") == (policy.retry.max_attempts, settings["max_attempts"])


async def test_a_schema_that_is_too_old_is_told(store: MadeStore, upkeep: Upkeep) -> None:
    """The sentence names both versions and the command."""
    await upkeep.check_schema()

    with pytest.raises(StoreError, match=r"this relay needs 10000: run `relay migrate`\."):
        await Upkeep(store=store, silence=SILENCE, needs=10_000, adopt=lambda policy, settings: None).check_schema()


async def test_two_tasks_take_turns_on_a_connection(queue: Queue, store: MadeStore) -> None:
    """Statements of one session never mix, and one that was cancelled leaves a usable session behind."""
    ids = await queue.insert(20)
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("LOCK TABLE queue_message")
        stuck = asyncio.create_task(store.take(limit=1))
        await until(queue.is_held_up)
        assert not stuck.done()
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)

    batches = await asyncio.gather(*(store.take(limit=5) for _ in range(4)))

    assert sorted(ids) == sorted(id_ for claimed in batches for id_ in ids_of(claimed.batch))


async def test_a_settle_of_a_vanished_database_fails_with_a_sentence(queue: Queue, make_store: MakeStore) -> None:
    """A server that is not there is told as such; no password reaches the text."""
    store = make_store(url="postgresql://u:secret@127.0.0.1:9/none")
    with pytest.raises(StoreError, match=r"^PostgreSQL does not answer: check that it runs") as caught:
        await store.register()

    assert "secret" not in str(caught.value)
