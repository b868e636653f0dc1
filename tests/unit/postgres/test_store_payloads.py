"""Payloads that did not travel with their claim: fetched one by one, and what becomes of those that cannot be had."""

from __future__ import annotations

import asyncio

import pytest

from relay.codec.option_rules import LONGEST
from relay.engine.policy import Policy
from relay.errors import StoreError
from relay.events import LockLost
from relay.message import Claim, TruncatedPayload
from relay.ports import At, Claimed, Wanted
from relay.postgres.payload_fetcher import FIRST
from tests.support.database.queue import FIRST as FRESH
from tests.support.fakes.adapters import EMPTY, Clock, a_claim
from tests.support.fakes.scripted_store import Played, clock_of
from tests.support.fakes.virtual_time import timeless

AWAY = StoreError("Away.")
UNPRINTABLE = StoreError("Beyond a gigabyte.", unprintable=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the store and of who fetches."""
    return clock_of(monkeypatch, "store", "payload_fetcher")


def large(seq: int) -> Claim:
    """A claim at (50, seq) whose payload was left behind."""
    return a_claim(xid=50, seq=seq, id=f"50-{seq}", payload=None)


def small(seq: int, length: int | None = None) -> Claim:
    """A claim at (50, seq) with its payload, of such a length."""
    return a_claim(xid=50, seq=seq, **({} if length is None else {"payload": bytes(length)}))


def payloads(claimed: Claimed) -> list[tuple[int, bytes]]:
    """Payloads by the numbers of their claims."""
    return [(claim.seq, claim.payload) for claim in claimed.batch.claims] if claimed.batch else []


@timeless
async def test_a_payload_is_fetched_under_its_lock_and_put_in_its_place() -> None:
    """On the connection that claims; of one that is longer than allowed the first piece shows it: a byte more is asked for."""
    played = Played(Policy(max_body_bytes=3))
    played.answers["read_payload"] += [[(b"123", 3, 0.0, None)], [(b"123", 4, 0.0, None)]]

    claimed = await played.claim(small(1), large(2), small(3), large(4))

    assert [(1, b"{}"), (2, b"123"), (3, b"{}"), (4, b"123")] == payloads(claimed)
    assert claimed.batch is not None
    assert [bytes, bytes, bytes, TruncatedPayload] == [type(claim.payload) for claim in claimed.batch.claims]
    values = {"xid": "50", "token": claimed.batch.token, "start": 1, "length": 4, "longest": LONGEST + 1}
    assert [{**values, "seq": 2}, {**values, "seq": 4}] == played.values[1:]
    assert [("claim", "read_payload")] * 2 == played.asked[3:]
    assert not played.store.left_locked


@pytest.mark.parametrize(("seconds", "renewed"), [(11.9, False), (12.0, True)])
@timeless
async def test_locks_are_renewed_in_half_of_the_time_that_the_batch_has(clock: Clock, seconds: float, renewed: bool) -> None:
    """With every claim of it, and the batch has the new deadline."""
    played = Played(Policy(max_body_bytes=3, lock_seconds=30.0))

    async def slow() -> list[tuple[bytes, int, float, None]]:
        clock.now += seconds
        return [(b"123", 4, 0.0, None)]

    played.answers["read_payload"].append(slow)
    batch = (await played.claim(small(1), large(2))).batch

    assert batch is not None
    assert (100.0 + 24.0 + seconds * renewed, 100.0) == (batch.deadline, batch.claimed_tick)
    assert renewed == (("claim", "renew_locks") in played.asked)
    assert not renewed or ("{50,50}", "{1,2}", batch.token) == tuple(played.values[-1][name] for name in ("xids", "seqs", "token"))


@timeless
async def test_a_row_that_another_session_holds_is_handed_on_with_its_own_deadline(clock: Clock) -> None:
    """Its lock was not renewed with the others while payloads were fetched; it is ours, and what is left is fetched all the same."""
    played = Played(Policy(lock_seconds=30.0))

    async def slow() -> list[tuple[bytes, int, float, None]]:
        clock.now += 12.0
        return [(b"123", 4, 0.0, None)]

    played.answers["read_payload"] += [slow, [(b"4", 4, 0.0, None)]]
    played.answers["renew_locks"].append([(50, 1, True)])
    batch = (await played.claim(small(1), large(2))).batch

    assert batch is not None
    assert [1, 2] == [claim.seq for claim in batch.claims]
    assert [True, False] == [batch.is_overdue(claim, 124.0) for claim in batch.claims]


@timeless
async def test_a_give_back_of_a_row_that_another_session_holds_leaves_it_to_its_lock() -> None:
    """It was not lost; the scrub finds it when that lock is over."""
    played = Played(Policy(lock_seconds=0.0))
    played.answers["read_payload"].append(UNPRINTABLE)
    played.answers["release"].append([(50, 2, True)])
    await played.claim(small(1), large(2))

    assert [] == played.told
    assert played.store.left_locked


@timeless
async def test_a_renewal_that_finds_a_lock_taken_over_ends_the_fetch() -> None:
    """The rest goes again at once; what is there is written before its old deadline, or not at all."""
    played = Played(Policy(lock_seconds=0.0))
    played.answers["read_payload"].append([(b"123", 4, 0.0, None)])
    played.answers["renew_locks"].append([(50, 3, False)])

    assert [(1, b"{}")] == payloads(await played.claim(small(1), large(2), large(3)))
    assert ("{50,50}", "{2,3}") == (played.values[-1]["xids"], played.values[-1]["seqs"])
    assert ("settle", "release") == played.asked[-1]


@timeless
async def test_who_lost_a_lock_gets_no_payload_and_is_told_of_it() -> None:
    """Another relay has the message; what was claimed alongside it continues."""
    played = Played()

    assert [(2, b"{}")] == payloads(await played.claim(large(1), small(2)))
    assert [LockLost(("50-1",))] == played.told
    assert (await played.claim(large(3))).batch is None
    assert not played.store.left_locked
    assert ("settle", "release") not in played.asked


@timeless
async def test_a_payload_that_cannot_be_had_holds_up_no_neighbour() -> None:
    """It stays locked and is not in flight, and what comes after it goes again. The next claim says why, once, and asks for nothing."""
    played = Played()
    played.answers["read_payload"].append(AWAY)

    assert [(1, b"{}"), (4, b"{}")] == payloads(await played.claim(small(1), large(2), large(3), small(4)))
    assert played.store.left_locked
    assert [("{3}", [1], [None])] == [(values["seqs"], values["given_back"], values["errors"]) for values in played.values[-1:]]
    asked = len(played.asked)
    with pytest.raises(StoreError) as told:
        await played.claim()
    assert (AWAY, asked) == (told.value, len(played.asked))
    assert not (await played.claim()).full
    assert [] == played.told


@timeless
async def test_a_claim_of_which_nothing_can_be_had_fails_itself() -> None:
    """The next claim does not report it again."""
    played = Played()
    played.answers["read_payload"].append(AWAY)

    with pytest.raises(StoreError) as told:
        await played.claim(large(1), large(2))
    assert AWAY is told.value
    assert played.store.left_locked
    assert [(3, b"{}")] == payloads(await played.claim(small(3)))


@pytest.mark.parametrize(("wanted", "suspect"), [(FRESH, False), (At([], "suspect"), True)])
@timeless
async def test_what_cannot_be_printed_is_given_back_with_its_reason(wanted: Wanted, suspect: bool) -> None:
    """So that it can be archived as soon as it is not locked; what was not asked for after it is blamed for nothing."""
    played = Played()
    played.answers["read_payload"].append(UNPRINTABLE)
    batch = (await played.claim(small(1), large(2), large(3), wanted=wanted)).batch

    assert batch is not None
    assert [1] == [claim.seq for claim in batch.claims]
    assert [("claim", "read_payload"), ("settle", "release")] == played.asked[3:]
    back = {"delays": [0.0, 0.0], "given_back": [1, 1], "errors": [None, "content_unprintable: Beyond a gigabyte."]}
    places = {"xids": "{50,50}", "seqs": "{3,2}", "token": batch.token}
    assert {**back, **places, "suspect": suspect, "now": None} == played.values[-1]


@timeless
async def test_a_give_back_that_lost_its_locks_is_told_and_not_read_again() -> None:
    """Nothing was released before."""
    played = Played()
    played.answers["read_payload"].append(UNPRINTABLE)
    played.answers["release"].append([(50, 2, False)])

    assert [(1, b"{}")] == payloads(await played.claim(small(1), large(2)))
    assert ("settle", "release") == played.asked[-1]
    assert [LockLost(("50-2",))] == played.told


@timeless
async def test_a_give_back_that_does_not_get_through_holds_up_nothing() -> None:
    """What it was for is found when its lock is over."""
    played = Played(Policy(lock_seconds=0.0))
    played.answers["read_payload"].append([(b"123", 4, 0.0, None)])
    played.answers["renew_locks"].append([(50, 2, False)])
    played.answers["release"].append(AWAY)

    assert [(1, b"{}")] == payloads(await played.claim(small(1), large(2)))
    assert played.store.left_locked


@timeless
async def test_what_another_task_leaves_locked_during_a_fetch_is_remembered() -> None:
    """A handler may run out of its time while payloads come."""
    played = Played()

    async def slow() -> list[tuple[bytes, int, float, None]]:
        played.store.leave_locked()
        return [(b"1", 1, 0.0, None)]

    played.answers["read_payload"].append(slow)
    await played.claim(large(5))

    assert played.store.left_locked


@timeless
async def test_a_fetch_that_is_cut_leaves_a_lock_in_nobodys_hand() -> None:
    """The relay is known as its holder until that lock is over."""
    played = Played()
    played.answers["read_payload"].append(asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await played.claim(large(5))

    assert played.store.left_locked


@timeless
async def test_a_relay_that_leaves_fetches_no_more() -> None:
    """It would send nothing of it: what is not there yet goes back at once, also the payload that is under way."""
    played = Played(Policy(max_body_bytes=1 << 30))

    async def first_piece() -> list[tuple[bytes, int, float, None]]:
        played.leaving = True
        return [(bytes(FIRST), 10 * FIRST, 0.0, None)]

    played.answers["read_payload"].append(first_piece)
    played.answers["release"].append([(50, 2, False), (50, 3, False)])

    assert [(1, b"{}")] == payloads(await played.claim(small(1), large(2), large(3)))
    assert 1 == played.asked.count(("claim", "read_payload"))
    assert ("settle", "release") == played.asked[-1]
    assert "{2,3}" == played.values[-1]["seqs"]
    assert not played.store.left_locked


@pytest.mark.parametrize(
    ("travelled", "room", "fetched"),
    [(0, 1, 1), (0, 2 * EMPTY + 60, 1), (0, 2 * EMPTY + 61, 2), (60, 2 * EMPTY + 120, 1), (60, 2 * EMPTY + 121, 2), (99, 1, 1)],
)
@timeless
async def test_no_more_is_fetched_than_the_window_has_room_for(travelled: int, room: int, fetched: int) -> None:
    """Its bytes count, whatever size the database took it to have, and those that travelled; one comes in any case.

    The others go back as if they had not been claimed, for the next claim to take.
    """
    played = Played()
    played.answers["read_payload"] += [[(bytes(60), 60, 0.0, None)] for _ in range(3)]

    claimed = await played.claim(large(1), large(2), large(3), small(4, travelled), limit_bytes=room)

    assert [(seq, bytes(60)) for seq in range(1, fetched + 1)] + [(4, bytes(travelled))] == payloads(claimed)
    back = "{" + ",".join(map(str, range(fetched + 1, 4))) + "}"
    assert (back, [1] * (3 - fetched), [None] * (3 - fetched)) == tuple(
        played.values[-1][name] for name in ("seqs", "given_back", "errors")
    )
    assert (("settle", "release"), 1) == (played.asked[-1], played.put_back), "whoever claims is told of it"
    assert not played.told
    assert not played.store.left_locked


@timeless
async def test_what_does_not_come_fills_no_room() -> None:
    """Neither a payload of somebody else's nor the rest of one that is over the limit."""
    played = Played(Policy(max_body_bytes=3))
    played.answers["read_payload"] += [[], [(b"123", 1 << 30, 0.0, None)], [(b"1", 1, 0.0, None)], [(b"1", 1, 0.0, None)]]

    assert [(2, b"123"), (3, b"1")] == payloads(await played.claim(large(1), large(2), large(3), large(4), limit_bytes=2 * EMPTY + 4))
    assert 1 == played.put_back
    assert [(5, b"{}")] == payloads(await played.claim(small(5)))
    assert 1 == played.put_back
