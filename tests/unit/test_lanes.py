"""Keys that came free: who asks for their heads, and when they are forgotten."""

from __future__ import annotations

import pytest

from relay.claims.frontier import Snapshot
from relay.claims.lanes import KEYS_PER_CLAIM, PAGE, PATROL_SHARE, Lanes, lane_of
from relay.message import START, SUCCESS, Batch, GiveBack, Outcome, Position, Retry
from relay.ports import Due, Listed
from tests.support.fakes import A_HEAD, FakeClaims, WaitingKeys, a_batch, a_claim, a_portion, at_once

LOCKED = A_HEAD._replace(locked=True, ready=False)
BLOCKED = A_HEAD._replace(ready=False)


def lanes_of(store: FakeClaims, *owned: int) -> Lanes:
    """Lanes with the given numbers, or all."""
    store.lanes = dict.fromkeys(owned or range(64), 1)
    lanes = Lanes(store)
    at_once(lanes.keep())
    return lanes


def claim(lanes: Lanes, limit: int = 100) -> Batch | None:
    """The next batch of what is ready."""
    return at_once(lanes.claim(limit=limit, limit_bytes=1000, held=[]))


def settled(lanes: Lanes, *keys: str, outcome: Outcome = SUCCESS) -> bool:
    """One message of each key was settled."""
    return lanes.settled(a_portion([a_claim(ordering_key=key) for key in keys]), [outcome] * len(keys))


def test_without_lanes_nothing_is_claimed() -> None:
    """A relay that owns none costs the database no statement."""
    store = FakeClaims()
    lanes = Lanes(store)

    assert claim(lanes) is None
    assert at_once(lanes.claim_waiting(limit=1, limit_bytes=1, held=[])) is None
    assert [] == store.asked


def test_a_claim_names_its_lanes_with_their_epochs_and_the_heads_that_were_found() -> None:
    """The database checks them once more."""
    store = FakeClaims()
    store.lanes = {3: 7, lane_of("a"): 2, lane_of("c"): 4}
    store.keys = ["a", "b", "c"]
    store.heads = {"a": A_HEAD._replace(position=Position(60, 2)), "b": BLOCKED}
    epochs = dict(sorted({lane_of("a"): 2, lane_of("c"): 4}.items()))
    lanes = Lanes(store)
    at_once(lanes.keep())

    claim(lanes)

    assert {"lanes": [*epochs], "epochs": [*epochs.values()], "xids": "{60,50}", "seqs": "{2,1}"} == store.wheres[-1]


@pytest.mark.parametrize("outcome", [Retry(1.0, "x", "y"), GiveBack("x", "y")])
def test_a_head_that_stays_in_the_queue_frees_nothing(outcome: Outcome) -> None:
    """Its key waits with it."""
    store = FakeClaims()
    lanes = lanes_of(store)

    assert not settled(lanes, "k", outcome=outcome)
    claim(lanes)
    assert [] == store.found


@pytest.mark.parametrize("outcome", [SUCCESS, Retry(1.0, "x", "y")])
def test_a_key_in_flight_is_asked_for_when_it_is_settled(outcome: Outcome) -> None:
    """One message of a key is in flight, even where an earlier one is committed late; whatever was listed meanwhile is not forgotten."""
    store = FakeClaims({Due.ORDERED: [a_batch(a_claim(ordering_key="k"))]})
    store.keys = ["k"]
    lanes = lanes_of(store)
    assert claim(lanes) is not None
    store.keys = ["k"]
    assert claim(lanes) is None
    store.waiting_keys = ["k"]
    assert at_once(lanes.claim_waiting(limit=1, limit_bytes=1, held=[])) is None
    assert [["k"]] == store.found

    assert settled(lanes, "k", outcome=outcome)

    claim(lanes)
    assert [["k"], ["k"]] == store.found


def test_a_key_without_a_ready_head_is_asked_for_once() -> None:
    """A later insert of the key is listed above the head, and whoever releases its head makes it due."""
    store = FakeClaims()
    store.heads = {"k": BLOCKED}
    lanes = lanes_of(store)
    assert settled(lanes, "k")

    claim(lanes)
    claim(lanes)

    assert [["k"]] == store.found


def test_a_key_whose_head_somebody_else_holds_is_asked_for_again_when_the_lanes_are_renewed() -> None:
    """The owner of before may settle it and die before it can tell."""
    store = FakeClaims()
    store.keys, store.heads = ["k"], {"k": LOCKED}
    lanes = lanes_of(store)
    claim(lanes)
    claim(lanes)
    assert [["k"]] == store.found

    assert at_once(lanes.keep())

    claim(lanes)
    assert [["k"]] * 2 == store.found
    store.heads = {}
    at_once(lanes.keep())
    claim(lanes)
    assert not at_once(lanes.keep())


def test_a_head_that_changed_between_the_look_and_the_lock_is_looked_for_again() -> None:
    """The claim got nothing, or not all that was found: what is left is asked for at the next look."""
    store = FakeClaims({Due.ORDERED: [None, a_batch(a_claim(ordering_key="a"))]})
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
    """A claim looks at a few thousand keys at the most, and says that it has not come to the end."""
    store = FakeClaims()
    store.keys = [f"k{n}" for n in range(10 * KEYS_PER_CLAIM)]
    store.heads = dict.fromkeys(store.keys, BLOCKED)
    lanes = lanes_of(store)

    looks = 0
    while claim(lanes, limit=1000) is None and lanes.unfinished:
        looks += 1

    assert (5, 10) == (looks, len(store.found))


def test_a_look_at_waiting_keys_that_cannot_go_comes_to_its_end() -> None:
    """Each page is asked for once, and all of it is looked for before the next one; then other looks begin anew."""
    store = WaitingKeys(PAGE + 100, BLOCKED)
    lanes = lanes_of(store)

    for looks in range(1, 3):
        for _ in range(100):
            assert at_once(lanes.claim_waiting(limit=1000, limit_bytes=1000, held=[])) is None
            if not lanes.unfinished:
                break
        assert 2 * looks == store.asked.count("list_waiting_keys")
        assert looks * (PAGE + 100) == sum(map(len, store.found))


def test_a_backlog_of_some_keys_does_not_keep_new_ones_from_being_listed() -> None:
    """Heads that are settled at once free their keys again and again."""
    store = FakeClaims({Due.ORDERED: [a_batch(a_claim(ordering_key="hot")) for _ in range(20)]})
    lanes = lanes_of(store)
    settled(lanes, "hot")
    for _ in range(10):
        claim(lanes)
        settled(lanes, "hot")

    assert 2 <= store.asked.count("list_keys")


def test_a_key_of_a_foreign_lane_is_left_to_its_owner() -> None:
    """The lane went to another relay while the head was in flight: its owner gets a note in the database."""
    store = FakeClaims()
    lanes = lanes_of(store, *({*range(64)} - {lane_of("k")}))

    settled(lanes, "k")
    claim(lanes)
    claim(lanes)

    assert ["k"] == store.woken
    assert [] == store.found


def test_a_change_of_lanes_looks_from_the_left_and_drops_the_keys_of_others() -> None:
    """Gained lanes have heads there; unchanged ones are not walked again."""
    store = FakeClaims()
    lanes = lanes_of(store, 1, lane_of("k"))
    settled(lanes, "k")
    lanes.frontier.head = Position(50, 1)
    at_once(lanes.keep())
    assert Position(50, 1) == lanes.frontier.head
    store.lanes = {1: 1, 2: 1}

    assert at_once(lanes.keep())

    assert START == lanes.frontier.head
    claim(lanes)
    assert [] == store.found


@pytest.mark.parametrize("waiting", [False, True])
def test_keys_of_lanes_that_were_given_up_while_they_were_listed_are_not_asked_for(waiting: bool) -> None:
    """They would be looked for again and again, and never be ours to claim."""
    lanes: Lanes

    class Meanwhile(FakeClaims):
        def _give_up(self) -> list[str]:
            self.lanes = dict.fromkeys({*range(64)} - {lane_of("theirs")}, 1)
            at_once(lanes.keep())
            return ["theirs", "ours"]

        async def list_keys(self, **asked: object) -> Listed:
            del asked
            return Listed(self._give_up(), "90:90:", None, more=False, more_late=False)

        async def list_waiting_keys(self, **asked: object) -> tuple[list[str], None]:
            del asked
            return self._give_up(), None

    store = Meanwhile()
    lanes = lanes_of(store)
    at_once((lanes.claim_waiting if waiting else lanes.claim)(limit=10, limit_bytes=1000, held=[]))
    claim(lanes)

    assert {"ours"} == {key for keys in store.found for key in keys}


def test_a_list_under_way_does_not_undo_a_look_from_the_left() -> None:
    """Its answer moves the frontier that it began with, not the new one."""
    lanes: Lanes

    class Meanwhile(FakeClaims):
        async def list_keys(self, **asked: object) -> Listed:
            del asked
            lanes.rediscover()
            return Listed([], "90:90:", None, more=False, more_late=False)

    lanes = lanes_of(Meanwhile())
    claim(lanes)

    assert START == lanes.frontier.head


def test_a_patrol_asks_for_every_key_once_more_and_takes_a_small_share_of_the_time() -> None:
    """Page by page from the left when nothing else is to do; a long one is followed by a long pause."""
    now = 0.0

    class Slow(FakeClaims):
        async def list_keys(self, *, head: Position, **asked: object) -> Listed:
            del asked
            nonlocal now
            self.asked.append(f"list above {head.xid}")
            now += 0.1
            page = head == START
            return Listed(["k"] if page else [], "90:90:", Position(40, 1) if page else None, more=page, more_late=False)

    store = Slow()
    store.lanes, store.heads = dict.fromkeys(range(64), 1), {"k": BLOCKED}
    lanes = Lanes(store, clock=lambda: now)
    at_once(lanes.keep())
    lanes.frontier.passed(None, Snapshot(90, frozenset()), exhausted=True)

    for pause in (0.0, 1.0, 0.2 / PATROL_SHARE):
        now += pause
        lanes.patrol()
        assert claim(lanes) is None

    patrol = ["list above 89", "list above 0", "find_heads", "list above 89", "list above 40"]
    assert [*patrol, "list above 89", *patrol] == store.asked
