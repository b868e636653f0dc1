"""What the store asks about keys and lanes, and where something may be due."""

from __future__ import annotations

from typing import Any

import pytest

from relay.claims.bounds import Bound, Head
from relay.claims.frontier import Frontier
from relay.message import Position
from relay.ports import Listed, Place, Seen
from tests.support.played import Played
from tests.support.timeless import timeless

FIFTY, SIXTY = Position(50, 1), Position(60, 2)


@pytest.mark.parametrize(
    ("row", "listed"),
    [
        (("20:20:", ["a", "b"], False, True, 60, 2), Listed(["a", "b"], "20:20:", SIXTY, more=True, more_late=False)),
        (("20:20:", None, True, False, None, None), Listed([], "20:20:", None, more=False, more_late=True)),
    ],
)
@timeless
async def test_keys_are_listed_above_a_head_and_in_transactions_below_it(row: tuple[Any, ...], listed: Listed) -> None:
    """Of the relay's own lanes, and no more at a time than asked for."""
    played = Played()
    played.answers["list_keys"].append([row])
    assert listed == await played.store.list_keys(lanes={3: 7, 4: 8}, head=FIFTY, pending=[30, 31], most=10)
    assert [{"lanes": [3, 4], "pending": "{30,31}", "most": 10, "head_xid": "50", "head_seq": 1}] == played.values
    assert [("claim", "list_keys")] == played.asked


@pytest.mark.parametrize(
    ("row", "listed"),
    [((["a"], True, "then", 4), (["a"], Place("then", 4))), ((None, False, "then", 4), ([], None))],
)  # fmt: skip
@timeless
async def test_keys_whose_wait_is_over_are_listed_by_pages(row: tuple[Any, ...], listed: tuple[list[str], Place | None]) -> None:
    """The next page begins where this one ended."""
    played = Played()
    played.answers["list_waiting_keys"].append([row])
    assert listed == await played.store.list_waiting_keys(lanes=[3], held=["audit"], after=Place("before", 2), most=10)
    assert [{"lanes": [3], "except": ["audit"], "after": "before", "seen": 2, "most": 10, "now": None}] == played.values
    assert [("claim", "list_waiting_keys")] == played.asked


@timeless
async def test_heads_are_told_by_their_keys() -> None:
    """A key without a message has none; the snapshot comes with every row, and with one that has no head."""
    played = Played()
    played.answers["find_heads"] += [
        [(2, 50, 1, True, False, "20:20:"), (3, 60, 2, False, True, "20:20:")],
        [(None, None, None, None, None, "21:21:")],
    ]
    bounds = [Bound(Position(0, 0), ()), Bound(FIFTY, (30, 31)), Bound(SIXTY, (32,))]

    found = await played.store.find_heads(["a", "b", "c"], bounds, held=["audit"])

    assert ("20:20:", {"b": Head(FIFTY, locked=True, ready=False), "c": Head(SIXTY, locked=False, ready=True)}) == found
    late = {"late_places": "{2,2,3}", "late_xids": "{30,31,32}"}
    own = {"keys": ["a", "b", "c"], "except": ["audit"], "now": None, "from_xids": "{0,50,60}", "from_seqs": "{0,1,2}"}
    assert [{**own, **late}] == played.values
    assert ("21:21:", {}) == await played.store.find_heads([], [], held=[])
    assert {("claim", "find_heads")} == set(played.asked)


@timeless
async def test_a_look_asks_above_both_heads() -> None:
    """What goes in any order, and the heads of keys, each with what is pending below."""
    played = Played()
    played.answers["look"].append([(True, False, True)])
    fresh, ordered = Frontier(head=FIFTY, pending={30}), Frontier(head=SIXTY, pending={31})

    seen = await played.store.look(fresh=fresh, apart=["flood"], held=["audit"], lanes={3: 7}, ordered=ordered)

    assert Seen(fresh=True, ordered=False, waiting=True) == seen
    above = {"head_xid": "50", "head_seq": 1, "pending": "{30}", "except": ["flood"], "held": ["audit"], "now": None}
    assert [{**above, "lanes_head_xid": "60", "lanes_head_seq": 2, "lanes_pending": "{31}", "lanes": [3]}] == played.values
    assert [("claim", "look")] == played.asked


@timeless
async def test_successors_are_woken_beside_the_claims_and_unprintable_ones_rejected_apart() -> None:
    """The second may take long."""
    played = Played()
    await played.store.wake_successors(("a", "b"))
    await played.store.reject_unprintable()

    assert [("claim", "wake_successors"), ("control", "reject_unprintable")] == played.asked
    assert ["a", "b"] == played.values[0]["keys"]
