"""Keys that came free: who asks for their successors, and when they are forgotten."""

from __future__ import annotations

import pytest

from relay.lanes import KEYS_PER_CLAIM, Lanes, lane_of
from relay.message import START, SUCCESS, Batch, GiveBack, Outcome, Position, Retry
from relay.ports import Claimed, Due
from tests.support.fakes import FakeClaims, a_batch, a_claim, a_portion, at_once


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


def test_a_claim_names_its_lanes_with_their_epochs() -> None:
    """The database checks both."""
    store = FakeClaims()
    store.lanes = {3: 7, 5: 2}
    lanes = Lanes(store)
    at_once(lanes.keep())

    claim(lanes)

    assert ([3, 5], [7, 2]) == (store.wheres[-1]["lanes"], store.wheres[-1]["epochs"])


@pytest.mark.parametrize("outcome", [Retry(1.0, "x", "y"), GiveBack("x", "y")])
def test_a_head_that_stays_in_the_queue_frees_nothing(outcome: Outcome) -> None:
    """Its key waits with it."""
    store = FakeClaims()
    lanes = lanes_of(store)

    assert not settled(lanes, "k", outcome=outcome)
    claim(lanes)
    assert Due.ORDERED_LISTED not in store.asked


def test_a_freed_key_without_successor_is_asked_for_once() -> None:
    """Found nothing and nothing cut: a later insert of the key is discovered above the head."""
    store = FakeClaims()
    lanes = lanes_of(store)
    assert settled(lanes, "k")

    claim(lanes)
    claim(lanes)

    assert 1 == store.asked.count(Due.ORDERED_LISTED)


def test_keys_that_a_limit_cut_off_stay_listed() -> None:
    """Only those that were found are forgotten."""
    found = a_batch(a_claim(ordering_key="a"))
    store = FakeClaims({Due.ORDERED_LISTED: [found]})
    lanes = lanes_of(store)
    settled(lanes, "a", "b")

    assert found is claim(lanes)
    claim(lanes)

    assert [["a", "b"], ["b"]] == [where["keys"] for where in store.wheres if "keys" in where]


def test_a_listed_claim_asks_for_so_many_keys_at_once() -> None:
    """Neither more than the room nor more than fits a statement."""
    store = FakeClaims()
    lanes = lanes_of(store)
    settled(lanes, *(f"k{n}" for n in range(KEYS_PER_CLAIM + 100)))

    claim(lanes, limit=7)
    claim(lanes, limit=10_000)

    assert [7, KEYS_PER_CLAIM] == [len(where["keys"]) for where in store.wheres if "keys" in where]  # type: ignore[arg-type]


def test_a_key_of_a_foreign_lane_is_left_to_its_owner() -> None:
    """The lane went to another relay while the head was in flight: its owner gets a note in the database."""
    store = FakeClaims()
    lanes = lanes_of(store, *({*range(64)} - {lane_of("k")}))

    settled(lanes, "k")
    claim(lanes)
    claim(lanes)

    assert ["k"] == store.woken
    assert Due.ORDERED_LISTED not in store.asked


def test_a_change_of_lanes_looks_from_the_left() -> None:
    """Gained lanes have heads there; unchanged ones are not walked again."""
    store = FakeClaims()
    lanes = lanes_of(store, 1)
    claim(lanes)
    assert lanes._discovery.frontier.head.xid == 0

    lanes._discovery.frontier.head = Position(50, 1)
    at_once(lanes.keep())
    assert Position(50, 1) == lanes._discovery.frontier.head
    store.lanes = {1: 1, 2: 1}
    at_once(lanes.keep())
    assert START == lanes._discovery.frontier.head


def test_a_claim_under_way_does_not_undo_a_look_from_the_left() -> None:
    """Its answer moves the frontier that it began with, not the new one."""
    lanes: Lanes

    class Meanwhile(FakeClaims):
        async def claim(self, due: Due, **asked: object) -> Claimed:
            del due, asked
            lanes.rediscover()
            return Claimed(None, "90:90:", exhausted=True)

    lanes = lanes_of(Meanwhile())
    claim(lanes)

    assert START == lanes._discovery.frontier.head
