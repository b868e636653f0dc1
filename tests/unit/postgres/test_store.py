"""What the store asks of its three connections, and what it makes of their answers; what PostgreSQL makes of it is shown elsewhere."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from typing import Any

import pytest

from relay import __version__
from relay.engine.policy import Policy
from relay.errors import StoreError
from relay.message import Batch, Claim, Position, Range
from relay.ports import At, ById, Fresh, Places, Wanted
from relay.postgres.payload_fetcher import LARGE
from relay.postgres.session import BY_INDEX, IN_ORDER
from relay.postgres.store import LEASE, Store
from relay.postgres.timeouts import soon
from tests.support.database.queue import PLENTY
from tests.support.fakes.adapters import EMPTY, Clock, a_claim
from tests.support.fakes.scripted_store import Played, clock_of, due_rows
from tests.support.fakes.virtual_time import timeless

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
        for role, settings in (("claim", BY_INDEX), ("settle", BY_INDEX), ("control", IN_ORDER))
    ] == made


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
    played.answers["register_relay"].append([(9, "2026-01-01 00:00:00+00")])

    assert 9 == await played.store.register() == played.store.relay_id
    assert [("claim", "open"), ("settle", "open"), ("control", "open"), ("control", "register_relay")] == played.asked
    assert {"name": "one", "version": __version__, "host": socket.gethostname(), "pid": os.getpid()} == played.values[-1]


@timeless
async def test_a_relay_leaves_by_its_id_and_start_and_closes_every_connection() -> None:
    """Its row stays where locks still carry it."""
    played = Played()
    await played.store.unregister(holds_locks=True)
    await played.store.aclose()

    assert [("control", "unregister_relay"), ("claim", "close"), ("settle", "close"), ("control", "close")] == played.asked
    assert [{"relay_id": 7, "started_at": "", "holds_locks": True}] == played.values


@timeless
async def test_nothing_is_claimed_before_it_can_be_settled() -> None:
    """Both connections are opened first."""
    played = Played()
    await played.claim()

    assert [("settle", "open"), ("claim", "open"), ("claim", "due_fresh")] == played.asked


@timeless
async def test_a_claim_carries_the_policy_and_its_batch_the_lock(clock: Clock) -> None:
    """The relay's deadline lies a fifth before the database's."""
    played = Played(Policy(lock_seconds=20.0))
    claim = a_claim(payload=b"12")
    batch = (await played.claim(claim)).batch
    assert batch is not None
    [values] = played.values
    own = {"limit": 10, "limit_bytes": PLENTY, "relay_id": 7, "lock_seconds": 20.0, "now": None, "large": LARGE, "token": batch.token}
    assert own.items() <= values.items()
    assert 4 == uuid.UUID(batch.token).version
    expected = ([claim], 5000.0, 100.0, 116.0, "fresh", EMPTY + 2)
    assert expected == (batch.claims, batch.claimed_at, batch.claimed_tick, batch.deadline, batch.source, batch.size)


RANGES = [Range(Position(12, 3), 13), Range(FIFTY, 99)]


@pytest.mark.parametrize(
    ("wanted", "statement", "values"),
    [
        (Fresh(RANGES, 20), "due_fresh", {"from_xids": "{12,50}", "from_seqs": "{3,1}", "to_xids": "{13,99}", "walk": 20}),
        (Fresh(RANGES, 20), "due_fresh", {"except": [], "only": None}),
        (Fresh(RANGES, 20, ["audit"]), "due_fresh", {"except": ["audit"], "only": None}),
        (Fresh(RANGES, 20, only=["audit", "orders"]), "due_fresh", {"except": [], "only": ["audit", "orders"]}),
        (At([FIFTY, SIXTY], "waiting"), "due_at", {"xids": "{50,60}", "seqs": "{1,2}", "lanes": [], "epochs": [], "suspects": False}),
        (At([FIFTY], "ordered", {3: 7, 4: 8}), "due_at", {"lanes": [3, 4], "epochs": [7, 8], "suspects": False}),
        (At([FIFTY], "suspect", {3: 7}), "due_at", {"lanes": [3], "epochs": [7], "suspects": True}),
        (ById(["a", "b"]), "due_by_id", {"ids": ["a", "b"]}),
    ],
)
@timeless
async def test_what_is_wanted_is_a_statement_and_its_values(wanted: Wanted, statement: str, values: dict[str, object]) -> None:
    """And the batch tells where it came from."""
    played = Played()
    batch = (await played.claim(a_claim(), wanted=wanted)).batch

    assert ("claim", statement) == played.asked[-1]
    assert values.items() <= played.values[-1].items()
    assert batch is not None
    assert wanted.source == batch.source


@pytest.mark.parametrize(
    ("count", "found", "full"), [(2, 2, False), (3, 3, True), (1, 2, True), (0, 0, False)],
)  # fmt: skip
@timeless
async def test_a_claim_says_whether_a_limit_left_something_out(played: Played, count: int, found: int, full: bool) -> None:
    """Of messages or of bytes."""
    claims = [at(Position(50, seq)) for seq in range(1, count + 1)]
    claimed = await played.claim(limit=3, answer=due_rows(*claims, found=found))
    assert (full, "20:20:", []) == (claimed.full, claimed.snapshot, claimed.bounds)
    assert (claims[-1].position if claims else None) == claimed.last
    assert claims == (claimed.batch.claims if claimed.batch else [])


@pytest.mark.parametrize("claims", [[], [a_claim()]])
@timeless
async def test_a_claim_of_fresh_messages_says_where_each_range_was_cut(played: Played, claims: list[Claim]) -> None:
    """With messages and without; None where it came to the end."""
    claimed = await played.claim(answer=due_rows(*claims, bounds=[[None, None], [60, 2]]))
    assert [None, SIXTY] == claimed.bounds
    claimed = await played.claim(answer=due_rows(*claims, bounds=()))
    assert [] == claimed.bounds


@timeless
async def test_a_report_tells_the_state_and_where_the_relay_claims_next_and_hears_whether_the_relay_is_known() -> None:
    """Without a row it was forgotten."""
    played = Played()
    for row, known in (([(7,)], True), ([], False)):
        played.answers["heartbeat"].append(row)
        assert known == await played.store.heartbeat("running", Places(Position(40, 1), Position(50, 2), SIXTY))
    where = {"low_xid": "40", "low_seq": 1, "head_xid": "50", "head_seq": 2, "top_xid": "60", "top_seq": 2}
    assert [{"state": "running", "relay_id": 7, "started_at": "", **where, "now": None}] * 2 == played.values
    assert {("claim", "heartbeat")} == set(played.asked)


@pytest.mark.parametrize("failure", [AWAY, asyncio.CancelledError()])
@timeless
async def test_a_claim_whose_answer_was_lost_may_have_locked_something(played: Played, failure: BaseException) -> None:
    """The relay's name is kept until those locks are over."""
    assert not played.store.left_locked
    with pytest.raises(type(failure)):
        await played.claim(answer=failure)
    await played.claim()

    assert played.store.left_locked


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
    """The exceptions are statements that wait for no other session, and that nothing slow may hold up."""
    played = Played()
    played.answers["read_policy"].append([("lock_seconds", "30")])

    assert [("lock_seconds", "30")] == await played.store.run("read_policy")
    await played.store.run("read_version")
    await played.store.run("forget_relays", forgotten=60.0, now=None)

    assert [("claim", "read_policy"), ("claim", "read_version"), ("control", "forget_relays")] == played.asked
    assert [{}, {}, {"forgotten": 60.0, "now": None}] == played.values
