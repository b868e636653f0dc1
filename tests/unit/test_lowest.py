"""How low locks may be: what a heartbeat must tell so that no lock is forgotten."""

from __future__ import annotations

import pytest

from relay.message import START, Position
from relay.postgres.lowest import UNHEARD, Lowest

LOW, MIDDLE, HIGH = Position(1, 1), Position(2, 2), Position(3, 3)
SOONEST = 1.8


@pytest.fixture
def lowest() -> Lowest:
    """Under locks of ten seconds."""
    return Lowest(lambda: 10.0, SOONEST)


def test_what_was_claimed_since_the_last_heartbeat_counts(lowest: Lowest) -> None:
    """It may not have been in hand when the lowest there was looked for; once it was told it is."""
    lowest.took(MIDDLE)
    lowest.took(HIGH)
    assert [MIDDLE, LOW] == [lowest.of(HIGH), lowest.of(LOW)]
    lowest.tell()
    assert HIGH == lowest.of(HIGH)


def test_what_lacks_payloads_counts_however_long_that_takes(lowest: Lowest) -> None:
    """And once more when it has them."""
    with lowest.fetching(LOW):
        lowest.tell()
        assert LOW == lowest.of(HIGH)
    assert LOW == lowest.of(HIGH)
    lowest.tell()
    assert HIGH == lowest.of(HIGH)


def test_after_a_lost_answer_nothing_rises_until_sweeps_have_looked_beyond_locks_of_then(lowest: Lowest) -> None:
    """Nobody knows where it locked; sweeps count and no clock, which may step ahead."""
    lowest.told = LOW
    lowest.lose()
    lowest.heard()
    for _ in range(12):
        lowest.swept()
    assert 10 + UNHEARD <= 12 * SOONEST
    assert (True, LOW) == (lowest.unheard, lowest.of(HIGH))
    lowest.swept()
    assert (False, HIGH) == (lowest.unheard, lowest.of(HIGH))
    lowest.swept()
    lowest.lose()
    assert lowest.unheard
    assert START == Lowest(lambda: 1.0, SOONEST).told


def test_a_sweep_before_the_next_claim_does_not_count(lowest: Lowest) -> None:
    """It looks no higher than this relay has claimed, which is nowhere after a new connection as long as the broker is away."""
    lowest.heard()
    lowest.lose()
    for _ in range(100):
        lowest.swept()
    assert lowest.unheard
    lowest.heard()
    for _ in range(100):
        lowest.swept()
    assert not lowest.unheard
