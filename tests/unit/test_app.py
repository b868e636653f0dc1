"""What the composition root hands to whom."""

from __future__ import annotations

import math

import pytest

from relay.app import Relay
from relay.maintenance import SWEEP_SOONEST
from relay.postgres.lowest import UNHEARD
from relay.settings import load


@pytest.fixture
def relay() -> Relay:
    """A relay that has connected to nothing yet."""
    return Relay(load({"RELAY_POLL_INTERVAL": "3600"}, None))


def test_the_store_counts_sweeps_by_the_time_that_lies_between_two_of_them(relay: Relay) -> None:
    """At the least, so that the last one comes when the locks of a lost claim have expired."""
    relay._store._lowest.lose("waiting")
    for left in range(math.ceil((30 + UNHEARD) / SWEEP_SOONEST), -1, -1):
        assert relay._store.unheard
        relay._store.swept()
        assert relay._store.unheard == (left > 0)
