"""What the store asks of its three connections, and what it makes of their answers; what PostgreSQL makes of it is shown elsewhere."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from typing import Any

import pytest

from relay import __version__
from relay.errors import StoreError
from relay.message import Batch, Claim, Position
from relay.policy import Policy
from relay.ports import Due
from relay.postgres.answers import soon
from relay.postgres.database import BY_INDEX
from relay.postgres.lowest import UNHEARD
from relay.postgres.payloads import LARGE
from relay.postgres.store import LEASE, Store
from relay.retry import RetryPolicy
from tests.support.fakes import Clock, a_claim
from tests.support.played import FAR, Played, clock_of, due_rows
from tests.support.queue import FIRST, PLENTY
from tests.support.timeless import timeless

AWAY = StoreError("Away.")
FIFTY, SIXTY = Position(50, 1), Position(60, 2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The store's own clock."""
    return clock_of(monkeypatch, "store")


@pytest.fixture
def played() -> Played:
    """A store with the default policy."""
    return Played()


def at(position: Position, **given: Any) -> Claim:
    """A claim at a position."""
    return a_claim(xid=position.xid, seq=position.seq, **given)


@pytest.mark.parametrize(("given", "prepare"), [({}, True), ({"prepare": True}, True), ({"prepare": False}, False)])
def test_each_connection_has_a_name_and_settings_of_its_own(monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], prepare: bool) -> None:
    """Two find rows by index and give up with the lock; the third may scan a table for long."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr("relay.postgres.store.Session", lambda conninfo, **words: made.append({"conninfo": conninfo, **words}))

    Store(conninfo="host=x", schema="app", name="one", policy=lambda: Policy(lock_seconds=12.0), **given)

    answers = [session.pop("answer") for session in made]
    assert [soon(12.0)] * 2 == [answer() for answer in answers[:2]]
    assert answers[2] is None
    assert [
        {"conninfo": "host=x", "application_name": f"outbox-relay/one {role}", "prepare": prepare, "settings": settings}
        for role, settings in (("claim", BY_INDEX), ("settle", BY_INDEX), ("control", {}))
    ] == made


def test_a_new_store_has_heard_every_answer(clock: Clock) -> None:
    """However lately the machine was started."""
    clock.now = 0.0
    assert not Played().store.unheard


def test_statements_name_the_schema(played: Played) -> None:
    """Nothing depends on the search path."""
    assert b'"app".queue_message' in played.store._statements["look"]


def test_a_store_that_has_not_registered_has_no_id() -> None:
    """No lock carries it, as identities begin with one."""
    assert 0 == Store(conninfo="", schema="app", name="one").relay_id


@timeless
async def test_a_relay_registers_with_every_connection_open() -> None:
    """Also the one that settles, before anything is claimed."""
    played = Played()
    played.answers["register_relay"].append([(9,)])

    assert 9 == await played.store.register() == played.store.relay_id
    assert [("claim", "open"), ("settle", "open"), ("control", "open"), ("control", "register_relay")] == played.asked
    assert {"name": "one", "version": __version__, "host": socket.gethostname(), "pid": os.getpid()} == played.values[-1]


@timeless
async def test_a_relay_that_enters_again_has_told_nothing_yet() -> None:
    """The database's new row knows no position, whatever the former one had been told."""
    played = Played()
    await played.low(SIXTY)
    played.answers["register_relay"].append([(9,)])
    await played.store.register()
    await played.low()

    assert ("0", 0) == (played.values[-1]["told_xid"], played.values[-1]["told_seq"])


@timeless
async def test_a_relay_leaves_by_its_id_and_closes_every_connection() -> None:
    """Its row stays where locks still carry it."""
    played = Played()
    await played.store.unregister(holds_locks=True)
    await played.store.aclose()

    assert [("control", "unregister_relay"), ("claim", "close"), ("settle", "close"), ("control", "close")] == played.asked
    assert [{"relay_id": 7, "holds_locks": True}] == played.values


@timeless
async def test_nothing_is_claimed_before_it_can_be_settled() -> None:
    """Both connections are opened first."""
    played = Played()
    await played.claim()

    assert [("settle", "open"), ("claim", "open"), ("claim", "due_above_head")] == played.asked


@pytest.mark.parametrize(("attempts", "trusted"), [(1, 0), (3, 0), (4, 1), (5, 1)])
@timeless
async def test_a_claim_carries_the_policy_and_its_batch_the_lock(clock: Clock, attempts: int, trusted: int) -> None:
    """With few attempts messages go alone from their first lost lock on. The relay's deadline lies a fifth before the database's."""
    played = Played(Policy(retry=RetryPolicy(max_attempts=attempts), lock_seconds=20.0))
    claim = a_claim(payload=b"12")
    batch = (await played.claim(claim, due=Due.SUSPECT)).batch
    assert batch is not None
    [values] = played.values
    own = {"limit": 10, "limit_bytes": PLENTY, "relay_id": 7, "lock_seconds": 20.0, "trusted": trusted, "now": None, "large": LARGE}
    assert {**FIRST, **own, "token": batch.token} == values
    assert 4 == uuid.UUID(batch.token).version
    expected = ([claim], 5000.0, 100.0, 116.0, "suspect", 2)
    assert expected == (batch.claims, batch.claimed_at, batch.claimed_tick, batch.deadline, batch.source, batch.size)


@pytest.mark.parametrize(
    ("count", "found", "reached", "exhausted", "walked"),
    [
        (2, 2, (), True, None),
        (3, 3, (), False, None),
        (1, 2, (), False, None),
        (0, 0, (), True, None),
        (2, 2, (None,), True, None),
        (2, 2, ([60, 2],), False, SIXTY),
        (0, 0, ([60, 2],), False, SIXTY),
        (1, 2, ([60, 2],), False, None),
    ],
)
@timeless
async def test_a_claim_says_whether_a_limit_left_something_out(
    played: Played, count: int, found: int, reached: tuple[Any, ...], exhausted: bool, walked: Position | None
) -> None:
    """Of messages, of bytes, or of messages to look at; where bytes cut it the walk is not what it goes on from."""
    played.answers["due_above_head"].append(due_rows(*(a_claim() for _ in range(count)), found=found, reached=reached))
    claimed = await played.store.claim(Due.ABOVE_HEAD, limit=3, limit_bytes=1, where=FIRST)
    assert (exhausted, walked, "20:20:") == (claimed.exhausted, claimed.walked, claimed.snapshot)
    assert count == (len(claimed.batch.claims) if claimed.batch else 0)


@timeless
async def test_a_claim_from_below_is_a_claim() -> None:
    """The database is told how low by the claim itself."""
    played = Played()
    played.answers["due_waiting"].append(due_rows(at(FIFTY)))
    claimed = await played.store.claim_low(Due.WAITING, limit=3, limit_bytes=4, where=FIRST)

    assert FIFTY == claimed.last
    assert [(3, 4)] == [(values["limit"], values["limit_bytes"]) for values in played.values]


@timeless
async def test_a_report_counts_what_was_claimed_since_the_last_one() -> None:
    """Once: the next report knows it to be in hand."""
    played = Played()
    await played.claim(at(SIXTY))
    await played.claim(at(FIFTY), at(SIXTY))
    await played.claim()
    await played.claim(at(SIXTY))

    assert [FIFTY, FAR, Position(1, 1)] == [await played.low(), await played.low(), await played.low(Position(1, 1))]


@timeless
async def test_a_report_tells_everything_and_what_the_database_was_told() -> None:
    """It may be told a position that a claim has lowered meanwhile."""
    played = Played()
    played.answers["heartbeat"].append([FIFTY])
    positions = {"low_xid": "60", "low_seq": 2, "head_xid": "50", "head_seq": 1, "top_xid": "70", "top_seq": 3}
    for told in (Position(0, 0), FIFTY, FIFTY):
        there = await played.store.heartbeat(low=SIXTY, head=FIFTY, top=Position(70, 3), state="running")
        told_at = {"told_xid": str(told.xid), "told_seq": told.seq}
        assert {**positions, **told_at, "state": "running", "relay_id": 7, "now": None} == played.values[-1]
        assert there == (told == Position(0, 0)), "without a row the relay was forgotten"
    assert {("claim", "heartbeat")} == set(played.asked)


@pytest.mark.parametrize("failure", [AWAY, asyncio.CancelledError()])
@timeless
async def test_a_claim_whose_answer_was_lost_may_have_locked_something(played: Played, failure: BaseException) -> None:
    """Until sweeps have looked for it; until then reports go no higher than the last one."""
    await played.low(SIXTY)
    assert not played.store.unheard
    with pytest.raises(type(failure)):
        await played.claim(answer=failure)
    await played.claim()
    for _ in range(int(30 + UNHEARD)):
        assert (True, SIXTY) == (played.store.unheard, await played.low(Position(60, 2)))
        played.store.swept()
    assert SIXTY == await played.low()
    played.store.swept()
    played.store.swept()
    assert not played.store.unheard


@pytest.mark.parametrize("payload", [b"{}", None])
@timeless
async def test_sweeps_are_counted_when_the_head_has_moved_past_a_lost_claim(played: Played, payload: bytes | None) -> None:
    """Not by a claim of something else, nor by one that only walked, that gave something back, or whose payloads are on their way."""

    async def comes() -> list[tuple[bytes, int, float]]:
        sweep(played.store)
        assert played.store.unheard
        return [(b"1", 1, 0.0)]

    with pytest.raises(StoreError):
        await played.claim(answer=AWAY)
    await played.claim(at(FIFTY), due=Due.WAITING)
    await played.claim(answer=due_rows(found=0, reached=([60, 2],)))
    played.answers["read_payload"] += [[(b"1", 1, 0.0)], comes]
    await played.claim(at(FIFTY, payload=None), at(SIXTY, payload=None), limit_bytes=1)
    sweep(played.store)
    assert played.store.unheard

    await played.claim(at(SIXTY, payload=payload))
    sweep(played.store)
    assert not played.store.unheard


def sweep(store: Store) -> None:
    """More often than is ever owed."""
    for _ in range(100):
        store.swept()


@pytest.mark.parametrize(
    ("left", "ours", "deadlines"),
    [([], 2, (150.0, 150.0)), ([(60, 2, True)], 2, (150.0, 1.0)), ([(60, 2, False)], 1, (150.0, 1.0))],
)
@timeless
async def test_a_deadline_moves_only_with_its_lock(
    clock: Clock, left: list[tuple[int, int, bool]], ours: int, deadlines: tuple[float, float]
) -> None:
    """By the time at which it was asked, not at which it was answered; a message whose row another session holds is ours all the same."""
    played = Played(Policy(lock_seconds=62.5))

    async def later() -> list[tuple[int, int, bool]]:
        clock.now += 5
        return left

    batch = Batch("token", [], 0.0, 0.0, 1.0)
    played.answers["renew_locks"].append(later)
    assert ours == await played.store.renew(batch, [FIFTY, SIXTY])
    assert {"xids": "{50,60}", "seqs": "{1,2}", "token": "token", "lock_seconds": 62.5, "now": None} == played.values[-1]
    assert deadlines == tuple(batch.behind.get(position, batch.deadline) for position in (FIFTY, SIXTY))
    assert [("claim", "renew_locks")] == played.asked


@pytest.mark.parametrize(
    ("share", "asked", "kept"),
    [
        (2, [], {1: 5, 2: 6}),
        (1, [("yield_lanes", 1)], {1: 5}),
        (0, [("yield_lanes", 2)], {1: 5}),
        (5, [("acquire_lanes", 3)], {1: 5, 2: 6, 4: 8}),
    ],
)
@timeless
async def test_lanes_are_kept_given_up_and_taken_by_the_share(
    played: Played, share: int, asked: list[tuple[str, int]], kept: dict[int, int]
) -> None:
    """What the database really gave up or over counts."""
    played.answers["renew_lanes"].append([(share, [1, 2], [5, 6])])
    played.answers["yield_lanes"].append([(2,)])
    played.answers["acquire_lanes"].append([(4, 8)])
    assert kept == await played.store.keep_lanes()
    assert [("claim", "renew_lanes"), *(("claim", name) for name, _ in asked)] == played.asked
    own = {"relay_id": 7, "lease_seconds": LEASE, "now": None}
    assert [own, *({**own, "most": most} for _, most in asked)] == played.values


@timeless
async def test_maintenance_keeps_off_the_claims() -> None:
    """But for statements that wait for nobody, and that nothing slow may hold up."""
    played = Played()
    played.answers["read_policy"].append([("lock_seconds", "30")])

    assert [("lock_seconds", "30")] == await played.store.run("read_policy")
    await played.store.run("read_version")
    await played.store.run("forget_relays", forgotten=60.0, now=None)

    assert [("claim", "read_policy"), ("claim", "read_version"), ("control", "forget_relays")] == played.asked
    assert [{}, {}, {"forgotten": 60.0, "now": None}] == played.values
