"""What comes back: locks that are over, wherever they stand, suspects one at a time, stranded messages, and the relay's own row."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from relay import events
from relay.engine.policy import Controls, Policy
from relay.engine.retry import RetryPolicy
from relay.errors import NewConnectionError, StoreError
from relay.message import START, Position
from relay.ports import At
from relay.postgres.maintenance_store import PostgresMaintenance
from tests.support.database.claimers import Claimer, row_held
from tests.support.database.queue import END, MadeStore, MakeStore, Queue, ids_of, until

WAITED = {"available_at": "2020-01-01T00:00:00Z"}


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
async def test_what_a_dead_relay_held_goes_back_to_the_queue(queue: Queue, dead: MadeStore, claimer: Claimer) -> None:
    """The scrub of any living relay frees it; the attempt stays counted and the row says why it came back."""
    assert [] == await claimer.ids()
    await claimer.round()

    rows = await queue.sql("SELECT lock_expires_at, lock_token, locked_by, attempts, available_at <= now(), last_error FROM queue_message")
    assert [(None, None, dead.relay_id, 1, True)] * 3 == [row[:5] for row in rows]
    assert all(row[5].startswith("lock expired at ") for row in rows)
    assert [events.LocksSwept(3, 0)] == claimer.told
    await claimer.round()
    assert 1 == len(claimer.told)


async def test_a_dead_relays_locks_are_freed_where_no_stream_has_come_yet(queue: Queue, dead: MadeStore, claimer: Claimer) -> None:
    """A long backlog may stand before them; what is fresh there is left to the streams."""
    await queue.insert()
    await claimer.round()

    assert [events.LocksSwept(3, 0)] == claimer.told
    assert {"suspect"} == {one.kind for one in (await claimer.store.left(head=START)).findings}


async def test_a_lock_that_still_holds_is_left_alone(queue: Queue, dead: MadeStore, claimer: Claimer) -> None:
    """Whatever became of the relay that has it."""
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '5 s'")

    assert [] == await claimer.ids() + await claimer.found()

    assert [(dead.relay_id, True)] * 3 == await queue.sql("SELECT locked_by, lock_expires_at IS NOT NULL FROM queue_message")


@pytest.mark.ids("A12", "B9")
async def test_every_kind_of_lock_that_is_over_goes_out_again(queue: Queue, make_store: MakeStore, claimer: Claimer) -> None:
    """That of a fresh message, of one that waited and of the head of a key; what follows the head goes after it."""
    relay = make_store("gone")
    await relay.register()
    fresh = await queue.insert(2)
    assert fresh == await relay.ids()
    waited = await queue.insert(**WAITED)
    assert waited == await relay.found_ids()
    head, successor = await queue.insert(2, ordering_key="k")
    await queue.sql("UPDATE queue_message SET lock_expires_at = now(), lock_token = id, locked_by = %s WHERE id = %s", relay.relay_id, head)
    await queue.insert(exchange="other")
    await claimer.ids()
    await queue.expire(*fresh, *waited, head)
    await claimer.round()

    found = []
    await claimer.round()
    async for batch in claimer.batches():
        found += ids_of(batch)
        await claimer.settle(batch)

    assert sorted([*fresh, *waited, head, successor]) == sorted(found)
    assert found.index(head) < found.index(successor)


async def sizes(claimer: Claimer) -> list[int]:
    """How many suspects go together: each group is through before the next."""
    found = []
    async for batch in claimer.batches():
        assert "suspect" == batch.source
        found.append(len(batch.claims))
        claimer.intake.suspects.settled(batch.claims)
    return found


async def test_suspects_go_together_once_and_then_alone(queue: Queue, dead: MadeStore, claimer: Claimer) -> None:
    """A message that kills relays takes no neighbour with it: after the second lost lock each is claimed alone."""
    await claimer.ids()
    for expected in ([3], [1, 1, 1]):
        await queue.expire()
        await claimer.round()
        assert [] == await dead.found_ids("waiting")
        assert expected == await sizes(claimer)


async def test_suspects_go_alone_from_the_first_where_few_attempts_are_allowed(
    queue: Queue, dead: MadeStore, make_store: MakeStore
) -> None:
    """No bystander may run out of attempts in a group."""
    strict = Claimer(make_store("strict", policy=Policy(retry=RetryPolicy(max_attempts=3))))
    await strict.store.register()
    await strict.ids()
    await strict.round()

    assert [1, 1, 1] == await sizes(strict)


@pytest.fixture
async def suspect_head(queue: Queue, store: MadeStore) -> str:
    """The head of a key, back from an expired lock; a successor waits behind it."""
    first, _ = await queue.insert(2, ordering_key="k")
    assert [first] == await store.heads("k")
    await queue.expire()
    assert (1, 0) == await store.sweep()
    return first


async def suspects(store: MadeStore, lanes: dict[int, int]) -> list[str]:
    """Claim what is suspect, as a relay does that believes to own these lanes."""
    found = [one.position for one in (await store.left()).findings if one.kind == "key"]
    return await store.ids(At(found, "suspect", lanes))


async def test_a_suspect_with_a_key_is_claimed_by_the_lanes_owner_and_as_a_head(
    store: MadeStore, make_store: MakeStore, suspect_head: str
) -> None:
    """Coming back from an expired lock does not break the order of its key."""
    lanes = await store.keep_lanes()
    stranger = make_store("stranger")
    await stranger.register()

    assert [] == await suspects(stranger, lanes)
    assert [suspect_head] == await suspects(store, lanes)


async def test_a_suspect_with_a_key_is_not_claimed_under_an_epoch_of_before(queue: Queue, store: MadeStore, suspect_head: str) -> None:
    """A relay that lost its lanes and got them back must begin again. Another may have sent the head that it remembers."""
    before = await store.keep_lanes()
    await queue.sql("UPDATE queue_message_lane SET epoch = epoch + 2")

    assert [] == await suspects(store, before)
    assert [suspect_head] == await suspects(store, await store.keep_lanes())


async def test_a_suspect_whose_key_was_parked_meanwhile_stays(queue: Queue, store: MadeStore, suspect_head: str) -> None:
    """It may have been found long before its turn comes."""
    lanes = await store.keep_lanes()
    found = At([one.position for one in (await store.left()).findings if one.kind == "key"], "suspect", lanes)
    await queue.sql("SELECT queue_message_key_park('k', 'wait')")

    assert [] == await store.ids(found)
    await queue.sql("SELECT queue_message_key_resume('k')")
    assert [suspect_head] == await store.ids(found)


async def test_a_suspect_with_a_key_and_a_takeover_at_once_let_one_owner_in(queue: Queue, store: MadeStore, suspect_head: str) -> None:
    """As for any head, a takeover that is under way is waited for, then believed."""
    mine = await store.keep_lanes()
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("UPDATE queue_message_lane SET owner = 99, epoch = epoch + 1 WHERE lane = queue_message_lane_of('k')")
        claiming = asyncio.create_task(suspects(store, mine))
        await until(queue.is_held_up)
        assert not claiming.done()
        await other.commit()

    assert [] == await claiming
    assert (await queue.row(suspect_head))["lock_token"] is None


async def test_a_suspect_waits_for_no_lane_but_its_own(queue: Queue, claimer: Claimer, suspect_head: str) -> None:
    """Lanes in which nothing came back are not locked: neither waited for nor written to at each look."""
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("SELECT FROM queue_message_lane WHERE lane <> queue_message_lane_of('k') FOR UPDATE")
        assert [suspect_head] == await asyncio.wait_for(claimer.ids(), 10)


@pytest.mark.ids("A11", "A28")
@pytest.mark.parametrize(("setting", "value"), [("max_attempts", "1"), ("on_lock_expired", "archive")])
async def test_a_lock_that_expired_once_too_often_ends_in_the_archive(
    queue: Queue, dead: MadeStore, claimer: Claimer, setting: str, value: str
) -> None:
    """Past the limit, or by the strict convention at once, the result is lock_expired."""
    await queue.sql("UPDATE queue_message_setting SET value = %s WHERE name = %s", value, setting)
    await claimer.ids()
    await claimer.round()

    assert [events.LocksSwept(0, 3)] == claimer.told
    assert ["lock_expired"] * 3 == [*(await queue.results()).values()]


async def test_a_trigger_that_refuses_one_dead_message_keeps_no_other_lock_from_being_freed(queue: Queue, store: MadeStore) -> None:
    """The refused one stays where it is, with a WARNING; the others end in the archive."""
    await queue.sql("UPDATE queue_message_setting SET value = 'archive' WHERE name = 'on_lock_expired'")
    await queue.sql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$")
    await queue.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON queue_message_dead FOR EACH ROW"
        " WHEN (NEW.routing_key = 'refused') EXECUTE FUNCTION refuse()"
    )
    refused, *others = [*await queue.insert(routing_key="refused"), *await queue.insert(2)]
    await store.batch()
    await queue.expire()

    assert (0, 2) == await store.sweep()
    assert others == [id_ for (id_,) in await queue.sql("SELECT id::text FROM queue_message_dead ORDER BY seq")]
    assert [refused] == [id_ for (id_,) in await queue.sql("SELECT id::text FROM queue_message")]


@pytest.mark.ids("A12")
async def test_a_lock_set_by_hand_is_freed_too(queue: Queue, claimer: Claimer) -> None:
    """Programs that follow the convention set lock_expires_at and nothing else; a round of the scrub finds it."""
    [id_] = await queue.insert()
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() - interval '1 s'")
    await claimer.ids()

    assert [id_] == await claimer.found()

    assert 2 == (await queue.row(id_))["attempts"]


async def test_what_a_claim_locked_whose_answer_was_lost_goes_out_again(queue: Queue, claimer: Claimer) -> None:
    """No relay has them in flight. The relay that claimed them frees them itself when its lock has expired."""
    ids = await queue.insert(2)
    with pytest.raises(StoreError):
        await answer_lost(queue, claimer.store)
    await claimer.ids()
    await queue.expire()

    assert ids == await claimer.found()


async def answer_lost(queue: Queue, store: MadeStore) -> None:
    """A claim that gets through unheard."""
    fetch = store._claims.fetch

    async def unheard(statement: bytes, values: dict[str, object], *, by_position: bool = False) -> None:
        await fetch(statement, values, by_position=by_position)
        store._claims.fetch = fetch  # type: ignore[method-assign]
        raise StoreError("The answer was lost.")

    store._claims.fetch = unheard  # type: ignore[method-assign, assignment]
    await store.take()


async def test_a_held_exchange_keeps_nobody_from_what_a_dead_relay_held(queue: Queue, dead: MadeStore, claimer: Claimer) -> None:
    """Its stream is stopped far below, and its own expired locks are freed. Those messages go out after it is resumed."""
    [paused] = await queue.insert(exchange="audit")
    assert [paused] == await dead.ids()
    await queue.expire()
    claimer.intake.pause(["audit"])
    await claimer.ids()

    found = await claimer.found()

    assert (3, [events.LocksSwept(4, 0)]) == (len(found), claimer.told)
    assert paused not in found
    claimer.intake.suspects.clear()  # else they wait until those in flight are through
    claimer.intake.pause([])
    assert [paused] == await claimer.found()


async def test_a_stranded_message_goes_out_after_a_round(queue: Queue, claimer: Claimer) -> None:
    """SKIP LOCKED stepped over a row whose other claimer rolled back. It is below the head, and is found, counted and claimed."""
    first, second = await queue.insert(2)
    async with row_held(queue, first):
        assert [second] == await claimer.ids()
        assert [] == await claimer.found()
    assert [] == await claimer.ids()

    assert [first] == await claimer.found()
    await claimer.round()
    assert [events.StrandedFound(1)] == claimer.told


async def test_what_the_head_has_not_passed_is_not_stranded(queue: Queue, claimer: Claimer) -> None:
    """A fresh message above its stream's head is left to the stream; the scrub leaves it out."""
    await queue.insert()

    await claimer.round()

    assert [] == claimer.intake.backlog.next(10, [])


async def test_what_a_stream_of_its_own_has_before_it_is_not_stranded(queue: Queue, store: MadeStore) -> None:
    """The head of the main stream has passed it; only below its own stream's head does nothing else find it."""
    await queue.insert(exchange="orders")
    await queue.insert(exchange="audit")

    found = [[one.exchange for one in (await store.left(heads={"audit": head})).findings] for head in (START, END)]

    assert [["orders"], ["orders", "audit"]] == found


async def test_a_late_transaction_is_claimed_by_its_stream_and_what_was_passed_over_below_it_by_the_scrub(
    queue: Queue, claimer: Claimer
) -> None:
    """One that ends while claims stand still, as when the broker is away, is left to the next claim: each message is found once."""
    [over] = await queue.insert()
    async with row_held(queue, over), await psycopg.AsyncConnection.connect(queue.url) as early:
        await early.execute("INSERT INTO queue_message (exchange) VALUES ('orders')")
        [id_] = await queue.insert()
        assert [id_] == await claimer.ids()
        await early.commit()

    await claimer.round()
    waiting = [one.position for one in claimer.intake.backlog.next(10, [])]

    row = await queue.row(over)
    assert [Position(int(row["xid"]), row["seq"])] == waiting
    assert 2 == len(await claimer.ids())


async def test_a_relay_that_holds_locks_leaves_its_row_behind(queue: Queue, store: MadeStore) -> None:
    """Others free what it kept, and its lanes are free at once."""
    await queue.insert()
    await store.batch()
    await store.keep_lanes()

    await store.unregister(holds_locks=True)

    assert [(store.relay_id,)] == await queue.sql("SELECT id FROM queue_message_relay")
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_lane WHERE owner IS NOT NULL")
    await store.unregister(holds_locks=False)
    assert [] == await queue.sql("SELECT id FROM queue_message_relay")


async def test_the_policy_is_read_from_the_database(queue: Queue, store: MadeStore) -> None:
    """Settings reach the relay as a policy; held exchanges by name, limits with their figures and how many relays share them."""
    told = []
    upkeep = PostgresMaintenance(store=store, needs=1, adopt=lambda policy, settings: told.append((policy, settings)))
    await queue.sql("SELECT queue_message_config_set('max_attempts', '3'), queue_message_pause('audit')")

    await queue.sql("SELECT queue_message_limit('orders', 0.25)")
    assert Controls(paused=["audit"], limits={"orders": 0.25}, relays=1) == await upkeep.refresh_policy()

    [(policy, settings)] = told
    assert (3, "3") == (policy.retry.max_attempts, settings["max_attempts"])


async def test_a_schema_that_is_too_old_is_told(store: MadeStore, upkeep: PostgresMaintenance) -> None:
    """The sentence names both versions and the command."""
    await upkeep.check_schema()

    with pytest.raises(StoreError, match=r"this relay needs 10000: run `relay migrate`\."):
        await PostgresMaintenance(store=store, needs=10_000, adopt=lambda policy, settings: None).check_schema()


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

    with pytest.raises(NewConnectionError):
        await store.take(limit=5)
    batches = await asyncio.gather(*(store.take(limit=5) for _ in range(4)))

    assert sorted(ids) == sorted(id_ for claimed in batches for id_ in ids_of(claimed.batch))


async def test_a_settle_of_a_vanished_database_fails_with_a_sentence(queue: Queue, make_store: MakeStore) -> None:
    """A missing server is reported as such, and no password reaches the text."""
    store = make_store(url="postgresql://u:secret@127.0.0.1:9/none")
    with pytest.raises(StoreError, match=r"^PostgreSQL does not answer: check that it runs") as caught:
        await store.register()

    assert "secret" not in str(caught.value)
