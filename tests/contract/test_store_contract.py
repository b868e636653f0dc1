"""What a store does, shown on PostgreSQL and on the tables in memory that stand for it in simulations: the same cases on both."""

from __future__ import annotations

from typing import Any

import pytest

from relay.claims.frontier import Snapshot
from relay.message import START, SUCCESS, Archive, Batch, GiveBack, Outcome, Position, Result, Retry
from relay.policy import Policy
from relay.ports import Due, Row
from relay.retry import RetryPolicy
from tests.support.places import Memory, Place, Postgres, Standing
from tests.support.queue import MadeStore, busy, ids_of, lost, positions_of

GONE, NACKED = GiveBack("gone", "It went."), Retry(0.0, "nacked", "Full.")
ALONE = Policy(retry=RetryPolicy(max_attempts=3))


@pytest.fixture(params=["memory", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """A queue in memory, and one in PostgreSQL."""
    if request.param == "memory":
        return Memory()
    return Postgres(request.getfixturevalue("queue"), request.getfixturevalue("make_store"))


def rows(batch: Batch, outcome: Outcome = SUCCESS) -> list[Row]:
    """A batch with one outcome."""
    return [Row(claim, outcome, 1, 2) for claim in batch.claims]


async def sweep_silent(store: MadeStore, *, own: bool = False, below: int = 2**40) -> tuple[Any, ...]:
    """Free what silent relays hold, or what the store's own relay does."""
    values = {"own": store.relay_id if own else None, "silence": 6.0, "lock_seconds": 30.0, "apart": 15.0, "forgotten": 3600.0, "now": None}
    [found] = await store.run("sweep_silent", below_xid=str(below), **values)
    return tuple(found)


async def test_claims_go_in_the_order_of_transactions_and_say_what_still_runs(place: Place) -> None:
    """A message that commits late stands below the head, and is found by its transaction."""
    store = await place.store()
    async with place.writing() as late:
        early = await place.insert(2)
        claimed = await store.take()
        assert early == ids_of(claimed.batch)
        running = Snapshot.parse(claimed.snapshot).running
    assert claimed.last is not None
    head = {"head_xid": str(claimed.last.xid), "head_seq": claimed.last.seq}
    assert [] == await store.ids(where=head)
    pending = "{" + ",".join(map(str, running)) + "}"
    assert [late] == await store.ids(Due.PENDING, {"pending": pending})


async def test_limits_cut_a_claim_and_it_says_so(place: Place) -> None:
    """In messages, and in bytes with one message at the least."""
    store = await place.store()
    ids = await place.insert(5, body=bytes(1000))
    one, two, rest = await store.take(limit_bytes=1), await store.take(limit_bytes=1500), await store.take()
    assert [ids[:1], ids[1:3], ids[3:]] == [ids_of(taken.batch) for taken in (one, two, rest)]
    assert [False, False, True] == [taken.exhausted for taken in (one, two, rest)]


async def test_what_waits_may_be_asked_for_by_exchange(place: Place) -> None:
    """Of some alone, as of those that have a limit; suspects too."""
    store = await place.store()
    [_], [audit] = await place.insert(wait=-60), await place.insert(exchange="audit", wait=-60)
    assert [audit] == await store.ids(Due.WAITING, {"only": ["audit", "mail"]})
    assert [] == await store.ids(Due.WAITING, {"only": ["audit"], "except": []})
    assert [] == await store.ids(Due.SUSPECT, {"only": ["orders"]})


async def test_each_kind_of_claim_takes_its_own(place: Place) -> None:
    """Plain, waiting and delayed messages, and exchanges that are left out or asked for alone."""
    store = await place.store()
    [plain], [audit] = await place.insert(), await place.insert(exchange="audit")
    [over], _ = await place.insert(wait=-60), await place.insert(wait=3600)
    await place.insert(ordering_key="k")
    assert [plain] == await store.ids(where={"except": ["audit"]})
    assert [audit] == await store.ids(Due.EXCHANGE_ABOVE_HEAD, {"exchange": "audit"})
    assert [over] == await store.ids(Due.WAITING)
    assert [] == await store.ids()


async def test_what_somebody_else_has_locked_is_stepped_over(place: Place) -> None:
    """SKIP LOCKED: nobody waits."""
    store = await place.store()
    first, second = await place.insert(2)
    async with place.holding(first):
        assert [second] == await store.ids()
    assert [first] == await store.ids()


def above(position: Position | None) -> dict[str, object]:
    """A head."""
    assert position is not None
    return {"head_xid": str(position.xid), "head_seq": position.seq}


async def test_a_claim_that_steps_over_others_looks_at_so_many_and_says_how_far_it_came(place: Place) -> None:
    """The next one goes on from there; one that finds as much as it may take goes no further than that."""
    store = await place.store()
    await place.insert(5, exchange="audit")
    ids = await place.insert(4)
    left_out = {"except": ["audit"], "walk": 3}
    first = await store.take(Due.OTHERS_ABOVE_HEAD, left_out)
    assert (None, False) == (first.batch, first.exhausted)
    second = await store.take(Due.OTHERS_ABOVE_HEAD, {**left_out, **above(first.last)})
    assert (ids[:1], False, second.last) == (ids_of(second.batch), False, second.walked)
    third = await store.take(Due.OTHERS_ABOVE_HEAD, {**left_out, **above(second.last)}, limit=2)
    assert (ids[1:3], False, None) == (ids_of(third.batch), third.exhausted, third.walked)
    fourth = await store.take(Due.OTHERS_ABOVE_HEAD, {**left_out, **above(third.last)})
    assert (ids[3:], True) == (ids_of(fourth.batch), fourth.exhausted)


async def test_the_claim_of_one_exchange_steps_over_the_others_alike(place: Place) -> None:
    """Bytes cut it before the walk does: then it goes on from what it has claimed."""
    store = await place.store()
    asked = {"exchange": "orders", "walk": 3}
    first, _, third = await place.insert(), await place.insert(9, exchange="audit"), await place.insert(1, body=bytes(1000))
    assert first == await store.ids(Due.EXCHANGE_ABOVE_HEAD, asked)
    last, steps = START, 0
    while not (claimed := await store.take(Due.EXCHANGE_ABOVE_HEAD, {**asked, **above(last)}, limit_bytes=1)).batch:
        assert claimed.last is not None
        last, steps = claimed.last, steps + 1
    assert (third, 3) == (ids_of(claimed.batch), steps)


async def test_what_is_locked_while_it_is_stepped_over_is_stranded_and_found(place: Place) -> None:
    """The head has passed it when the other transaction rolls back: what stands below every head is made due."""
    store = await place.store()
    [held], _ = await place.insert(), await place.insert(9, exchange="audit")
    left_out = {"except": ["audit"], "walk": 3}
    async with place.holding(held):
        walked = await store.take(Due.OTHERS_ABOVE_HEAD, left_out)
        assert walked.batch is None
    top = Position(2**40, 0)
    await store.heartbeat(low=START, head=top, top=top, state="{}")
    assert walked.last is not None
    below = {"below_xid": str(walked.last.xid + 1), "below_seq": 0}
    await store.run("free_stranded", **below, silence=6.0, now=None)
    assert [held] == await store.ids(Due.WAITING, left_out)


async def test_a_transaction_that_commits_while_it_is_stepped_over_is_pending(place: Place) -> None:
    """Its messages stand below the place that the walk came to, and its number in the snapshot of that walk."""
    store = await place.store()
    async with place.writing() as late:
        await place.insert(9, exchange="audit")
        walked = await store.take(Due.OTHERS_ABOVE_HEAD, {"except": ["audit"], "walk": 3})
        assert walked.last is not None
        running = [xid for xid in Snapshot.parse(walked.snapshot).running if xid <= walked.last.xid]
    pending = {"except": ["audit"], "pending": "{" + ",".join(map(str, running)) + "}"}
    found = await store.take(Due.OTHERS_PENDING, pending)
    assert ([late], True) == (ids_of(found.batch), found.exhausted)


@pytest.mark.parametrize("due", [Due.OTHERS_PENDING, Due.EXCHANGE_PENDING])
async def test_a_look_at_pending_transactions_goes_on_from_where_it_came_to(place: Place, due: Due) -> None:
    """Each from its own place, and no further than so many messages at once."""
    store = await place.store()
    [(first, xid), (second, later)] = [(await place.insert(4), await place.newest()) for _ in range(2)]
    asked = {"exchange": "orders", "walk": 3, "pending": f"{{{xid.xid},{later.xid}}}"}
    walked = await store.take(due, {**asked, "reached": "{0,0}"})
    assert (first[:3], xid.xid) == (ids_of(walked.batch), walked.last and walked.last.xid)
    assert walked.last is not None
    rest = await store.take(due, {**asked, "reached": f"{{{walked.last.seq},0}}"})
    assert [*first[3:], *second[:2]] == ids_of(rest.batch)


async def test_stale_tokens_change_nothing(place: Place) -> None:
    """After the lock expired and another relay claimed, neither settle nor release nor renewal has an effect."""
    late, other = await place.store("late"), await place.store("other")
    [id_] = await place.insert()
    batch = await late.batch()
    await place.expire()
    await late.run("sweep_all", now=None)
    await other.batch(Due.SUSPECT)
    before = await place.standing(id_)
    assert [lost(id_), lost(id_)] == [await late.archive(batch, rows(batch), again=again) for again in (False, True)]
    assert [lost(id_), lost(id_)] == [await late.release(batch, rows(batch, NACKED), again=again) for again in (False, True)]
    assert 0 == await late.renew(batch, positions_of(batch))
    assert (before, {}) == (await place.standing(id_), await place.results())


async def test_settles_move_to_the_archive_and_may_be_heard_late(place: Place) -> None:
    """Each message with its own result; a second try learns that the first one got through."""
    store = await place.store()
    ids = await place.insert(2)
    batch = await store.batch()
    told = [Row(batch.claims[0], SUCCESS, 1, 2), Row(batch.claims[1], Archive(Result.FAILED, "nack", "No."), None, None)]
    assert [] == await store.archive(batch, told, again=False)
    assert [] == await store.archive(batch, told, again=True)
    assert dict(zip(ids, ("success", "failed"), strict=True)) == await place.results()


@pytest.mark.parametrize(("outcome", "attempts"), [(GONE, 0), (NACKED, 1)])
async def test_releases_put_back_and_may_be_heard_late(place: Place, outcome: Outcome, attempts: int) -> None:
    """A claim that is given back does not count; a second try finds nothing to do, also when another claim has followed."""
    store = await place.store()
    [id_] = await place.insert()
    batch = await store.batch()
    assert [[], []] == [await store.release(batch, rows(batch, outcome), again=again) for again in (False, True)]
    assert Standing(attempts, locked=False, waits=True, locked_by=None) == await place.standing(id_)
    assert [id_] == await store.ids(Due.WAITING)
    assert [] == await store.release(batch, rows(batch, outcome), again=True)


async def test_a_settle_steps_over_a_row_that_another_session_holds(place: Place) -> None:
    """Its neighbours are archived at once, and it is when the other session has let go; it was never lost."""
    store = await place.store()
    ids = await place.insert(3)
    batch = await store.batch()
    async with place.holding(ids[1]):
        for again in (False, True):
            assert busy(ids[1]) == await store.archive(batch, rows(batch)[1:2] if again else rows(batch), again=again)
        assert {ids[0]: "success", ids[2]: "success"} == await place.results()
    assert [] == await store.archive(batch, rows(batch)[1:2], again=False)
    assert dict.fromkeys(ids, "success") == await place.results()


@pytest.mark.parametrize(("outcome", "attempts"), [(GONE, 0), (NACKED, 1)])
async def test_a_release_steps_over_a_row_that_another_session_holds(place: Place, outcome: Outcome, attempts: int) -> None:
    """Its neighbours go back at once, and it does when the other session has let go; an attempt is counted once."""
    store = await place.store()
    ids = await place.insert(3)
    batch = await store.batch()
    async with place.holding(ids[1]):
        assert busy(ids[1]) == await store.release(batch, rows(batch, outcome), again=False)
        assert busy(ids[1]) == await store.release(batch, rows(batch, outcome)[1:2], again=True)
    assert [ids[0], ids[2]] == sorted(await store.ids(Due.WAITING))
    assert [] == await store.release(batch, rows(batch, outcome)[1:2], again=False)
    assert Standing(attempts, locked=False, waits=True, locked_by=None) == await place.standing(ids[1])


async def test_a_renewal_steps_over_a_row_that_another_session_holds(place: Place) -> None:
    """It keeps its own deadline, its neighbours get a new one, and it catches up with them."""
    store = await place.store()
    ids = await place.insert(3)
    batch = await store.batch()
    batch.deadline = 0.0
    async with place.holding(ids[1]):
        assert 3 == await store.renew(batch, positions_of(batch))
    assert [False, True, False] == [batch.is_overdue(claim, 0.0) for claim in batch.claims]
    assert 1 == await store.renew(batch, positions_of(batch)[1:2])
    assert [False] * 3 == [batch.is_overdue(claim, 0.0) for claim in batch.claims]


async def test_suspects_go_together_once_and_then_alone(place: Place) -> None:
    """One that is given back stays a suspect; where few attempts are allowed each goes alone at once."""
    store, careful = await place.store(), await place.store("careful", ALONE)
    ids = await place.insert(3)
    await store.batch()
    await place.expire()
    assert (3, 0) == tuple((await store.run("sweep_all", now=None))[0])
    assert [] == await store.ids(Due.WAITING)
    alone = await careful.batch(Due.SUSPECT)
    assert 1 == len(alone.claims)
    await careful.release(alone, rows(alone, GONE), again=False)
    assert sorted(ids) == sorted(await store.ids(Due.SUSPECT))
    await place.expire()
    await store.run("sweep_all", now=None)
    assert [1, 1, 1, 0] == [len(await store.ids(Due.SUSPECT)) for _ in range(4)]


@pytest.mark.parametrize(("setting", "value"), [("max_attempts", "1"), ("on_lock_expired", "archive")])
async def test_a_lock_that_expires_once_too_often_ends_in_the_archive(place: Place, setting: str, value: str) -> None:
    """By the number of attempts, or by policy at the first."""
    store = await place.store()
    await place.put(setting, value)
    [id_] = await place.insert()
    await store.batch()
    await place.expire()
    assert (0, 1) == tuple((await store.run("sweep_all", now=None))[0])
    assert {id_: "lock_expired"} == await place.results()


async def test_only_the_head_of_a_key_goes(place: Place) -> None:
    """The next one when it is settled; none of a parked key, and none by an owner of before."""
    store, other = await place.store(), await place.store("other")
    first, second = await place.insert(ordering_key="k"), await place.insert(ordering_key="k")
    await place.insert(ordering_key="l")
    await place.park("l")
    await place.silence(other.relay_id, 60)
    lanes = await store.keep_lanes()
    claimed = await store.claim_heads("k", "l", lanes=lanes)
    assert first == ids_of(claimed.batch)
    assert claimed.batch is not None
    assert [] == ids_of((await store.claim_heads("k", lanes=lanes)).batch)
    await store.archive(claimed.batch, rows(claimed.batch), again=False)
    await place.silence(store.relay_id, 60)
    await place.silence(other.relay_id, 0)
    taken = await other.keep_lanes()
    assert [] == ids_of((await store.claim_heads("k", lanes=lanes)).batch)
    assert second == ids_of((await other.claim_heads("k", lanes=taken)).batch)
    assert all(taken[lane] == epoch + 1 for lane, epoch in lanes.items())


async def test_living_relays_share_the_lanes(place: Place) -> None:
    """Who has more than its share gives up, who has less takes."""
    first, second = await place.store("first"), await place.store("second")
    assert [32, 32] == [len(await store.keep_lanes()) for store in (first, second)]
    await place.silence(second.relay_id, 60)
    assert 64 == len(await first.keep_lanes())
    await place.silence(second.relay_id, 0)
    assert [32, 32] == [len(await store.keep_lanes()) for store in (first, second)]


async def test_keys_are_listed_above_a_head_and_by_pages(place: Place) -> None:
    """Each once, in claim order, and whether there are more."""
    store = await place.store()
    for key in ("a", "b", "a", "c"):
        await place.insert(ordering_key=key)
    lanes = range(64)
    listed = await store.list_keys(lanes=lanes, head=START, pending=(), most=3)
    assert (["a", "b"], True, False) == (list(listed.keys), listed.more, listed.more_late)
    assert listed.last is not None
    rest = await store.list_keys(lanes=lanes, head=listed.last, pending={listed.last.xid}, most=3)
    assert (["a", "c"], False) == (sorted(rest.keys), rest.more)


async def test_a_silent_relay_is_swept_and_a_living_one_is_not(place: Place) -> None:
    """Expired locks only, from the lowest position that it reported and below a bound; one's own when that is asked for."""
    store, other = await place.store(), await place.store("other")
    ids = await place.insert(2)
    batch = await store.batch()
    await place.expire(ids[0])
    assert (0, 0) == await sweep_silent(other)
    await place.silence(store.relay_id, 60)
    assert (0, 0) == await sweep_silent(other, below=batch.claims[0].xid)
    assert (1, 0) == await sweep_silent(other)
    await place.silence(store.relay_id, 0)
    await place.expire()
    assert (1, 0) == await sweep_silent(store, own=True)
    assert Standing(1, locked=False, waits=True, locked_by=store.relay_id) == await place.standing(ids[1])


async def test_what_stands_below_every_head_is_made_due(place: Place) -> None:
    """Stepped over while somebody held it, and not above the asking relay's own bound."""
    store = await place.store()
    [stranded] = await place.insert()
    top = Position(2**40, 0)
    await store.heartbeat(low=START, head=top, top=top, state="{}")
    values = {"silence": 6.0, "now": None, "below_seq": 0}
    assert [] == await store.run("free_stranded", **values, below_xid="1")
    assert 1 == len(await store.run("free_stranded", **values, below_xid=str(2**40)))
    assert [stranded] == await store.ids(Due.WAITING)


async def test_a_report_keeps_what_a_claim_has_lowered_since(place: Place) -> None:
    """The lowest position of a relay's locks is never told too high."""
    store = await place.store()
    high = Position(2**40, 0)
    assert await store.heartbeat(low=high, head=high, top=high, state="{}")
    await place.insert(wait=-60)
    batch = await store.batch(Due.WAITING)
    assert await store.heartbeat(low=high, head=high, top=high, state="{}")
    assert store._lowest.told == batch.claims[0].position
    await place.expire()
    await place.silence(store.relay_id, 60)
    other = await place.store("other")
    assert (1, 0) == await sweep_silent(other)
