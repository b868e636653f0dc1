"""What is remembered of exchanges, and for how long."""

from __future__ import annotations

import pytest

from relay.amqp.publishing.exchange_memory import FORGET_AFTER, MOST_REMEMBERED, ExchangeMemory
from relay.amqp.publishing.routes import Way


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The memory's clock."""
    return Clock()


@pytest.fixture
def memory(clock: Clock) -> ExchangeMemory:
    """An empty memory."""
    return ExchangeMemory(clock)


def test_a_route_finds_again_what_was_said_of_it(memory: ExchangeMemory) -> None:
    """Each route for itself: one may be refused where another is not."""
    memory.standing_of(("x", Way.SHARED)).proven = True
    assert (True, False) == (memory.standing_of(("x", Way.SHARED)).proven, memory.standing_of(("x", Way.APART)).proven)


def test_an_exchange_is_proven_by_any_of_its_routes(memory: ExchangeMemory) -> None:
    """An exchange that was never used is not."""
    memory.standing_of(("x", Way.SHARED))
    memory.standing_of(("x", Way.APART)).proven = True
    memory.standing_of(("y", Way.SHARED))
    assert (True, False, False) == (memory.is_proven("x"), memory.is_proven("y"), memory.is_proven("z"))


def test_the_exchange_that_was_used_least_recently_is_forgotten_first(memory: ExchangeMemory) -> None:
    """However many names there are, no more of them than that take memory."""
    for number in range(MOST_REMEMBERED):
        memory.standing_of((f"x{number}", Way.SHARED)).proven = True
    memory.standing_of(("x0", Way.SHARED))
    memory.standing_of(("new", Way.SHARED))
    assert (MOST_REMEMBERED, True, False) == (len(memory), memory.is_proven("x0"), memory.is_proven("x1"))


@pytest.mark.parametrize(("seconds", "kept"), [(FORGET_AFTER, True), (FORGET_AFTER + 1, False)])
def test_an_exchange_that_nobody_uses_is_forgotten(memory: ExchangeMemory, clock: Clock, seconds: float, *, kept: bool) -> None:
    """Use counts, not age."""
    clock.now -= 1
    memory.standing_of(("x", Way.SHARED)).proven = True
    clock.now += 1
    memory.standing_of(("x", Way.SHARED))
    clock.now += seconds
    memory.standing_of(("y", Way.SHARED))
    assert kept is memory.is_proven("x")
