"""Bounds of keys: whatever order transactions end in, a look from the bound on sees what a look at the whole key sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.claims import key_bounds as module
from relay.claims.cursor import Snapshot
from relay.claims.key_bounds import NOWHERE, OFTEN, KeyBound, KeyBounds
from relay.claims.key_queue import KeyQueue
from relay.message import START, Position
from tests.support.fakes.adapters import A_HEAD

STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "insert", "commit", "roll back", "look", "settle"]), st.integers(0, 9)), min_size=60, max_size=120
)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Limits that a short history reaches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NEAR", 1)
        patch.setattr(module, "MOST_LATE", 2)
        yield


def seen_from(bound: KeyBound, running: Sequence[int], visible: set[Position]) -> Position | None:
    """What the statement finds."""
    return min((at for at in visible if at >= bound.start or at.xid in {*bound.late, *running}), default=None)


@given(STEPS)
def test_a_look_from_the_bound_on_finds_the_head_of_the_whole_key(steps: list[tuple[str, int]]) -> None:
    """Transactions begin, write, end well or in nothing, and heads are settled, in any order."""
    bounds, next_xid, seq = KeyBounds(), 100, 0
    running: dict[int, set[Position]] = {}
    visible: set[Position] = set()
    for step, number in steps:
        if step == "begin":
            running[next_xid], next_xid = set(), next_xid + 1
        elif step == "look":
            [bound] = bounds.of(["k"])
            head = min(visible, default=None)
            assert head == seen_from(bound, bounds.running, visible)
            heads = {"k": A_HEAD._replace(position=head)} if head else {}
            bounds.learn(["k"], heads, Snapshot(next_xid, frozenset(running)))
        elif step == "settle":
            visible -= {min(visible)} if visible else set()
        elif running:
            xid = sorted(running)[number % len(running)]
            if step == "insert":
                seq += 1
                running[xid].add(Position(xid, seq))
            else:
                written = running.pop(xid)
                visible |= written if step == "commit" else set()


def test_only_the_keys_seen_last_are_remembered() -> None:
    """Memory is bounded; a key that was forgotten is looked at whole."""
    bounds = KeyBounds(most=2)
    for key in ("a", "b", "a", "c"):
        bounds.learn([key], {}, Snapshot(50, frozenset()))

    assert [KeyBound(Position(50, 0), ()), NOWHERE, KeyBound(Position(50, 0), ())] == bounds.of(["a", "b", "c"])
    bounds.forget()
    assert [NOWHERE] == bounds.of(["a"])


def test_new_keys_do_not_push_out_the_bound_of_one_with_many_messages() -> None:
    """Where too many have many messages, the one with the fewest goes."""
    bounds = KeyBounds(most=2)
    for key, looks in (("hot", OFTEN + 2), ("warm", OFTEN), ("a", OFTEN - 1), ("b", 1), ("c", 1)):
        for _ in range(looks):
            bounds.learn([key], {}, Snapshot(50, frozenset()))
    assert [False, False, True, False, False] == [bound == NOWHERE for bound in bounds.of(["hot", "warm", "a", "b", "c"])]

    for _ in range(OFTEN + 1):
        bounds.learn(["new"], {}, Snapshot(50, frozenset()))
    assert [False, True, False] == [bound == NOWHERE for bound in bounds.of(["hot", "warm", "new"])]


def test_long_keys_leave_room_for_fewer() -> None:
    """Bounds and keys that are asked for are bounded in bytes too, of a letter beyond ASCII four; what is dropped makes room again."""
    bounds, keys = KeyBounds(most_bytes=8), KeyQueue(most_bytes=8)
    for key in ("é", "ab", "ab", "cd", "é"):
        bounds.learn([key], {}, Snapshot(50, frozenset()))
    assert NOWHERE not in bounds.of(["ab", "cd", "é"])
    bounds.seen("é", START)
    bounds.learn(["wxyz"], {}, Snapshot(50, frozenset()))
    assert NOWHERE not in bounds.of(["ab", "cd", "wxyz"])
    bounds.learn(["z"], {}, Snapshot(50, frozenset()))
    assert [True, False, False, False] == [bound == NOWHERE for bound in bounds.of(["ab", "cd", "wxyz", "z"])]

    keys.ask({"é": 1, "ab": 2})
    keys.ask({"é": 1})
    assert (True, False) == (keys.many_new, keys.many_found)
    keys.ask({"cd": 3, "ef": 4})
    assert ["é", "ab"] == keys.first(9)
    keys.drop(["é", "é", "ef"])
    keys.took("ab")
    keys.keep(lambda lane: lane != 3)
    keys.ask({"wxyz": 3, "éa": 4})
    assert ["wxyz", "éa"] == keys.first(9)
    keys.clear()
    keys.ask({"a": 1})
    assert (False, 1) == (keys.many_new, len(keys))


def test_a_long_transaction_does_not_hold_a_bound_down() -> None:
    """It is remembered by its id; one close below the head is not, the bound goes below it."""
    bounds = KeyBounds()
    head = {"k": A_HEAD._replace(position=Position(100, 7))}

    bounds.learn(["k"], head, Snapshot(200, frozenset({50, 150})))
    assert ([KeyBound(Position(100, 7), ())], [50, 150]) == (bounds.of(["k"]), bounds.running)
    bounds.learn(["k"], head, Snapshot(200, frozenset({50, 99, 150})))
    assert ([KeyBound(Position(99, 0), ())], [50, 99, 150]) == (bounds.of(["k"]), bounds.running)
    bounds.learn(["other"], {}, Snapshot(200, frozenset({150})))
    assert ([KeyBound(Position(99, 0), (50,))], [150]) == (bounds.of(["k"]), bounds.running)


def test_late_transactions_take_room_from_keys() -> None:
    """What bounds remember of them counts in bytes, and makes room again where a bound is learned again."""
    bounds = KeyBounds(most_bytes=40)
    bounds.learn(["a"], {}, Snapshot(100, frozenset({1, 2})))
    bounds.learn(["b"], {}, Snapshot(100, frozenset({1, 2})))
    assert NOWHERE not in bounds.of(["a", "b"])
    bounds.learn(["c"], {}, Snapshot(100, frozenset({1})))
    assert [True, False, False] == [bound == NOWHERE for bound in bounds.of(["a", "b", "c"])]
    bounds.learn(["b"], {}, Snapshot(100, frozenset()))
    bounds.learn(["d"], {}, Snapshot(100, frozenset({1, 2})))
    assert [True, False, False, False] == [bound == NOWHERE for bound in bounds.of(["a", "b", "c", "d"])]


def test_a_message_that_was_seen_below_a_bound_makes_the_key_looked_at_whole() -> None:
    """One above it changes nothing, nor does one of a key that is not known."""
    bounds = KeyBounds()
    bounds.learn(["k"], {}, Snapshot(50, frozenset()))

    bounds.seen("k", Position(50, 0))
    bounds.seen("other", Position(1, 1))
    assert [KeyBound(Position(50, 0), ()), NOWHERE] == bounds.of(["k", "other"])
    bounds.seen("k", Position(49, 9))

    assert [NOWHERE] == bounds.of(["k"])


def test_a_message_of_a_transaction_that_was_running_leaves_the_bound() -> None:
    """The next look asks for that transaction, and need not walk what was settled of the key; any other message below is a surprise."""
    bounds = KeyBounds()
    bounds.learn(["k"], {}, Snapshot(50, frozenset({20})))

    bounds.seen("k", Position(20, 3))
    assert ([KeyBound(Position(50, 0), ())], [20]) == (bounds.of(["k"]), bounds.running)
    bounds.seen("k", Position(21, 4))

    assert [NOWHERE] == bounds.of(["k"])
