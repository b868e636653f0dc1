"""How much of a large payload, and of a claim, is asked for at once."""

from __future__ import annotations

import pytest

from relay.postgres.payload_fetcher import FIRST, GOAL, GROWTH, LARGE, LEAST, USUAL, Pace

MIB = 1 << 20


def test_pieces_grow_while_they_come_quickly_and_follow_the_network() -> None:
    """One that took a second at most is followed by a longer one, so that few are needed; one that took long by a shorter one."""
    pace = Pace()
    assert FIRST == pace.piece
    pace.came(FIRST, 0.001, served=0, goal=1)
    assert FIRST * GROWTH == pace.piece
    pace.came(4 * MIB, 4.0, served=0, goal=1)
    assert MIB == pace.piece
    pace.came(MIB, 1000.0, served=0, goal=1)
    assert LEAST == pace.piece


def test_what_the_server_needs_for_each_piece_makes_them_longer_and_not_shorter() -> None:
    """It prints the whole content each time: at a second each, hundreds of small pieces would take minutes."""
    pace = Pace()
    pace.came(FIRST, 2.1, served=2.0, goal=1)
    assert FIRST * GROWTH == pace.piece
    pace.came(MIB, 3.0, served=2.0, goal=1)
    assert 2 * MIB == pace.piece


SLOW = 1 << 40
"""Bytes that no network brings in time."""


def wide() -> Pace:
    """One whose claims were never bounded."""
    pace = Pace()
    assert SLOW == pace.of_claim(SLOW)
    return pace


def claimed(pace: Pace, seconds: float = 0.1, *, fetched: float = 0.0, cut: bool = True, room: int = SLOW) -> int:
    """Have a claim arrive under a lock with ten seconds left at its half, and what it left behind; return what the next one may bring."""
    pace.claimed(seconds, seconds + fetched, half=10.0, cut=cut, room=room, size=room)
    return pace.of_claim(SLOW)


def test_claims_shrink_when_one_does_not_arrive_and_grow_while_they_come_quickly() -> None:
    """Down to what any network brings, and up to what was asked for."""
    pace = wide()
    assert SLOW == claimed(pace)
    pace.too_slow()
    assert USUAL // GROWTH == pace.of_claim(SLOW)
    assert 10 == pace.of_claim(10)
    assert USUAL // GROWTH == claimed(pace, 3.0)
    assert [USUAL // 2, USUAL, SLOW] == [claimed(pace) for _ in range(3)]
    for _ in range(20):
        pace.too_slow()
    assert LEAST == pace.of_claim(SLOW) == pace.large


def test_a_claim_that_comes_when_half_of_its_lock_is_over_is_followed_by_smaller_ones() -> None:
    """It arrived, and is worth little: what it brought must be renewed before it is sent."""
    pace = wide()
    assert USUAL // GROWTH == claimed(pace, 10.1)
    assert USUAL // GROWTH // GROWTH == claimed(pace, 10.1)


@pytest.mark.parametrize("window", [MIB, 8 * MIB])
def test_claims_of_a_small_window_shrink_at_once(window: int) -> None:
    """To a part of what they might bring, not of what a larger window would let them, however little room there was just now."""
    pace = Pace()
    pace.of_claim(window)
    pace.of_claim(1000)
    pace.too_slow()
    assert [window // 4] * 3 == [pace.of_claim(window), pace.large, claimed(pace, 3.0)]
    while pace.of_claim(window) < window:
        claimed(pace, room=window)
    pace.too_slow()
    assert window // 4 == pace.of_claim(window)


def test_claims_that_show_nothing_let_no_larger_one_follow() -> None:
    """Those that brought all that was due, and those that were cut because the window had no more room than that."""
    pace = wide()
    pace.too_slow()
    assert USUAL // GROWTH == claimed(pace, cut=False) == claimed(pace, room=USUAL // GROWTH)
    assert USUAL // GROWTH * 2 == claimed(pace, room=USUAL // GROWTH + 1)


def test_what_was_left_behind_is_a_part_of_its_claim() -> None:
    """However short its pieces are: both together come within a second, or no larger claim follows. Fetched long, it is not too large."""
    pace = wide()
    pace.too_slow()
    assert (USUAL // GROWTH, LARGE) == (claimed(pace, 0.1, fetched=GOAL), pace.large)
    assert USUAL // GROWTH == claimed(pace, 9.9, fetched=9.9)
    assert USUAL // GROWTH * 2 == claimed(pace, 0.1, fetched=GOAL - 0.2)
    assert FIRST == pace.piece
