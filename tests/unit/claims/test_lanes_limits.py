"""Heads of keys whose exchange is limited: which are claimed, and when the others have their turn."""

from __future__ import annotations

from relay.claims.key_queue import KeyQueue
from relay.claims.rate_limits import RateLimits
from relay.message import Position
from relay.ports import At
from tests.support.fakes.adapters import A_HEAD, Clock, FakeClaims, a_batch, a_claim, at_once
from tests.support.fakes.lanes import LANE, claim, lanes_of, listed


def test_heads_beyond_a_limit_wait_for_it_and_the_others_go() -> None:
    """The keys are not asked for meanwhile; each has its turn."""
    clock = Clock()
    limits = RateLimits(clock)
    limits.set({"slow": 1.0}, 1)
    clock.now += 1
    store = FakeClaims()
    store.keys = listed("a", "b", "c")
    store.heads = {
        key: A_HEAD._replace(position=Position(50, n), lane=LANE, exchange=exchange)
        for n, (key, exchange) in enumerate([("a", "slow"), ("b", "slow"), ("c", "quick")])
    }
    lanes = lanes_of(store, limits=limits)

    claim(lanes)

    assert [At([Position(50, 0), Position(50, 2)], "ordered", {LANE: 1})] == store.wanted
    assert {"slow"} == lanes.backlog.throttled
    limits.took(a_batch(a_claim(exchange="slow")))
    assert [("b", LANE)] == [(one.key, one.lane) for one in lanes.backlog._found["slow"].values()]


def test_keys_beyond_a_limit_have_their_turn_as_it_lets_them_go() -> None:
    """As many as it admits; all at once when it is lifted; none of a held exchange or of a lane that is another relay's now."""
    clock = Clock()
    limits = RateLimits(clock)
    limits.set({"slow": 2.0}, 1)
    store = FakeClaims()
    store.keys = listed(*"pqrs") | {"other": 5}
    store.heads = {
        key: A_HEAD._replace(position=Position(50, n), lane=lane, exchange="slow") for n, (key, lane) in enumerate(store.keys.items())
    }
    lanes = lanes_of(store, limits=limits)
    assert (claim(lanes), 5) == (None, len(lanes.backlog))
    lanes._owned = {LANE: 1}
    clock.now += 1

    at_once(lanes.claim(limit=100, limit_bytes=1000, paused=["slow"]))
    claim(lanes)
    lanes.keys.clear()
    limits.set({}, 1)
    claim(lanes)

    assert [[*"pqrs", "other"], [*"pq"], [*"rs"]] == store.found


def test_a_head_that_a_limit_lets_go_needs_no_room_of_those_that_scans_find() -> None:
    """It has left the backlog, so it must find a place."""
    limits = RateLimits(Clock())
    store = FakeClaims()
    lanes = lanes_of(store, limits=limits)
    lanes.keys = KeyQueue(most=4)
    lanes.keys.ask({"x": LANE, "y": LANE}, found=True)
    lanes.backlog.put(A_HEAD._replace(key="k", lane=LANE, exchange="slow"))

    claim(lanes)

    assert "k" in store.found[0]
