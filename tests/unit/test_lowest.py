"""How low locks may be: what a heartbeat must tell so that no lock is forgotten."""

from __future__ import annotations

import pytest

from relay.message import START, Position
from relay.ports import Due
from relay.postgres.lowest import ABOVE_HEAD, UNHEARD, Lowest

LOW, MIDDLE, HIGH = Position(1, 1), Position(2, 2), Position(3, 3)
SOONEST = 1.8
ELSEWHERE = [due.value for due in Due if not due.value.endswith("above_head")]


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
    lowest.lose("waiting")
    for _ in range(12):
        lowest.swept()
    assert 10 + UNHEARD <= 12 * SOONEST
    assert (True, LOW) == (lowest.unheard, lowest.of(HIGH))
    lowest.swept()
    assert (False, HIGH) == (lowest.unheard, lowest.of(HIGH))
    lowest.swept()
    lowest.lose("waiting")
    assert lowest.unheard
    assert START == Lowest(lambda: 1.0, SOONEST).told


@pytest.mark.parametrize("lost", sorted(ABOVE_HEAD))
@pytest.mark.parametrize("heard", sorted(ABOVE_HEAD))
def test_no_sweep_counts_for_a_claim_above_a_head_before_the_next_one_has_moved_it(lowest: Lowest, lost: str, heard: str) -> None:
    """It looks no higher than the heads: not while the broker is away, and not after claims that move none, such as of waiting messages.

    A claim lost elsewhere meanwhile changes nothing of that.
    """
    lowest.heard(heard)
    lowest.lose(lost)
    for source in ELSEWHERE:
        sweep(lowest)
        assert lowest.unheard
        lowest.heard(source)
        lowest.lose(source)
    lowest.heard(heard)
    sweep(lowest)
    assert not lowest.unheard


@pytest.mark.parametrize("lost", ELSEWHERE)
def test_every_sweep_counts_for_a_claim_that_was_not_above_a_head(lowest: Lowest, lost: str) -> None:
    """What it locked stands below the heads, or is found by an index of its own, whatever is claimed until then."""
    lowest.lose(lost)
    sweep(lowest)
    assert not lowest.unheard


def sweep(lowest: Lowest) -> None:
    """More often than is ever owed."""
    for _ in range(100):
        lowest.swept()
