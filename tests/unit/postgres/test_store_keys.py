"""What the store asks about keys, lanes and pages of the queue, and where something may be due."""

from __future__ import annotations

from typing import Any

import pytest

from relay.claims.cursor import Cursor
from relay.claims.key_bounds import KeyBound
from relay.engine.policy import Policy
from relay.engine.retry import RetryPolicy
from relay.message import START, Position, Range
from relay.ports import DuePlace, Listed, Page, QueueLook, ScanFinding, Sought
from relay.postgres.store import LAG, LOOK, MAX_FINDINGS, PAGE
from tests.support.fakes.scripted_store import Played
from tests.support.fakes.virtual_time import timeless

FIFTY, SIXTY = Position(50, 1), Position(60, 2)


@pytest.mark.parametrize(
    ("rows", "listed"),
    [
        ([("a", 3, 50, 1, "20:20:", 60, 2), ("b", 4, 60, 2, "20:20:", 60, 2)], Listed({"a": (3, FIFTY), "b": (4, SIXTY)}, "20:20:", SIXTY)),
        ([(None, None, None, None, "20:20:", None, None)], Listed({}, "20:20:", None)),
    ],
)
@timeless
async def test_keys_are_listed_with_their_lanes_and_lowest_messages(rows: list[tuple[Any, ...]], listed: Listed) -> None:
    """Of the relay's own lanes, in these ranges, after a walk over so many messages at the most."""
    played = Played()
    played.answers["list_keys"].append(rows)
    assert listed == await played.store.list_keys(lanes=[3, 4], ranges=[Range(Position(30, 7), 31), Range(FIFTY, 99)], walk=10)
    ranges = {"from_xids": "{30,50}", "from_seqs": "{7,1}", "to_xids": "{31,99}"}
    assert [{"lanes": [3, 4], "walk": 10, **ranges}] == played.values
    assert [("claim", "list_keys")] == played.asked


@pytest.mark.parametrize(("attempts", "trusted"), [(3, False), (4, True)])
@timeless
async def test_heads_are_told_by_their_keys(attempts: int, trusted: bool) -> None:
    """A key without a message has none; the snapshot comes with the first row. With few attempts a suspect goes alone."""
    played = Played(Policy(retry=RetryPolicy(max_attempts=attempts)))
    played.answers["find_heads"] += [
        [(2, 50, 1, 5, False, "orders", False, 0, "20:20:"), (3, 60, 2, 6, True, "audit", True, 1, None)],
        [(None, None, None, None, None, None, None, None, "21:21:")],
    ]
    bounds = [KeyBound(Position(0, 0), ()), KeyBound(FIFTY, (30, 31)), KeyBound(SIXTY, (32,))]

    found = await played.store.find_heads(["a", "b", "c"], bounds, running=[40, 41], paused=["audit"])

    first = ScanFinding("blocked", FIFTY, "orders", "b", 5, trusted=True)
    assert ("20:20:", {"b": first, "c": ScanFinding("suspect", SIXTY, "audit", "c", 6, trusted)}) == found
    late = {"late_places": "{2,2,3}", "late_xids": "{30,31,32}", "running": "{40,41}"}
    own = {"keys": ["a", "b", "c"], "except": ["audit"], "now": None, "from_xids": "{0,50,60}", "from_seqs": "{0,1,2}"}
    assert [{**own, **late}] == played.values
    assert ("21:21:", {}) == await played.store.find_heads([], [], running=[], paused=[])
    assert {("claim", "find_heads")} == set(played.asked)


@timeless
async def test_a_look_asks_above_both_heads_and_for_what_came_due() -> None:
    """What goes in any order, and the heads of keys, each with the late transactions below; a short walk each."""
    played = Played()
    played.answers["look"].append([(True, False, True)])
    fresh, ordered = Cursor(FIFTY, {30: 0}), Cursor(SIXTY, {31: 2})

    seen = await played.store.look(fresh=fresh, after="then", paused=["audit"], lanes=[3], ordered=ordered)

    assert QueueLook(fresh=True, ordered=False, waiting=True) == seen
    above = {"head_xid": "50", "head_seq": 1, "pending": "{30}", "after": "then", "held": ["audit"], "walk": LOOK, "now": None}
    assert [{**above, "lanes_head_xid": "60", "lanes_head_seq": 2, "lanes_pending": "{31}", "lanes": [3]}] == played.values
    assert [("claim", "look")] == played.asked


SCAN = {
    "held": ["audit"],
    "crowded": ["fax"],
    "lanes": [3],
    "walk": PAGE,
    "most": MAX_FINDINGS,
    "lag": LAG,
    "lock_seconds": 30.0,
    "now": None,
}
NOTHING = (None,) * 7
SOUGHT = Sought(["audit"], ["fax"], [3])


@timeless
async def test_a_scan_of_the_left_asks_beside_the_claims() -> None:
    """Fresh messages count up to the head, and for exchanges with streams of their own up to theirs."""
    played = Played()
    played.answers["scan_left"].append([(*NOTHING, None, None, None, None, None, "now")])

    await played.store.scan_left(after=FIFTY, head=SIXTY, heads={"mail": FIFTY, "fax": SIXTY}, sought=SOUGHT)

    where = {"from_xid": "50", "from_seq": 1, "main_xid": "60", "main_seq": 2}
    apart = {"apart": ["mail", "fax"], "head_xids": "{50,60}", "head_seqs": "{1,2}"}
    assert [{**SCAN, **where, **apart}] == played.values
    assert [("control", "scan_left")] == played.asked


@timeless
async def test_a_scan_of_waits_asks_where_claims_are_made() -> None:
    """After the time up to which it has looked; no stream has anything before it there."""
    played = Played()
    played.answers["scan_due"].append([(*NOTHING, None, None, None, None, None, "now")])

    await played.store.scan_due(after=DuePlace("then", FIFTY), sought=SOUGHT)

    where = {"after": "then", "from_xid": "50", "from_seq": 1, "main_xid": "0", "main_seq": 0}
    assert [{**SCAN, **where, "apart": [], "head_xids": "{}", "head_seqs": "{}"}] == played.values
    assert [("claim", "scan_due")] == played.asked


@pytest.mark.parametrize(
    ("tail", "page"),
    [
        ((70, 3, 50, 1, "there", "now"), ([], Position(70, 3), FIFTY, DuePlace("there", Position(70, 3)))),
        ((None, None, 50, 1, "there", "now"), ([], None, FIFTY, DuePlace("now"))),
        ((None, None, None, None, None, "now"), ([], None, None, DuePlace("now"))),
    ],
)
@timeless
async def test_a_page_says_where_the_next_one_begins(tail: tuple[Any, ...], page: tuple[Any, ...]) -> None:
    """A scan of waits that came to its end goes over the last seconds again."""
    played = Played()
    played.answers["scan_left"].append([(*NOTHING, *tail)])
    assert Page(*page) == await played.store.scan_left(after=START, head=SIXTY, heads={}, sought=SOUGHT)


@pytest.mark.parametrize(("attempts", "most", "trusted"), [(0, 12, True), (1, 12, True), (2, 12, False), (1, 4, True), (1, 3, False)])
@timeless
async def test_a_page_says_what_it_has_found(attempts: int, most: int, trusted: bool) -> None:
    """With few attempts messages go alone from their first lost lock on: no bystander may run out of them."""
    played = Played(Policy(retry=RetryPolicy(max_attempts=most)))
    tail = (60, 2, 50, 1, "there", "now")
    played.answers["scan_left"].append(
        [("suspect", 50, 1, "orders", None, None, attempts, *tail), ("key", 60, 2, "audit", "k", 3, 0, *tail)]
    )

    page = await played.store.scan_left(after=START, head=SIXTY, heads={}, sought=SOUGHT)

    found = [ScanFinding("suspect", FIFTY, "orders", None, None, trusted), ScanFinding("key", SIXTY, "audit", "k", 3, trusted=True)]
    assert found == page.findings


@timeless
async def test_locks_that_are_over_are_freed_beside_the_claims() -> None:
    """By their positions."""
    played = Played()
    played.answers["free_expired"].append([(2, 1, "[]")])

    assert (2, 1) == await played.store.free_expired([FIFTY, SIXTY])
    assert [{"xids": "{50,60}", "seqs": "{1,2}", "now": None}] == played.values
    assert [("control", "free_expired")] == played.asked


@timeless
async def test_unprintable_messages_are_rejected_beside_the_claims() -> None:
    """It may take long."""
    played = Played()
    await played.store.reject_unprintable()

    assert [("control", "reject_unprintable")] == played.asked
