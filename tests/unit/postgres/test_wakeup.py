"""When work counts as sustained, and a listener that nothing can end."""

from __future__ import annotations

import asyncio

import pytest

from relay import events
from relay.postgres import wakeup
from relay.postgres.wakeup import Listener, LoadDetector


def judged(per_second: int, seconds: float, *, each: int = 1, work: LoadDetector | None = None, began: float = 1000.0) -> list[bool]:
    """Verdicts, one after each find of a steady flow."""
    work = work or LoadDetector()
    steps = int(per_second * seconds / each)
    verdicts = []
    for step in range(steps):
        now = began + step * each / per_second
        work.found(each, now)
        verdicts.append(work.sustained(now))
    return verdicts


def test_a_trickle_is_not_sustained_work() -> None:
    """Two hundred single messages a second keep the gate, so that each is claimed the moment it is committed."""
    assert not any(judged(200, 10))


def test_a_flow_is_sustained_work_after_less_than_a_second() -> None:
    """Writers get their group commit back."""
    verdicts = judged(5000, 2, each=50)

    assert not verdicts[0]
    assert all(verdicts[75:])


def test_one_burst_is_not_sustained_work() -> None:
    """A transaction of a thousand rows does not make the gate swing."""
    work = LoadDetector()
    work.found(500, 100.0)
    work.found(500, 100.05)

    assert not work.sustained(100.1)
    assert not work.sustained(100.3)
    assert not work.sustained(100.6)


def test_work_that_slows_down_a_little_stays_sustained_and_work_that_stops_does_not() -> None:
    """Once released, the gate is taken again below half of the rate, within half a second of silence."""
    work = LoadDetector()
    judged(1000, 2, work=work)

    assert all(judged(240, 2, work=work, began=1002.0))
    assert work.sustained(1004.2)
    assert not work.sustained(1004.5)


def test_finds_far_apart_are_not_in_a_row() -> None:
    """Two full quarters an hour apart are two bursts."""
    work = LoadDetector()
    for moment in (0.0, 1000.0, 2000.0):
        work.found(5000, moment)

    assert not work.sustained(2000.2)


def listener(told: asyncio.Queue[events.Event], conninfo: str = "") -> Listener:
    """A listener that tells a queue."""
    return Listener(conninfo=conninfo, schema="public", name="test", mode=lambda: "idle", on_hint=lambda: None, emit=told.put_nowait)


async def test_a_host_that_cannot_be_looked_up_is_told_and_tried_again() -> None:
    """The resolver refuses such a name with an error of its own kind, which is none of the network."""
    told: asyncio.Queue[events.Event] = asyncio.Queue()
    hears = listener(told, "host=a..b")
    await hears.start()
    try:
        async with asyncio.timeout(10):
            down = await told.get()
    finally:
        await hears.aclose()

    words = "its URL names a host that no resolver can be asked for, correct RELAY_LISTEN_URL or RELAY_DATABASE_URL."
    assert events.ListenDown(f"LISTEN is lost and the relay polls until it is back: {words}") == down


class Broken:
    """A listener that fails in an unexpected way, at both ends."""

    opened: asyncio.Semaphore

    def __init__(self, **_: object) -> None:
        """Take whatever a listener takes."""

    async def open(self) -> None:
        """Fail."""
        self.opened.release()
        raise RuntimeError("secret")

    async def aclose(self) -> None:
        """Fail here too."""
        raise KeyError("secret")


async def test_an_error_that_nobody_expected_does_not_end_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says once that the relay polls, without quoting unknown words, and continues to try."""
    Broken.opened = asyncio.Semaphore(0)
    monkeypatch.setattr(wakeup, "NotificationListener", Broken)
    told: asyncio.Queue[events.Event] = asyncio.Queue()
    hears = listener(told)
    await hears.start()
    try:
        async with asyncio.timeout(10):
            for _ in range(3):
                await Broken.opened.acquire()
    finally:
        await hears.aclose()

    assert events.ListenDown("LISTEN is lost and the relay polls until it is back (KeyError): report this as a bug.") == told.get_nowait()
    assert told.empty()
