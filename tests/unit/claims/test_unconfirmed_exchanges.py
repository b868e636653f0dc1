"""Who is a stranger, what a crowd of them may take of the window, and what is claimed ahead of it."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from relay.amqp.close_reasons import FORMS, Form, Subject
from relay.amqp.frames import ReplyReason
from relay.amqp.publishing.refusals import refusal_of
from relay.claims import unconfirmed_exchanges as module
from relay.claims.backlog import Backlog
from relay.claims.crowd_bypass import SAME_FOR, CrowdBypass
from relay.claims.rate_limits import RateLimits
from relay.claims.stream import Stream
from relay.claims.streams import Streams
from relay.claims.unconfirmed_exchanges import CROWD, MOST_KNOWN, PART, PORTION, UnconfirmedExchanges
from relay.message import CONFIRMED, Batch, Portion, Position, PublishResult, Verdict
from relay.ports import Fresh, ScanFinding
from tests.support.fakes.adapters import Clock, FakeClaims, a_batch, a_claim, at_once

WINDOW = 1600
MISSING = PublishResult(Verdict.REFUSED, "exchange_missing", "no exchange", of_exchange=True)
DEFAULT_WINDOW = 4000
CHANNELS = 2047
"""Of one connection, where RabbitMQ is as it was installed."""
NACKED = PublishResult(Verdict.REFUSED, "nacked", "full")
TOLD = {
    Subject.EXCHANGE_MISSING: True,
    Subject.EXCHANGE_REFUSED: True,
    Subject.EXCHANGE_INTERNAL: True,
    Subject.TOPIC_REFUSED: False,
    Subject.NOT_IMPERSONATOR: False,
}
"""What a message may be refused over, and whether that is said of its exchange."""


@pytest.fixture
def clock() -> Clock:
    """A clock that moves only when a test moves it."""
    return Clock()


@pytest.fixture
def in_flight() -> Counter[str]:
    """Messages in flight by exchange."""
    return Counter()


@pytest.fixture
def strangers(clock: Clock, in_flight: Counter[str]) -> UnconfirmedExchanges:
    """Everything is strange at first."""
    return UnconfirmedExchanges(window=WINDOW, in_flight=lambda: in_flight, clock=clock)


def told(**results: PublishResult) -> Portion:
    """What the broker said of a message to each exchange."""
    return Portion([a_claim(exchange=name) for name in results], list(results.values()), [1.0] * len(results), [1.0] * len(results))


def crowd(count: int = CROWD + 1) -> Batch:
    """A batch of one message to each of so many exchanges."""
    return a_batch(*(a_claim(exchange=f"x{number}") for number in range(count)))


def test_an_exchange_is_known_from_its_first_confirm_until_the_broker_refuses_it(strangers: UnconfirmedExchanges) -> None:
    """A full queue refuses a message, not its exchange."""
    strangers.learn(told(a=CONFIRMED, b=CONFIRMED, c=CONFIRMED))
    strangers.learn(told(a=NACKED, b=MISSING, d=NACKED))

    assert ["a", "c"] == sorted(strangers.known)
    assert "a" not in strangers
    assert "b" in strangers


@pytest.mark.parametrize("form", [form for form in FORMS if form.about in TOLD], ids=lambda form: f"{form.about.name} {form.versions}")
def test_only_what_is_said_of_the_exchange_makes_it_strange(strangers: UnconfirmedExchanges, form: Form) -> None:
    """A routing key that is not permitted, or a foreign name, is a matter of one message, whatever its code."""
    strangers.learn(told(a=CONFIRMED))
    strangers.learn(told(a=refusal_of(ReplyReason(form.code, form.text))))

    assert ("a" in strangers) == TOLD[form.about]


def test_those_are_remembered_that_took_a_message_last(strangers: UnconfirmedExchanges) -> None:
    """Applications name exchanges, so any number of them may exist."""
    strangers.learn(told(a=CONFIRMED, b=CONFIRMED))
    for number in range(MOST_KNOWN - 1):
        strangers.learn(told(**{f"x{number}": CONFIRMED, "a": CONFIRMED}))

    assert ("a" not in strangers, "b" in strangers, MOST_KNOWN) == (True, True, len(strangers.known))


def test_of_thousands_that_take_messages_no_more_are_in_flight_than_have_channels() -> None:
    """3,000, each of which has confirmed once. Where all of them filled the window, they counted as silent, and each got a stream."""
    in_flight = Counter[str]()
    strangers = UnconfirmedExchanges(window=DEFAULT_WINDOW, in_flight=lambda: in_flight)
    names = [f"x{number}" for number in range(3000)]
    for name in names:
        strangers.learn(told(**{name: CONFIRMED}))
    in_flight.update(strangers.known)
    claimed = iter([name for name in names if name in strangers])

    assert strangers.crowd(a_batch(*(a_claim(exchange=name) for name in names)))
    while room := strangers.room(1000) or strangers.room(1000, reserved=True):
        in_flight.update(islice(claimed, room))

    assert DEFAULT_WINDOW // PART < len(in_flight) < CHANNELS


def test_few_strangers_are_no_crowd(strangers: UnconfirmedExchanges) -> None:
    """Nor are known exchanges, however many."""
    assert not strangers.crowd(crowd(CROWD))
    assert strangers.crowd(crowd())
    strangers.learn(told(x0=CONFIRMED))
    assert not strangers.crowd(crowd())


def test_strangers_take_a_part_of_the_window_in_small_claims(strangers: UnconfirmedExchanges, in_flight: Counter[str]) -> None:
    """What goes to known exchanges does not count; one claim more has room for what arrives."""
    most = WINDOW // PART
    strangers.learn(told(a=CONFIRMED))
    in_flight["a"] = WINDOW
    assert (most // PORTION, 3) == (strangers.room(1000), strangers.room(3))

    in_flight["b"] = most - most // PORTION + 1
    assert (0, most // PORTION) == (strangers.room(1000), strangers.room(1000, reserved=True))
    in_flight["b"] = most + 1
    assert 0 == strangers.room(1000, reserved=True)


def test_known_exchanges_are_claimed_ahead_of_a_crowd(strangers: UnconfirmedExchanges) -> None:
    """And what arrives: a full claim of many strangers is the last large one."""
    store = FakeClaims({"fresh": [crowd() for _ in range(12)]})
    strangers.learn(told(a=CONFIRMED))
    streams = Streams(store, strangers=strangers)

    for _ in range(9):
        at_once(streams.claim(limit=1000, limit_bytes=1))

    few = WINDOW // PART // PORTION
    asked = [(tuple(one.only or ()), limit) for one, (_, limit) in zip(store.wanted, store.limits, strict=True) if isinstance(one, Fresh)]
    assert ((), 1000) == asked[0]
    assert {((), few), (("a",), 1000)} == {*asked[1:]}
    assert 4 == asked.count((("a",), 1000))


def test_what_becomes_known_is_claimed_ahead_too(strangers: UnconfirmedExchanges, clock: Clock) -> None:
    """The first exchange at once, others soon, each from where the main stream is."""
    store = FakeClaims({"fresh": [crowd() for _ in range(20)]})
    streams = Streams(store, strangers=strangers)

    def claimed_ahead() -> Fresh:
        tried = len(store.wanted)
        for _ in range(2):
            at_once(streams.claim(limit=1000, limit_bytes=1))
        return next(one for one in store.wanted[tried:] if isinstance(one, Fresh) and one.only)

    at_once(streams.claim(limit=1000, limit_bytes=1))
    strangers.learn(told(a=CONFIRMED))
    first = claimed_ahead()
    assert (["a"], streams.main.ranges()) == (first.only, first.ranges)
    strangers.learn(told(b=CONFIRMED))
    assert ["a"] == claimed_ahead().only
    clock.now += SAME_FOR
    assert ["a", "b"] == sorted(claimed_ahead().only or ())


def test_a_claim_of_what_arrived_begins_no_crowd_that_has_ended_meanwhile(strangers: UnconfirmedExchanges) -> None:
    """The main stream claims all from then on."""
    store = FakeClaims({"fresh": [crowd() for _ in range(3)]})
    main, ahead = Stream(store), CrowdBypass(store, strangers)
    ahead.note(main, at_once(main.claim(limit=1000, limit_bytes=1)))

    async def ends_meanwhile() -> Batch | None:
        store.claimed = ahead.restart
        return await ahead.claim_new(limit=1000, limit_bytes=1, excluded=[])

    assert at_once(ends_meanwhile())
    assert at_once(ahead.claim_new(limit=1000, limit_bytes=1, excluded=[])) is None
    assert 2 == len(store.wanted)


def test_where_strangers_have_their_part_in_hand_the_main_stream_waits_for_a_settle(
    strangers: UnconfirmedExchanges, in_flight: Counter[str]
) -> None:
    """Nothing of them is claimed, and the intake is to look again once something was settled."""
    store = FakeClaims({"fresh": [crowd()]})
    streams = Streams(store, strangers=strangers)
    at_once(streams.claim(limit=1000, limit_bytes=1))
    in_flight["x"] = WINDOW

    assert at_once(streams.claim(limit=1000, limit_bytes=1)) is None

    assert (1, True) == (len(store.wanted), streams.starved)


@pytest.mark.parametrize("full", [False, True])
def test_there_is_no_crowd_any_more_at_the_end_or_where_few_are_strange(strangers: UnconfirmedExchanges, full: bool) -> None:
    """Then the main stream claims all there is room for."""
    store = FakeClaims({"fresh": [crowd(), crowd(2), crowd()]})
    streams = Streams(store, strangers=strangers)
    at_once(streams.claim(limit=1000, limit_bytes=1))
    store.full = full
    strangers.learn(told(**{f"x{number}": CONFIRMED for number in range(2)}))
    for _ in range(2):
        at_once(streams.claim(limit=1000, limit_bytes=1))

    at_once(streams.claim(limit=1000, limit_bytes=1))

    assert ("fresh", 1000) == store.limits[-1]


def test_what_waits_for_strangers_leaves_room_for_others(strangers: UnconfirmedExchanges, in_flight: Counter[str]) -> None:
    """A few of them have no room of their own to keep."""
    backlog = Backlog(RateLimits(), 10)
    few = WINDOW // PART // PORTION
    for number in range(WINDOW):
        backlog.put(ScanFinding("waiting", Position(1, number), f"x{number}", None, None, trusted=True))
    backlog.put(ScanFinding("waiting", Position(2, 1), "a", None, None, trusted=True))
    strangers.learn(told(a=CONFIRMED))

    assert few + 1 == len(backlog.next(1000, [], strangers))
    in_flight["x"] = WINDOW
    assert [Position(2, 1)] == [one.position for one in backlog.next(1000, [], strangers)]
    assert backlog.starved
    assert [Position(2, 1)] == [one.position for one in backlog.next(1000, ["x0"], strangers)]


def test_few_strangers_that_wait_need_no_room_of_their_own(strangers: UnconfirmedExchanges, in_flight: Counter[str]) -> None:
    """So a relay that starts has its first messages at once."""
    backlog, in_flight["x"] = Backlog(RateLimits(), 10), WINDOW
    for number in range(module.CROWD):
        backlog.put(ScanFinding("waiting", Position(1, number), f"x{number}", None, None, trusted=True))

    assert (CROWD, False) == (len(backlog.next(1000, [], strangers)), backlog.starved)
