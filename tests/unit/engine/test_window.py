"""What a relay holds is counted in messages and bytes, from claim to settle."""

from __future__ import annotations

from relay.engine.window import Window
from relay.message import Position
from tests.support.fakes.adapters import EMPTY, a_batch, a_claim

SILENT = EMPTY + len("silent") - len("orders")
"""Bytes of a message of an exchange with a name of that length."""


def test_the_window_shrinks_by_what_is_in_hand_and_grows_by_what_is_settled() -> None:
    """In messages and in bytes alike, portion by portion."""
    window = Window(window=10, window_bytes=10_000)
    batch = a_batch(a_claim(payload=b"12345", options="123"), a_claim(payload=b"123", ordering_key="é"))
    window.add(batch)
    assert (8, 10_000 - 2 * EMPTY - 15) == window.room()

    window.remove(batch, batch.claims[:1])
    assert (9, 10_000 - EMPTY - 7) == window.room()
    window.remove(batch, batch.claims[1:])
    assert ((10, 10_000), 0, 0) == (window.room(), window.messages, window.size)


def test_silent_exchanges_leave_half_of_the_window_to_the_others() -> None:
    """What does not confirm and holds half or more, in messages or in bytes, is stuck, and counts as half at the most."""
    window = Window(window=10, window_bytes=20 * SILENT)
    silent, other = a_batch(*(a_claim(exchange="silent", payload=b"") for _ in range(8))), a_batch(a_claim(exchange="others", payload=b""))
    window.add(silent)
    window.add(other)
    assert not window.note_silence(["others"])
    assert (1, 11 * SILENT) == window.room()

    assert window.note_silence(["silent"])
    assert (frozenset({"silent"}), (4, 11 * SILENT)) == (window.stuck, window.room())
    assert not window.note_silence(["silent"])

    window.remove(silent, silent.claims[:4])
    assert window.note_silence(["silent"])
    assert (frozenset(), (5, 15 * SILENT)) == (window.stuck, window.room())


def test_silent_exchanges_are_stuck_by_their_bytes_too() -> None:
    """Few large messages fill a window as well as many small ones."""
    window = Window(window=10, window_bytes=10_000)
    window.add(a_batch(a_claim(exchange="one", payload=b"1" * 3000), a_claim(exchange="two", payload=b"1" * 7000)))

    assert window.note_silence(["one", "two"])
    assert (8, 5000) == window.room()


def test_the_same_claim_is_let_go_once() -> None:
    """A portion that names it again changes nothing while the batch is there."""
    window = Window(window=10, window_bytes=100)
    batch = a_batch(count=2)
    window.add(batch)
    window.remove(batch, batch.claims[:1])

    window.remove(batch, batch.claims[:1])

    assert 1 == window.messages


def test_two_batches_may_hold_the_same_position() -> None:
    """A message that came back after a lost lock is in flight twice until the first settle has learned of it."""
    window = Window(window=10, window_bytes=100)
    claim = a_claim()
    first, second = a_batch(claim), a_batch(claim)
    window.add(first)
    window.add(second)

    window.remove(first, [claim])

    assert (1, [(second, [claim.position])]) == (window.messages, window.due_for_renewal(1e15, 1.0))


def test_locks_are_renewed_for_what_is_still_in_hand() -> None:
    """Batches whose deadline comes near, without the claims that were settled."""
    window = Window(window=10, window_bytes=100)
    soon, late = a_batch(count=3, deadline=100.0), a_batch(deadline=200.0)
    window.add(soon)
    window.add(late)
    window.remove(soon, soon.claims[:1])

    assert [] == window.due_for_renewal(now=80.0, margin=15.0)
    assert [(soon, [tuple(claim.position) for claim in soon.claims[1:]])] == window.due_for_renewal(now=90.0, margin=15.0)


def test_a_lock_that_was_not_renewed_with_the_others_is_due_alone() -> None:
    """Another session held its row: its own deadline counts, until it has been renewed or is settled."""
    window, batch = Window(window=10, window_bytes=100), a_batch(count=3, deadline=100.0)
    window.add(batch)
    first, second, third = ((claim.xid, claim.seq) for claim in batch.claims)
    batch.renewed([first, second, third], 200.0, left=[second, third])

    assert [(batch, [second, third])] == window.due_for_renewal(now=90.0, margin=15.0)
    batch.renewed([second, third], 210.0, left=[third])
    assert [(batch, [third])] == window.due_for_renewal(now=90.0, margin=15.0)
    window.remove(batch, batch.claims[2:])
    assert [] == window.due_for_renewal(now=90.0, margin=15.0)
    assert [(batch, [first, second])] == window.due_for_renewal(now=190.0, margin=15.0)


def test_renewing_what_was_behind_moves_no_other_deadline() -> None:
    """The locks of the others were not asked for."""
    batch = a_batch(count=2, deadline=100.0)
    first, second = ((claim.xid, claim.seq) for claim in batch.claims)
    batch.renewed([first, second], 200.0, left=[second])
    batch.renewed([second], 300.0, left=[])

    assert (200.0, {}) == (batch.deadline, batch.behind)


def test_a_row_that_stays_held_keeps_its_first_deadline() -> None:
    """However often the others are renewed."""
    batch = a_batch(count=2, deadline=100.0)
    first, second = ((claim.xid, claim.seq) for claim in batch.claims)
    for deadline in (200.0, 300.0):
        batch.renewed([first, second], deadline, left=[second])

    assert [[False, True], [False, True]] == [[batch.is_overdue(claim, now) for claim in batch.claims] for now in (100.0, 299.0)]
    assert [False, False] == [batch.is_overdue(claim, 99.0) for claim in batch.claims]


def test_an_exchange_is_forgotten_with_its_last_message() -> None:
    """Applications may name a new exchange for each message, for years."""
    window = Window(window=10, window_bytes=100)
    batch = a_batch(a_claim(exchange="one"), a_claim(exchange="one"), a_claim(exchange="two"))
    window.add(batch)

    window.remove(batch, batch.claims[1:])
    assert {"one": 1} == dict(window._by_exchange)
    window.remove(batch, batch.claims[:1])
    assert not window._by_exchange
    assert not window._size_by_exchange


def test_what_was_let_go_of_in_part_is_counted_once() -> None:
    """The rest goes by itself or with the whole batch. What has gone before is not removed again."""
    for whole in (True, False):
        window, batch = Window(window=10, window_bytes=100), a_batch(*(a_claim(exchange=name, payload=b"1234") for name in "aab"))
        window.add(batch)
        window.remove(batch, [batch.claims[0]])
        one = EMPTY - len("orders") + len("a") + 4
        assert (2, 2 * one, 1, one) == (window.messages, window.size, window.count("a"), window.size_of("a"))

        window.remove(batch, batch.claims if whole else batch.claims[1:])
        assert (0, 0, 0, 0) == (window.messages, window.size, window.count("a"), window.size_of("b"))


def test_a_batch_that_was_looked_into_is_let_go_of_whole_all_the_same() -> None:
    """Its locks were renewed before it was settled."""
    window, batch = Window(window=10, window_bytes=100), a_batch(count=3)
    window.add(batch)
    assert [(batch, [claim.position for claim in batch.claims])] == window.due_for_renewal(1e15, 1.0)
    window.remove(batch, batch.claims)

    assert (0, 0, []) == (window.messages, window.size, window.due_for_renewal(1e15, 1.0))


def test_it_knows_what_it_holds_and_from_where_on() -> None:
    """By position; what was settled is not held any more, and below the lowest there is nothing."""
    window = Window(window=10, window_bytes=100)
    assert (None, False) == (window.lowest, window.holds(Position(7, 1)))
    high, low = a_batch(a_claim(xid=9, seq=1)), a_batch(a_claim(xid=7, seq=1), a_claim(xid=8, seq=1))
    window.add(high)
    window.add(low)

    window.remove(low, low.claims[:1])

    assert [False, True, True] == [window.holds(Position(xid, 1)) for xid in (7, 8, 9)]
    assert window.lowest is not None
    assert window.lowest <= Position(8, 1)
