"""Keys that came free: who asks for their heads, and when they are forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relay.claims.backlog import Backlog
from relay.claims.cursor import Snapshot
from relay.claims.key_bounds import KeyBound, KeyBounds
from relay.claims.key_queue import KeyQueue
from relay.claims.lanes import KEYS_PER_CLAIM, LIST_ALWAYS, Lanes
from relay.claims.rate_limits import RateLimits
from relay.message import START, SUCCESS, GiveBack, Outcome, Position, Range, Retry
from relay.ports import At, Listed, ScanFinding
from tests.support.fakes.adapters import A_HEAD, ABOVE, Clock, FakeClaims, a_batch, a_claim, a_finding, a_portion, at_once
from tests.support.fakes.lanes import LANE, claim, lanes_of, listed

BLOCKED = A_HEAD._replace(kind="blocked")


def settled(lanes: Lanes, *keys: str, outcome: Outcome = SUCCESS) -> bool:
    """One message of each key was settled."""
    return lanes.settled(a_portion([a_claim(ordering_key=key, lane=LANE) for key in keys]), [outcome] * len(keys))


def test_without_lanes_nothing_is_claimed() -> None:
    """A relay that owns none costs the database no statement."""
    store = FakeClaims()
    limits = RateLimits(Clock())

    assert claim(Lanes(store, limits=limits, suspects=Backlog(limits))) is None
    assert [] == store.asked


def test_a_claim_names_its_lanes_with_their_epochs_and_the_heads_that_were_found() -> None:
    """The database checks them once more."""
    store = FakeClaims()
    store.keys = {"a": 5, "b": 9, "c": 4}
    store.heads = {"a": A_HEAD._replace(position=Position(60, 2), lane=5), "b": BLOCKED, "c": A_HEAD._replace(lane=4)}
    lanes = lanes_of(store, 3, 4, 5)
    store.lanes = {3: 7, 4: 2, 5: 4}
    at_once(lanes.keep())

    claim(lanes)

    assert [At([Position(60, 2), A_HEAD.position], "ordered", {4: 2, 5: 4})] == store.wanted


@pytest.mark.parametrize("outcome", [Retry(1.0, "x", "y"), GiveBack("x", "y")])
def test_a_head_that_stays_in_the_queue_frees_nothing(outcome: Outcome) -> None:
    """Its key waits with it."""
    store = FakeClaims()
    lanes = lanes_of(store)

    assert not settled(lanes, "k", outcome=outcome)
    claim(lanes)
    assert [] == store.found


@pytest.mark.parametrize("outcome", [SUCCESS, Retry(1.0, "x", "y")])
@pytest.mark.parametrize("seen", ["listed", "found"])
def test_a_key_in_flight_is_asked_for_when_it_is_settled(outcome: Outcome, seen: str) -> None:
    """One message of a key is in flight, even where an earlier one is committed late; whatever was seen meanwhile is not forgotten."""
    store = FakeClaims({"ordered": [a_batch(a_claim(ordering_key="k"))]})
    store.keys = listed("k")
    lanes = lanes_of(store)
    assert claim(lanes) is not None
    if seen == "listed":
        store.keys = listed("k")
    else:
        lanes.found(a_finding("key", key="k", lane=LANE))
    assert claim(lanes) is None
    assert [["k"]] == store.found

    assert settled(lanes, "k", outcome=outcome)

    claim(lanes)
    assert [["k"], ["k"]] == store.found


@pytest.mark.parametrize(("outcome", "found"), [(SUCCESS, False), (Retry(1.0, "x", "y"), True)])
def test_a_key_whose_head_is_tried_again_takes_no_room_of_new_keys(outcome: Outcome, found: bool) -> None:
    """It queues with the keys that scans find. A key that came free queues with the new ones."""
    store = FakeClaims({"ordered": [a_batch(a_claim(ordering_key="k"))]})
    store.keys = listed("k")
    lanes = lanes_of(store)
    lanes.keys = KeyQueue(most=2)
    assert claim(lanes) is not None
    lanes.found(a_finding("key", key="k", lane=LANE))

    assert settled(lanes, "k", outcome=outcome)

    assert (1, found) == (len(lanes.keys), lanes.keys.many_found)


def test_a_key_without_a_ready_head_is_asked_for_once() -> None:
    """A later insert of the key is listed above the head, and releasing the head makes it due."""
    store = FakeClaims()
    store.heads = {"k": BLOCKED}
    lanes = lanes_of(store)
    assert settled(lanes, "k")

    claim(lanes)
    claim(lanes)

    assert [["k"]] == store.found


def test_a_key_that_a_scan_has_found_is_asked_for() -> None:
    """Whatever became of its turn: one of a lane that is not ours is left to its owner."""
    store = FakeClaims()
    lanes = lanes_of(store, 1, 2)

    lanes.found(a_finding("key", key="ours", lane=2))
    lanes.found(a_finding("key", key="theirs", lane=3))
    claim(lanes)

    assert [["ours"]] == store.found


class Noting(FakeClaims):
    """Notes from where heads are looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds: list[Sequence[KeyBound]] = []

    async def find_heads(
        self, keys: Sequence[str], bounds: Sequence[KeyBound], *, running: Sequence[int], paused: Sequence[str]
    ) -> tuple[str, dict[str, ScanFinding]]:
        """As any."""
        self.bounds.append(bounds)
        return await super().find_heads(keys, bounds, running=running, paused=paused)


def test_hundreds_of_open_transactions_do_not_hold_a_bound_down() -> None:
    """As many sessions as a large server has may have written something and not committed."""
    bounds = KeyBounds()

    bounds.learn(["k"], {}, Snapshot(5000, frozenset(range(1, 251))))

    assert [KeyBound(Position(5000, 0), ())] == bounds.of(["k"])


def test_what_a_scan_has_found_below_a_bound_corrects_it() -> None:
    """A restored or rewritten message may stand lower than anything that was seen of its key."""
    store = Noting()
    lanes = lanes_of(store)
    store.heads = {"k": BLOCKED}
    for position in (Position(60, 1), Position(40, 1), Position(20, 1)):
        lanes.found(a_finding("key", key="k", lane=LANE, position=position))
        claim(lanes)

    assert [[KeyBound(START, ())], [KeyBound(START, ())], [KeyBound(START, ())]] == store.bounds
    lanes.found(a_finding("key", key="k", lane=LANE, position=Position(60, 1)))
    claim(lanes)
    assert [KeyBound(A_HEAD.position, ())] == store.bounds[-1]


def test_a_head_whose_lock_has_expired_before_goes_as_a_suspect() -> None:
    """It is not claimed together with other heads, and its key is not asked for meanwhile."""
    store = FakeClaims()
    store.keys = listed("a", "b")
    suspect = A_HEAD._replace(kind="suspect", lane=LANE, trusted=True, exchange="orders")
    store.heads = {"a": suspect, "b": A_HEAD._replace(position=Position(60, 2), lane=LANE)}
    lanes = lanes_of(store)

    claim(lanes)

    assert [At([Position(60, 2)], "ordered", {LANE: 1})] == store.wanted
    [found] = lanes._suspects.next(10, ())
    assert (A_HEAD.position, "orders", "a", LANE, True) == (found.position, found.exchange, found.key, found.lane, found.trusted)
    assert ["b"] == lanes.keys.first(10)


def test_a_head_that_changed_between_the_look_and_the_lock_is_looked_for_again() -> None:
    """The claim got nothing, or not all that was found: what is left is asked for at the next look."""
    store = FakeClaims({"ordered": [None, a_batch(a_claim(ordering_key="a"))]})
    lanes = lanes_of(store)
    settled(lanes, "a", "b")

    assert claim(lanes) is None
    assert claim(lanes) is not None
    claim(lanes)

    assert [["a", "b"], ["a", "b"], ["b"]] == [sorted(keys) for keys in store.found]


def test_heads_that_cannot_be_had_do_not_keep_others_from_being_asked_for() -> None:
    """An application holds their rows: they go to the end."""
    store = FakeClaims()
    lanes = lanes_of(store)
    settled(lanes, "a", "b", "c")

    claim(lanes, limit=2)
    claim(lanes, limit=2)

    assert {"c"} <= {*store.found[1]}


def test_a_look_asks_for_so_many_keys_at_once() -> None:
    """Neither more than the room nor more than fits a statement."""
    store = FakeClaims()
    lanes = lanes_of(store)
    settled(lanes, *(f"k{n}" for n in range(KEYS_PER_CLAIM + 100)))

    claim(lanes, limit=7)
    claim(lanes, limit=10_000)

    assert [7, KEYS_PER_CLAIM] == [len(keys) for keys in store.found]


def test_many_blocked_keys_leave_other_sources_their_turn() -> None:
    """A claim looks at a thousand keys at the most, and says that it has not come to the end."""
    store = FakeClaims()
    store.keys = listed(*(f"k{n}" for n in range(10 * KEYS_PER_CLAIM)))
    store.heads = dict.fromkeys(store.keys, BLOCKED)
    lanes = lanes_of(store)

    looks = 0
    while claim(lanes, limit=1000) is None and lanes.unfinished:
        looks += 1

    assert (5, 10) == (looks, len(store.found))


def test_a_backlog_of_some_keys_does_not_keep_new_ones_from_being_listed() -> None:
    """Heads that are settled at once free their keys again and again."""
    store = FakeClaims({"ordered": [a_batch(a_claim(ordering_key="hot")) for _ in range(20)]})
    lanes = lanes_of(store)
    settled(lanes, "hot")
    for _ in range(10):
        claim(lanes)
        settled(lanes, "hot")

    assert 2 <= store.asked.count("list_keys")


def test_a_list_that_was_cut_short_goes_on_where_it_ended() -> None:
    """Page by page, at once."""
    asked: list[Position] = []

    class Pages(FakeClaims):
        async def list_keys(self, *, ranges: Sequence[Range], **others: object) -> Listed:
            del others
            asked.append(ranges[-1].after)
            last = Position(len(asked) * 10, 1) if len(asked) < 3 else None
            return Listed({f"k{len(asked)}": (LANE, ABOVE)}, "90:90:", last)

    store = Pages()
    store.heads = dict.fromkeys(("k1", "k2", "k3"), BLOCKED)
    lanes = lanes_of(store)
    while claim(lanes) is None and lanes.unfinished:
        pass

    assert [START, Position(10, 1), Position(20, 1)] == asked
    assert [["k1"], ["k2"], ["k3"]] == store.found


def test_a_key_of_a_foreign_lane_is_left_to_its_owner() -> None:
    """The lane went to another relay while the head was in flight: that relay's scrub finds what is next."""
    store = FakeClaims()
    lanes = lanes_of(store, 1, 2)

    settled(lanes, "k")
    claim(lanes)
    claim(lanes)

    assert [] == store.found


def test_a_change_of_lanes_drops_the_keys_of_others_and_walks_nothing_again() -> None:
    """The scrub finds the keys of lanes that were gained: a relay that comes and goes must not keep the list from the right end."""
    store = FakeClaims()
    lanes = lanes_of(store, 1, LANE)
    settled(lanes, "k")
    lanes.cursor.head = Position(50, 1)
    assert not at_once(lanes.keep())
    assert Position(50, 1) == lanes.cursor.head
    store.lanes = {1: 1, 2: 1}

    assert at_once(lanes.keep())

    assert Position(50, 1) == lanes.cursor.head
    claim(lanes)
    assert [] == store.found


def test_after_a_new_connection_only_what_is_in_flight_is_known() -> None:
    """The lanes may be somebody else's by now."""
    store = FakeClaims({"ordered": [a_batch(a_claim(ordering_key="mine"))]})
    store.keys = listed("mine", "k")
    lanes = lanes_of(store)
    claim(lanes)

    lanes.reset()

    assert ([], START, 0) == (lanes.owned, lanes.cursor.head, len(lanes.keys))
    at_once(lanes.keep())
    store.keys = listed("mine")
    assert claim(lanes) is None
    assert [["mine", "k"]] == store.found


def test_keys_of_lanes_that_were_given_up_while_they_were_listed_are_not_asked_for() -> None:
    """They would be looked for again and again, and never be ours to claim."""
    lanes: Lanes

    class Meanwhile(FakeClaims):
        async def list_keys(self, **asked: object) -> Listed:
            del asked
            self.lanes = dict.fromkeys({*range(64)} - {9}, 1)
            at_once(lanes.keep())
            return Listed({"theirs": (9, ABOVE), "ours": (8, ABOVE)}, "90:90:", None)

    store = Meanwhile()
    lanes = lanes_of(store)
    claim(lanes)
    claim(lanes)

    assert {"ours"} == {key for keys in store.found for key in keys}


def test_a_list_under_way_does_not_undo_a_look_from_the_left() -> None:
    """Its answer moves the cursor that it began with, not the new one."""
    lanes: Lanes

    class Meanwhile(FakeClaims):
        async def list_keys(self, **asked: object) -> Listed:
            del asked
            lanes.reset()
            return Listed({}, "90:90:", None)

    lanes = lanes_of(Meanwhile())
    claim(lanes)

    assert START == lanes.cursor.head


def test_many_heads_that_somebody_has_locked_give_their_turn_and_their_room_to_others() -> None:
    """Few are looked at again at once; of many the scrub finds those again that can be claimed."""
    store = FakeClaims()
    store.keys = listed(*(f"k{n}" for n in range(2 * KEYS_PER_CLAIM + 1)))
    lanes = lanes_of(store)

    left = []
    for _ in range(4):
        assert claim(lanes, limit=KEYS_PER_CLAIM) is None
        left.append((len(lanes.keys), lanes.unfinished))

    assert [(501, True), (1, True), (1, False), (1, False)] == left


def test_new_keys_are_listed_however_many_are_asked_for() -> None:
    """As where an application has locked the heads of very many keys."""
    store = FakeClaims()
    lanes = lanes_of(store)
    lanes.keys.ask(dict.fromkeys((f"k{n}" for n in range(15_000)), LANE))
    store.heads = dict.fromkeys((f"k{n}" for n in range(15_000)), A_HEAD._replace(lane=LANE))

    for _ in range(LIST_ALWAYS):
        claim(lanes, limit=10)

    assert 1 == store.asked.count("list_keys")
