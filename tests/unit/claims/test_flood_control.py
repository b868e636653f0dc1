"""What floods, and how much of it goes while others have messages."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from relay.claims.flood_control import MAX_FLOODS, REMEMBERED, FloodControl
from relay.claims.streams import PASSED_OVER, STEPS, Streams
from relay.message import Batch, Position
from relay.ports import Claimed, Fresh, Wanted
from tests.support.fakes.adapters import EMPTY, NOWHERE, Clock, FakeClaims, a_batch, a_claim, at_once

WINDOW = 320


@pytest.fixture
def clock() -> Clock:
    """A clock that moves only when a test moves it."""
    return Clock()


@pytest.fixture
def in_flight() -> Counter[str]:
    """Messages in flight by exchange."""
    return Counter()


@pytest.fixture
def share(clock: Clock, in_flight: Counter[str]) -> FloodControl:
    """A share of a window of 160."""
    return FloodControl(window=WINDOW, in_flight=lambda exchange: in_flight[exchange], clock=clock)


def of(**counts: int) -> Batch:
    """A batch of so many messages of each exchange."""
    return a_batch(*(a_claim(exchange=exchange) for exchange, count in counts.items() for _ in range(count)))


def test_more_than_half_of_a_full_claim_is_a_flood(share: FloodControl) -> None:
    """Just half is not."""
    assert "a" == share.flooding(of(a=3, b=2))
    assert share.flooding(of(a=2, b=2)) is None


def test_a_flood_that_is_alone_takes_what_there_is(share: FloodControl, in_flight: Counter[str]) -> None:
    """Its own messages do not make it small, nor do those of another flood."""
    share.took(of(a=5))
    share.took(of(c=5))
    in_flight["a"] = WINDOW

    assert 50 == share.room(["a"], [["c"]], 50)


def test_beside_others_floods_together_take_a_part_of_the_window(share: FloodControl, in_flight: Counter[str]) -> None:
    """They do so in small claims, and only while less than their part is in flight."""
    share.took(of(a=5, b=1))

    assert (10, 5, 3) == (share.room(["a"], [], 50), share.room(["a"], [["c"]], 50), share.room(["a"], [], 3))
    in_flight["a"] = 30
    assert 10 == share.room(["a"], [], 50)
    in_flight["a"] = 31
    assert 0 == share.room(["a"], [], 50)


def test_others_are_forgotten_after_some_seconds(share: FloodControl, clock: Clock) -> None:
    """Then the flood has the whole window again."""
    share.took(of(b=1))
    clock.now += REMEMBERED - 0.01
    assert 10 == share.room(["a"], [], 50)
    clock.now += 0.02
    assert 50 == share.room(["a"], [], 50)


def test_the_smallest_window_leaves_a_flood_one_message(clock: Clock) -> None:
    """Nothing stops for good."""
    share = FloodControl(window=1, in_flight=lambda exchange: 0, clock=clock)
    share.took(of(b=1))

    assert 1 == share.room(["a"], [[str(number)] for number in range(1, MAX_FLOODS)], 1)


def test_few_exchanges_are_remembered(share: FloodControl) -> None:
    """Applications may name a new one for each message; one more than can be floods tells whether there are others."""
    for number in range(1000):
        share.took(of(**{f"x{number}": 1}))

    assert MAX_FLOODS + 1 == len(share._seen)


def test_others_are_seen_beside_however_many_exchanges_go_on_at_once(share: FloodControl) -> None:
    """As when all that were paused are resumed."""
    floods = [f"x{number}" for number in range(40)]
    assert not share.crowded(floods)
    share.took(of(b=1))
    for flood in floods:
        share.took(of(**{flood: 3}))

    assert share.crowded(floods)


ONE = EMPTY - len("orders") + len("a") + 100


def test_floods_take_their_part_of_the_bytes_too(clock: Clock) -> None:
    """Few large messages fill the window as many small ones do; one that is larger than the part goes alone."""
    held: Counter[str] = Counter()
    share = FloodControl(
        window=WINDOW, window_bytes=128 * ONE, in_flight=lambda _: 0, size_in_flight=lambda exchange: held[exchange], clock=clock
    )
    share.took(a_batch(*(a_claim(exchange="a", payload=b"x" * 100) for _ in range(5)), a_claim(exchange="b")))

    assert (4, 2) == (share.room(["a"], [], 50), share.room(["a"], [["c"]], 50))
    held["a"] = 12 * ONE
    assert 4 == share.room(["a"], [], 50)
    held["a"] = 12 * ONE + 1
    assert 0 == share.room(["a"], [], 50)
    share.took(a_batch(a_claim(exchange="a", payload=b"x" * 50 * ONE)))
    assert 0 == share.room(["a"], [], 50)
    held["a"] = 0
    assert 1 == share.room(["a"], [], 50)
    assert set(share._seen) == set(share._sizes)


def full(source: str, **counts: int) -> Batch:
    """A batch that tells where it came from."""
    batch = of(**counts)
    batch.source = source
    return batch


def test_a_flood_takes_turns_with_everything_else(share: FloodControl) -> None:
    """Split off by the first full claim; each second claim is the others'."""
    store = FakeClaims(
        {
            "fresh": [full("main", a=9, b=1)] + [full("main", b=1, c=1) for _ in range(5)],
            "branch": [full("flood", a=9) for _ in range(5)],
        }
    )
    streams = Streams(store, share)

    found = [batch.source for _ in range(9) if (batch := at_once(streams.claim(limit=10, limit_bytes=1)))]

    assert (["main", "flood", "main", "flood"], ["a"]) == (found[:4], [*streams.heads])
    assert {("a",)} == {tuple(one.excluded) for one in store.wanted[1:] if isinstance(one, Fresh) and not one.only}


def test_a_claim_that_found_all_there_was_splits_nothing_off(share: FloodControl) -> None:
    """Whatever an exchange sends while the relay keeps up is no flood."""
    store = FakeClaims({"fresh": [full("main", a=9)]})
    store.full = False
    streams = Streams(store, share)

    assert at_once(streams.claim(limit=10, limit_bytes=1))

    assert {} == streams.heads


def test_some_floods_are_told_apart_and_no_more(share: FloodControl) -> None:
    """Each would have a claim of its own in each round."""
    floods = [full("main", **{f"x{number}": 9}) for number in range(MAX_FLOODS + 3)]
    store = FakeClaims({"fresh": floods})
    streams = Streams(store, share)
    while floods[-1] is not at_once(streams.claim(limit=10, limit_bytes=1)):
        streams._passed_over = 0
        for branch in streams._branches.streams:
            branch.cut = True

    assert MAX_FLOODS >= len(streams.heads)


def test_the_main_stream_that_walks_over_a_flood_goes_on_first(share: FloodControl) -> None:
    """Its claims find nothing, and what others sent is behind the flood."""
    store = FakeClaims({"fresh": [full("main", a=9)], "branch": [full("flood", a=9) for _ in range(9)]})
    streams = Streams(store, share)
    at_once(streams.claim(limit=10, limit_bytes=1))
    streams._main.cut, streams._main.full = True, False
    streams._passed_over = PASSED_OVER
    store.asked.clear()

    at_once(streams.claim(limit=10, limit_bytes=1))

    assert ["fresh", "branch"] == store.asked


def test_the_main_stream_that_came_up_empty_beside_a_flood_is_asked_less(share: FloodControl) -> None:
    """After some claims of a flood that is alone, at once after a hint, and in turn while there are others."""
    store = FakeClaims({"fresh": [full("main", a=9)], "branch": [full("flood", a=9) for _ in range(999)]})
    streams = Streams(store, share)

    def asked(claims: int) -> int:
        before = store.asked.count("fresh")
        for _ in range(claims):
            batch = at_once(streams.claim(limit=10, limit_bytes=1))
            assert batch is not None
            streams.took(batch)
        return store.asked.count("fresh") - before

    asked(1)
    assert asked(100) <= 100 / PASSED_OVER
    streams.hint()
    assert 1 <= asked(2)
    share.took(of(b=1))
    assert 50 <= asked(100) + 5 <= 60


@pytest.mark.parametrize("hinted", [False, True])
@pytest.mark.parametrize("others", [0, 1, 999])
@pytest.mark.parametrize("floods", range(1, MAX_FLOODS + 1))
def test_each_flood_and_the_main_stream_have_their_turns(share: FloodControl, floods: int, others: int, *, hinted: bool) -> None:
    """However many floods there are, whether others have messages, and however often somebody says so."""
    names = [f"x{number}" for number in range(floods)]
    store = FakeClaims({"fresh": [full("main", b=1)] * others, "branch": [full("flood", a=9)] * 999})
    streams = Streams(store, share)
    streams.pause(names)
    streams.pause([])
    asked = list[str]()
    for _ in range(30 * (floods + 1)):
        if hinted:
            streams.hint()
        batch = at_once(streams.claim(limit=10, limit_bytes=1))
        assert batch is not None
        share.took(batch)
        asked += [name for one in store.wanted if isinstance(one, Fresh) for name in one.only or ["main"]]
        for branch in streams._branches.of(names):
            branch.cut = True  # it has more
        store.wanted.clear()

    counts = Counter(asked)
    assert max(counts[name] for name in names) - min(counts[name] for name in names) <= 1
    assert counts["main"] >= len(asked) // (max(PASSED_OVER, floods) + 2)
    gaps = {name: [number for number, one in enumerate(asked) if one == name] for name in names}
    assert all(later - sooner <= 2 * floods + 2 for places in gaps.values() for sooner, later in pairwise(places))


def test_the_main_stream_walks_over_a_flood_in_a_few_steps_at_once(share: FloodControl) -> None:
    """Then others have their turn, and it continues."""
    store = FakeClaims()
    walks = 12

    async def claim(wanted: Wanted, *, limit: int, limit_bytes: int) -> Claimed:
        nonlocal walks
        assert isinstance(wanted, Fresh)
        assert limit + limit_bytes
        walks -= 1
        return Claimed(None, NOWHERE, full=False, bounds=[Position(100 - walks, 1) if walks else None])

    store.claim = claim  # type: ignore[method-assign]
    streams, seen = Streams(store, share), list[tuple[int, bool]]()
    while walks:
        assert at_once(streams.claim(limit=10, limit_bytes=1)) is None
        seen.append((walks, streams.unfinished))

    assert [(12 - STEPS, True), (12 - 2 * STEPS, True), (0, False)] == seen


def test_a_stream_finds_what_its_late_transactions_commit() -> None:
    """Each exchange has its own; nothing is expected elsewhere."""
    streams = Streams(FakeClaims())
    streams.main.late[7] = 0
    streams.pause(["audit"])
    streams.main.late[8] = 0

    assert [True, False] == [streams.expects("audit", Position(xid, 1)) for xid in (7, 8)]
    assert [True, True, False] == [streams.expects("orders", Position(xid, 1)) for xid in (7, 8, 9)]
