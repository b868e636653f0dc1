"""Many exchanges that may continue at once, as after a pause of the broker, share a stream."""

from __future__ import annotations

import pytest

from relay.claims.cursor import Cursor
from relay.claims.flood_control import MAX_FLOODS, FloodControl
from relay.claims.intake import Intake
from relay.claims.streams import Streams
from relay.message import START, Batch, Position
from relay.ports import Fresh
from tests.support.fakes.adapters import Clock, FakeClaims, a_batch, a_claim, at_once

MANY = [f"x{number}" for number in range(MAX_FLOODS + 1)]
OTHERS = [f"y{number}" for number in range(MAX_FLOODS)]


@pytest.fixture
def clock() -> Clock:
    """A clock that moves only when a test moves it."""
    return Clock()


@pytest.fixture
def store() -> FakeClaims:
    """Finds one message of each exchange in each claim, and leaves more."""
    return FakeClaims({"branch": [of(*MANY) for _ in range(99)]})


@pytest.fixture
def streams(store: FakeClaims, clock: Clock) -> Streams:
    """Streams of which all were paused and have been resumed."""
    made = Streams(store, FloodControl(window=2000, in_flight=lambda _: 0, clock=clock))
    made.pause(MANY)
    made.pause([])
    return made


def of(*exchanges: str) -> Batch:
    """A message of each."""
    return a_batch(*(a_claim(exchange=exchange) for exchange in exchanges))


def asked(streams: Streams, store: FakeClaims, claims: int = 2) -> list[list[str]]:
    """The exchanges that the next claims name."""
    store.wanted.clear()
    for _ in range(claims):
        at_once(streams.claim(limit=100, limit_bytes=1))
    return [sorted(one.only) for one in store.wanted if isinstance(one, Fresh) and one.only]


def test_exchanges_that_are_resumed_together_are_claimed_together(streams: Streams, store: FakeClaims) -> None:
    """A claim for each would walk over the messages of all others, again and again."""
    assert [MANY, MANY] == asked(streams, store)


def test_an_exchange_that_is_paused_again_leaves_the_others_together(streams: Streams, store: FakeClaims) -> None:
    """A few exchanges that are resumed later each continue in a stream of their own."""
    streams.pause(MANY[:2])
    assert [MANY[2:], MANY[2:]] == asked(streams, store)
    streams.pause([])
    assert [MANY[:1], MANY[1:2], MANY[2:]] == sorted(asked(streams, store, 3))


def test_an_exchange_that_leaves_the_others_continues_from_where_they_are(streams: Streams) -> None:
    """The main stream has walked past its messages long ago."""
    streams._branches.main.cursor = Cursor(Position(99, 0))
    streams.pause(MANY[:1])
    assert START == streams.heads["x0"]


def test_more_that_are_resumed_join_those_that_share_a_stream(streams: Streams, store: FakeClaims) -> None:
    """Else there would be a crowd of streams again."""
    streams.pause(OTHERS)
    streams.pause([])
    assert [[*MANY, *OTHERS]] * 2 == asked(streams, store)


def test_a_flood_among_them_goes_on_by_itself(streams: Streams, store: FakeClaims) -> None:
    """As one of the main stream does."""
    store.script["branch"][:0] = [of(*["x0"] * 9, "x1")]
    asked(streams, store, 1)
    assert [["x0"], MANY[1:]] == sorted(asked(streams, store))


def test_several_backlogs_among_them_go_on_by_themselves(streams: Streams, store: FakeClaims) -> None:
    """None of them has half of a claim, but the small ones would wait for all of both."""
    store.script["branch"][:0] = [of(*["x0"] * 4, *["x1"] * 4, "x2"), of(*["x1"] * 4, "x2")]
    asked(streams, store, 1)
    store.script["branch"][:0] = [of("x0"), of(*["x1"] * 4, "x2")]
    asked(streams, store, 2)
    assert [["x0"], ["x1"], MANY[2:]] == sorted(asked(streams, store, 3))


def test_exchanges_that_are_resumed_one_by_one_are_claimed_together(store: FakeClaims, clock: Clock) -> None:
    """As when silence ends at one after the other: the first have streams of their own, all others share one."""
    streams = Streams(store, FloodControl(window=2000, in_flight=lambda _: 0, clock=clock))
    streams.pause([*MANY, *OTHERS])
    for left in range(len(MANY + OTHERS) - 1, -1, -1):
        streams.pause([*MANY, *OTHERS][:left])
    names = asked(streams, store, MAX_FLOODS)
    assert (MAX_FLOODS, {*MANY, *OTHERS}) == (len(names), {name for some in names for name in some})


def test_a_stream_that_was_replaced_in_the_middle_of_a_round_claims_nothing(streams: Streams, store: FakeClaims) -> None:
    """It may still name an exchange that was paused meanwhile."""
    streams.pause(["y"])
    streams.pause([])
    [shared, _] = sorted(streams._claimable_streams, key=lambda one: -len(one.only or ()))
    streams.pause(OTHERS)
    streams.pause([])
    streams.pause(MANY[:1])
    store.wanted.clear()
    assert at_once(streams._claim_branch(shared, 100, 1)) is None
    assert [] == store.wanted


def test_what_is_left_of_nothing_goes_back_to_the_main_stream(streams: Streams, store: FakeClaims) -> None:
    """One claim that finds all there is ends the stream."""
    store.full = False
    asked(streams, store, 1)
    assert {} == streams.heads


def test_what_joins_while_a_claim_is_under_way_is_still_looked_for(streams: Streams, store: FakeClaims) -> None:
    """That claim has found all there is, but of other exchanges."""
    store.full = False
    streams.pause(OTHERS)

    def resume() -> None:
        streams.pause([])

    store.claimed = resume
    asked(streams, store, 1)
    assert {*MANY, *OTHERS} == {*streams.heads}


def test_a_limited_exchange_leaves_the_others_together(store: FakeClaims, clock: Clock) -> None:
    """It is claimed as much at a time as it may have."""
    intake = Intake(store=store, poll_interval=1.0, clock=clock)
    intake.pause(MANY)
    intake.pause([])
    intake.limit({"x0": 5.0}, 1)
    assert [MANY[1:]] == asked(intake.streams, store, 1)
    assert [{"x0"}] == [stream.only for stream in intake.streams._branches.of(["x0"])]
