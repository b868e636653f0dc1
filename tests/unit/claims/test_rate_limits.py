"""How many messages of a limited exchange may be claimed: never more than its tokens, and at last all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.claims.rate_limits import BURST, RateLimits
from tests.support.fakes.adapters import Clock, a_batch, a_claim


@pytest.fixture
def clock() -> Clock:
    """A clock that moves only when a test moves it."""
    return Clock()


def limits_of(clock: Clock, relays: int = 1, **figures: float) -> RateLimits:
    """Limits whose buckets have filled."""
    limits = RateLimits(clock)
    limits.set(figures, relays)
    clock.now += 1000
    return limits


def take(limits: RateLimits, exchange: str, messages: int) -> None:
    """Claim so many messages of an exchange."""
    if messages:
        limits.took(a_batch(*(a_claim(exchange=exchange) for _ in range(messages))))


@given(
    rate=st.floats(0.001, 5000),
    asked=st.lists(st.tuples(st.floats(0, 3), st.integers(1, 800)), max_size=60),
)
def test_no_span_of_time_grants_more_than_a_burst_and_its_rate(rate: float, asked: list[tuple[float, int]]) -> None:
    """Whenever somebody asks, and for however much: looked at from every claim to every later one."""
    clock = Clock()
    limits = limits_of(clock, a=rate)
    granted: list[tuple[float, int]] = []
    for pause, wanted in asked:
        clock.now += pause
        messages = min(wanted, limits.allowance("a") or 0)
        take(limits, "a", messages)
        granted.append((clock.now, messages))

    burst = max(rate * BURST, 1)
    for first, (begun, _) in enumerate(granted):
        total = 0
        for at, messages in granted[first:]:
            total += messages
            assert total <= burst + rate * (at - begun) + 0.01


@given(rate=st.floats(0.01, 5000), messages=st.integers(1, 2000))
def test_everything_is_granted_in_its_time(rate: float, messages: int) -> None:
    """Who waits as long as is said gets a portion each time; none is lost on the way."""
    clock = Clock()
    limits = RateLimits(clock)
    limits.set({"a": rate}, 1)
    begun, left = clock.now, messages
    while left > 0:
        clock.now += limits.until(["a"]) or 0
        portion = min(left, limits.allowance("a") or 0)
        assert portion > 0
        take(limits, "a", portion)
        left -= portion

    assert clock.now - begun <= messages / rate + max(1 / rate, 1) + 0.01


def test_a_new_limit_begins_with_nothing(clock: Clock) -> None:
    """Else a relay that ends and starts again sends a burst each time."""
    limits = RateLimits(clock)
    limits.set({"a": 50}, 1)

    assert (0, 0.2) == (limits.allowance("a"), limits.until(["a"]))


def test_what_has_no_limit_is_not_counted(clock: Clock) -> None:
    """None is no figure."""
    limits = limits_of(clock, a=1)

    assert (None, 0.0, None) == (limits.allowance("b"), limits.until(["a", "b"]), limits.until([]))


def test_relays_share_a_limit(clock: Clock) -> None:
    """Each has its part of rate and burst; one message at a time is the least."""
    assert 25 == limits_of(clock, relays=2, a=50).allowance("a")
    assert 1 == limits_of(clock, relays=4, a=2).allowance("a")


def test_little_is_worth_no_statement(clock: Clock) -> None:
    """A fifth of a second's worth, five claims a second."""
    limits = limits_of(clock, a=50)
    take(limits, "a", 50)
    clock.now += 0.19
    assert 0 == limits.allowance("a")
    assert pytest.approx(0.01) == limits.until(["a"])
    clock.now += 0.01
    assert 10 == limits.allowance("a")


def test_what_was_claimed_beyond_the_limit_is_owed(clock: Clock) -> None:
    """A claim that was under way when the limit came."""
    limits = limits_of(clock, a=10)
    take(limits, "a", 30)

    assert pytest.approx(2.2) == limits.until(["a"])


@pytest.mark.parametrize(("rate", "wait"), [(10, 5.2), (0.1, 20)])
def test_no_more_than_five_seconds_are_owed(clock: Clock, rate: float, wait: float) -> None:
    """And at least one message: else a claim of 500 under a low limit would keep the exchange for hours."""
    limits = limits_of(clock, a=rate)
    take(limits, "a", 500)

    assert pytest.approx(wait) == limits.until(["a"])


def test_another_figure_holds_from_now_on(clock: Clock) -> None:
    """What had filled stays, but never more than fills at the new rate in its time; the same figure again changes nothing."""
    limits = limits_of(clock, a=100)
    assert not limits.set({"a": 100}, 1)
    assert limits.set({"a": 10}, 1)
    assert 10 == limits.allowance("a")
    assert limits.set({"a": 1000}, 1)
    assert 0 == limits.allowance("a")
    clock.now += 0.5
    assert 510 == limits.allowance("a")
    assert limits.set({}, 1)
    assert limits.allowance("a") is None


def test_the_first_ones_of_each_exchange_are_admitted(clock: Clock) -> None:
    """They are as many as its limit admits, in their order, together with all of an exchange without a limit."""
    limits = limits_of(clock, a=2)

    assert ["a1", "b1", "a2", "b2"] == limits.admit(["a1", "b1", "a2", "a3", "b2"], lambda one: one[0])
    assert 2 == limits.allowance("a"), "nothing is claimed yet"
