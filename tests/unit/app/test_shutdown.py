"""How a process ends, by signals and without them."""

from __future__ import annotations

import asyncio

import pytest

from relay import events
from relay.app.shutdown import GRACE, Shutdown
from tests.support.fakes.virtual_time import timeless

DRAIN = 20.0
IN_FLIGHT = 3


class Rig:
    """A shutdown, and what it did when."""

    def __init__(self, *, cuts: bool = True) -> None:
        self.stop = asyncio.Event()
        self.told: list[events.Event] = []
        self.done: list[tuple[str, float]] = []
        self._began = asyncio.get_running_loop().time()
        self.shutdown = Shutdown(
            stop=self.stop,
            drain=lambda: self._note("drain"),
            cut=(lambda: self._note("cut")) if cuts else None,
            seconds=lambda: DRAIN,
            in_flight=lambda: IN_FLIGHT,
            abandon=lambda messages: self._note(f"abandon {messages}"),
            emit=self.told.append,
        )

    def _note(self, what: str) -> None:
        self.done.append((what, round(asyncio.get_running_loop().time() - self._began, 3)))


@timeless
async def test_the_first_signal_drains_and_the_second_cuts() -> None:
    """Each has its time, after which the process is abandoned."""
    rig = Rig()
    rig.shutdown.signalled("SIGTERM")
    assert rig.stop.is_set()
    rig.shutdown.signalled("SIGINT")
    await asyncio.sleep(2 * DRAIN)
    assert [("drain", 0.0), ("cut", 0.0), ("abandon 3", GRACE / 2), ("abandon 3", DRAIN)] == rig.done
    assert [events.Stopping("SIGTERM", "drain", IN_FLIGHT), events.Stopping("SIGINT", "cut", IN_FLIGHT)] == rig.told


@timeless
async def test_where_nothing_can_be_cut_the_second_signal_abandons() -> None:
    """What is not acknowledged comes again, so there is nothing to wait for."""
    rig = Rig(cuts=False)
    rig.shutdown.signalled("SIGTERM")
    rig.shutdown.signalled("SIGTERM")
    assert [("drain", 0.0), ("abandon 3", 0.0)] == rig.done
    assert [events.Stopping("SIGTERM", "drain", IN_FLIGHT)] == rig.told


@timeless
@pytest.mark.parametrize("signals", [0, 1])
async def test_what_makes_a_relay_leave_never_cuts_a_drain(signals: int) -> None:
    """The schema's direction is read again and again while a relay drains."""
    rig = Rig()
    for _ in range(signals):
        rig.shutdown.signalled("SIGTERM")
    rig.shutdown.leave("direction")
    rig.shutdown.leave("direction")
    assert [("drain", 0.0)] == rig.done


@timeless
async def test_a_relay_that_is_idle_is_not_abandoned() -> None:
    """Nothing is in flight, and a signal that comes later drains as the first one does."""
    rig = Rig()
    rig.shutdown.end("idle")
    await asyncio.sleep(2 * DRAIN)
    assert (True, [("drain", 0.0)], [events.Stopping("idle", "drain", 0)]) == (rig.stop.is_set(), rig.done, rig.told)
    rig.shutdown.signalled("SIGTERM")
    assert events.Stopping("SIGTERM", "drain", IN_FLIGHT) == rig.told[-1]
