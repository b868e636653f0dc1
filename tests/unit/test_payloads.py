"""How much of a large payload, and of a claim, is asked for at once."""

from __future__ import annotations

from relay.payloads import FIRST, GROWTH, LARGE, LEAST, USUAL, Pace

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


def test_claims_shrink_when_one_does_not_arrive_and_grow_while_they_come_quickly() -> None:
    """Down to what any network brings, and up to what was asked for."""
    pace = Pace()
    assert 1 << 40 == pace.of_claim(1 << 40)
    pace.unheard(1 << 40)
    assert USUAL // GROWTH == pace.of_claim(1 << 40)
    assert 10 == pace.of_claim(10)
    pace.claimed([bytes(USUAL)], 3.0)
    assert USUAL // GROWTH == pace.of_claim(1 << 40)
    for _ in range(4):
        pace.claimed([bytes(USUAL)], 0.1)
    assert 1 << 40 == pace.of_claim(1 << 40)
    for _ in range(20):
        pace.unheard(pace.of_claim(1 << 40))
    assert LEAST == pace.of_claim(1 << 40)


def test_claims_that_bring_little_let_no_larger_one_follow() -> None:
    """They come quickly over any network; those that leave payloads behind for the bound alone are let grow."""
    pace = Pace()
    pace.unheard(1 << 40)
    bound = USUAL // GROWTH
    for payloads in ([], [b"small"], [bytes(bound // 2 - 1)], [None]):
        pace.claimed(payloads, 0.1)
        assert bound == pace.of_claim(1 << 40)
    pace.claimed([bytes(bound // 4), bytes(bound // 4)], 0.1)
    assert bound * 2 == pace.of_claim(1 << 40)
    pace.unheard(LARGE)
    pace.claimed([None], 0.1)
    assert LARGE // GROWTH * 2 == pace.of_claim(1 << 40)
