"""Lanes as unit tests make and ask them."""

from __future__ import annotations

from relay.claims.backlog import Backlog
from relay.claims.lanes import Lanes
from relay.claims.rate_limits import RateLimits
from relay.message import Batch
from tests.support.fakes.adapters import Clock, FakeClaims, at_once

LANE = 3


def lanes_of(store: FakeClaims, *owned: int, limits: RateLimits | None = None) -> Lanes:
    """Lanes with the given numbers, or all."""
    store.lanes = dict.fromkeys(owned or range(64), 1)
    limits = limits or RateLimits(Clock())
    lanes = Lanes(store, limits=limits, suspects=Backlog(limits))
    at_once(lanes.keep())
    return lanes


def claim(lanes: Lanes, limit: int = 100) -> Batch | None:
    """The next batch of what is ready."""
    return at_once(lanes.claim(limit=limit, limit_bytes=1000, paused=[]))


def listed(*keys: str) -> dict[str, int]:
    """Keys, all of one lane."""
    return dict.fromkeys(keys, LANE)
