"""What a store does, shown on PostgreSQL and on the tables in memory that stand for it in simulations: the same cases on both."""

from __future__ import annotations

import pytest

from relay.claims.cursor import LAST_XID, Snapshot
from relay.engine.policy import Policy
from relay.engine.retry import RetryPolicy
from relay.message import START, SUCCESS, Archive, Batch, GiveBack, Outcome, Range, Result, Retry
from relay.ports import At, ById, Fresh, ScanFinding, SettleRow
from tests.support.database.queue import MadeStore, busy, ids_of, lost, positions_of
from tests.support.fakes.store_backends import Memory, Place, Postgres, Standing

GONE, NACKED = GiveBack("gone", "It went."), Retry(0.0, "nacked", "Full.")
ALONE = Policy(retry=RetryPolicy(max_attempts=3))


@pytest.fixture(params=["memory", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """A queue in memory, and one in PostgreSQL."""
    if request.param == "memory":
        return Memory()
    return Postgres(request.getfixturevalue("queue"), request.getfixturevalue("make_store"))


def rows(batch: Batch, outcome: Outcome = SUCCESS) -> list[SettleRow]:
    """A batch with one outcome."""
    return [SettleRow(claim, outcome, 1, 2) for claim in batch.claims]


async def findings(store: MadeStore, *kinds: str) -> list[ScanFinding]:
    """What a scan of everything finds of some kinds."""
    return [one for one in (await store.left()).findings if one.kind in kinds]


async def test_claims_go_in_the_order_of_transactions_and_say_what_still_runs(place: Place) -> None:
    """A message that commits late is below the head, and a claim finds it by its transaction."""
    store = await place.store()
    async with place.writing() as late:
        early = await place.insert(2)
        claimed = await store.take()
        assert early == ids_of(claimed.batch)
        running = Snapshot.parse(claimed.snapshot).running
    assert claimed.last is not None
    [xid] = [xid for xid in running if xid < claimed.last.xid]
    head = Range(claimed.last, LAST_XID)
    assert [] == await store.ids(Fresh([head], 10))
    assert [late] == await store.ids(Fresh([Range(START._replace(xid=xid), xid + 1), head], 10))


async def test_limits_cut_a_claim_and_it_says_so(place: Place) -> None:
    """In messages, and in bytes with one message at the least."""
    store = await place.store()
    ids = await place.insert(5, body=bytes(100_000))
    one, two, rest = await store.take(limit_bytes=1), await store.take(limit_bytes=150_000), await store.take()
    assert [ids[:1], ids[1:3], ids[3:]] == [ids_of(taken.batch) for taken in (one, two, rest)]
    assert [True, True, False] == [taken.full for taken in (one, two, rest)]


async def test_each_kind_of_claim_takes_its_own(place: Place) -> None:
    """Plain messages, exchanges that are left out or asked for alone, what is named, and what a scan has found."""
    store = await place.store()
    [plain], [audit], [named] = await place.insert(), await place.insert(exchange="audit"), await place.insert(exchange="mail")
    [over], _ = await place.insert(wait=-60), await place.insert(wait=3600)
    await place.insert(ordering_key="k")
    ranges = [Range(START, LAST_XID)]
    assert [plain] == await store.ids(Fresh(ranges, 10, ["audit", "mail"]))
    assert [audit] == await store.ids(Fresh(ranges, 10, only=["audit"]))
    assert [named] == await store.ids(ById([named]))
    assert [over] == await store.found_ids()
    assert [] == await store.ids()


async def test_a_scan_says_what_became_of_messages(place: Place) -> None:
    """Fresh ones that were passed over, those whose wait or lock is over, and keys; nothing of an exchange that is held."""
    store = await place.store()
    [_], lanes = await place.insert(), await store.keep_lanes()
    await place.insert(wait=-60)
    await place.insert(wait=3600)
    for key in ("k", "k"):
        await place.insert(ordering_key=key)
    await place.insert(exchange="audit")
    page = await store.left(held=["audit"])
    assert ["stranded", "waiting", "key"] == [one.kind for one in page.findings]
    assert ("k", True) == (page.findings[2].key, page.findings[2].lane in lanes)
    assert page.reached is None
    await store.batch()
    await place.expire()
    assert 2 == len(await findings(store, "expired"))


async def test_a_message_of_a_stream_of_its_own_is_stranded_where_that_has_passed_it(place: Place) -> None:
    """The main head is above it; its own stream may still come to it."""
    store = await place.store()
    await place.insert(exchange="audit")
    first = await place.newest()
    await place.insert(exchange="audit")
    assert [first] == [one.position for one in (await store.left(heads={"audit": first})).findings]


async def test_a_scan_of_waits_goes_on_after_the_time_that_it_came_to(place: Place) -> None:
    """What was found is found once, but for what may have been written lately."""
    store = await place.store()
    await place.insert(wait=-60)
    old = await place.newest()
    await place.insert(wait=-1)
    late = await place.newest()
    await place.insert(wait=3600)
    page = await store.due()
    assert ([old, late], None) == ([one.position for one in page.findings], page.reached)
    assert [late] == [one.position for one in (await store.due(after=page.due)).findings]


async def test_what_somebody_else_has_locked_is_stepped_over(place: Place) -> None:
    """SKIP LOCKED: the claim does not wait."""
    store = await place.store()
    first, second = await place.insert(2)
    async with place.holding(first):
        assert [second] == await store.ids()
    assert [first] == await store.ids()


async def test_a_claim_walks_so_many_messages_and_says_how_far_it_came(place: Place) -> None:
    """A claim scans each range up to a bound, where the next claim continues; a claim that is full scans no further."""
    store = await place.store()
    await place.insert(5, exchange="audit")
    ids = await place.insert(4)
    first = await store.take(Fresh([Range(START, LAST_XID)], 5, ["audit"]))
    assert (None, False) == (first.batch, first.full)
    [bound] = first.bounds
    assert bound is not None
    rest = [Range(bound._replace(seq=bound.seq - 1), LAST_XID)]
    second = await store.take(Fresh(rest, 3, ["audit"]), limit=2)
    assert (ids[:2], True) == (ids_of(second.batch), second.full)
    third = await store.take(Fresh(rest, 10, ["audit"]))
    assert (ids[2:], False, [None]) == (ids_of(third.batch), third.full, list(third.bounds))


async def test_a_claim_looks_at_late_transactions_from_where_it_came_to(place: Place) -> None:
    """Each has its own range and its own bound."""
    store = await place.store()
    [(first, one), (second, two)] = [(await place.insert(4), await place.newest()) for _ in range(2)]
    whole = [Range(at._replace(seq=0), at.xid + 1) for at in (one, two)]
    claimed = await store.take(Fresh(whole, 2))
    assert ([*first[:2], *second[:2]], [one.xid, two.xid]) == (ids_of(claimed.batch), [bound.xid for bound in claimed.bounds if bound])
    ends = [Range(bound._replace(seq=bound.seq), bound.xid + 1) for bound in claimed.bounds if bound]
    assert [first[3], second[3]] == await store.ids(Fresh(ends, 10, only=["orders"]))


async def test_what_is_locked_while_it_is_passed_is_stranded_and_found(place: Place) -> None:
    """The head has passed it when the other transaction rolls back; a hint at it while it is locked brings nothing."""
    store = await place.store()
    [held], [free] = await place.insert(), await place.insert()
    async with place.holding(held):
        assert [free] == await store.ids()
        assert [] == await store.found_ids("stranded")
    assert [held] == await store.found_ids("stranded")


async def test_stale_tokens_change_nothing(place: Place) -> None:
    """After the lock expired and another relay claimed, neither settle nor release nor renewal has an effect."""
    late, other = await place.store("late"), await place.store("other")
    [id_] = await place.insert()
    batch = await late.batch()
    await place.expire()
    await late.sweep()
    await other.found_batch("suspect")
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
    told = [SettleRow(batch.claims[0], SUCCESS, 1, 2), SettleRow(batch.claims[1], Archive(Result.FAILED, "nack", "No."), None, None)]
    assert [] == await store.archive(batch, told, again=False)
    assert [] == await store.archive(batch, told, again=True)
    assert dict(zip(ids, ("success", "failed"), strict=True)) == await place.results()


@pytest.mark.parametrize(("outcome", "attempts"), [(GONE, 0), (NACKED, 1)])
async def test_releases_put_back_and_may_be_heard_late(place: Place, outcome: Outcome, attempts: int) -> None:
    """A claim that is released counts no attempt; a second try finds nothing to do, even when another claim has followed."""
    store = await place.store()
    [id_] = await place.insert()
    batch = await store.batch()
    assert [[], []] == [await store.release(batch, rows(batch, outcome), again=again) for again in (False, True)]
    assert Standing(attempts, locked=False, waits=True, locked_by=None) == await place.standing(id_)
    assert [id_] == await store.found_ids()
    assert [] == await store.release(batch, rows(batch, outcome), again=True)


async def test_a_settle_steps_over_a_row_that_another_session_holds(place: Place) -> None:
    """Its neighbours are archived at once, and the held row once the other session has released it; it was never lost."""
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
    """Its neighbours are released at once, and the held row once the other session has released it; an attempt is counted once."""
    store = await place.store()
    ids = await place.insert(3)
    batch = await store.batch()
    async with place.holding(ids[1]):
        assert busy(ids[1]) == await store.release(batch, rows(batch, outcome), again=False)
        assert busy(ids[1]) == await store.release(batch, rows(batch, outcome)[1:2], again=True)
    assert {ids[0], ids[2]} == set(await store.found_ids())
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


async def test_suspects_are_trusted_once_and_then_no_more(place: Place) -> None:
    """A suspect that is released stays a suspect; where few attempts are allowed, no suspect is trusted."""
    store, careful = await place.store(), await place.store("careful", ALONE)
    await place.insert(3)
    await store.batch()
    await place.expire()
    assert (3, 0) == await store.sweep()
    assert [False] * 3 == [one.trusted for one in await findings(careful, "suspect")]
    [one, *_] = found = await findings(store, "suspect")
    assert [True] * 3 == [one.trusted for one in found]
    assert [] == await store.ids(At([one.position], "waiting"))
    alone = await store.batch(At([one.position], "suspect"))
    await store.release(alone, rows(alone, GONE), again=False)
    assert 3 == len(await store.found_ids("suspect"))
    await place.expire()
    await store.sweep()
    assert [False] * 3 == [one.trusted for one in await findings(store, "suspect")]


@pytest.mark.parametrize(("setting", "value"), [("max_attempts", "1"), ("on_lock_expired", "archive")])
async def test_a_lock_that_expires_once_too_often_ends_in_the_archive(place: Place, setting: str, value: str) -> None:
    """By the number of attempts, or by policy at the first."""
    store = await place.store()
    await place.put(setting, value)
    [id_] = await place.insert()
    await store.batch()
    await place.expire()
    assert (0, 1) == await store.sweep()
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
    """Each once with its lowest message, in claim order, and how far the list came."""
    store = await place.store()
    places = []
    for key in ("a", "b", "a", "c"):
        await place.insert(ordering_key=key)
        places.append(await place.newest())
    lanes = await store.keep_lanes()
    listed = await store.list_keys(lanes=[*lanes], ranges=[Range(START, LAST_XID)], walk=3)
    assert ({"a": places[0], "b": places[1]}, places[2]) == ({key: first for key, (_, first) in listed.keys.items()}, listed.last)
    rest = await store.list_keys(lanes=[*lanes], ranges=[Range(places[1], LAST_XID)], walk=3)
    assert ({"a": places[2], "c": places[3]}, None) == ({key: first for key, (_, first) in rest.keys.items()}, rest.last)
    assert {} == (await store.list_keys(lanes=[], ranges=[Range(START, LAST_XID)], walk=3)).keys


async def test_locks_that_are_over_are_freed_at_their_positions(place: Place) -> None:
    """Nothing else is: neither a lock that holds nor one that was not named."""
    store = await place.store()
    ids = await place.insert(3)
    batch = await store.batch()
    await place.expire(*ids[:2])
    assert (1, 0) == await store.free_expired([batch.claims[0].position, batch.claims[2].position])
    assert Standing(1, locked=False, waits=True, locked_by=store.relay_id) == await place.standing(ids[0])
    assert [True, True] == [(await place.standing(id_)).locked for id_ in ids[1:]]
    assert (1, 0) == await store.sweep()
