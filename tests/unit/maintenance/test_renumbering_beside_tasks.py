"""A long renumbering and the other tasks of a relay: each has its time, through the one connection that they share."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from relay import events
from relay.claims.intake import Intake
from relay.claims.scrub import Scrub
from relay.engine.policy import Controls
from relay.engine.window import Window
from relay.errors import StoreError
from relay.maintenance.folds import NextFold
from relay.maintenance.lock_renewer import LockRenewer
from relay.maintenance.maintenance import GAUGE_SECONDS, HOUR, MINUTE, Maintenance
from relay.maintenance.periodic_tasks import JITTER_SHARE
from relay.maintenance.renumbering import TASK, Renumbered
from tests.support.fakes.adapters import FakeClaims
from tests.support.fakes.virtual_time import timeless

PAGE_SECONDS = 0.5
"""Of one page of the renumbering, all of whose messages get new ids."""
PAGES = 9000
"""An hour and a quarter: each hourly task comes once more."""
INTERVALS = {"ensure_partitions": HOUR, "retain": HOUR, "sweep_minute": MINUTE, "renotify": MINUTE, "read_gauges": GAUGE_SECONDS}
LATE = 10 * PAGE_SECONDS
"""Seconds by which a task may be late: five may be in front of it, each for a statement or two, and a page may go before each statement."""


NEXT = NextFold(None, 0.0, 0.0)


class OneConnection:
    """Runs one statement at a time in the order in which they are asked for, as a session does; notes when which was answered."""

    def __init__(self, *failures: int, page_seconds: float = PAGE_SECONDS, pages: int = PAGES) -> None:
        self.at = defaultdict[str, list[float]](list)
        self.left = pages
        self.done = asyncio.Event()
        self._failures = set(failures)
        self._page_seconds = page_seconds
        self._turn = asyncio.Lock()

    async def renumber(self) -> Renumbered:
        """One page; those that are to fail do so once."""
        async with self._turn:
            await asyncio.sleep(self._page_seconds)
            self._note("renumber")
            if self.left in self._failures:
                self._failures.remove(self.left)
                raise StoreError("Away.")
            self.left -= 1
            if not self.left:
                self.done.set()
            return Renumbered(10_000, more=self.left > 0, searched=10_000)

    async def refresh_policy(self) -> Controls:
        """It has a connection of its own."""
        return Controls([], {}, 1)

    def _note(self, name: str) -> None:
        self.at[name].append(asyncio.get_running_loop().time())

    def __getattr__(self, name: str) -> Any:
        async def answer(*_: object) -> Any:
            async with self._turn:
                await asyncio.sleep(0.01)
                self._note(name)
            return {"sweep_minute": (0, 0), "retain": (0, 0), "read_gauges": {}, "ensure_partitions": 0, "fold_in": NEXT}.get(name)

        return answer


class StandingScrub(Scrub):
    """Counts how often it is to begin again."""

    def __init__(self) -> None:
        self.begun = 0

    async def run(self) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    def begin_again(self) -> None:
        """Count it."""
        self.begun += 1

    def hint(self) -> None:
        """Nothing is scanned."""


async def renumbered(store: OneConnection, monkeypatch: pytest.MonkeyPatch) -> tuple[list[events.Event], StandingScrub]:
    """Run all tasks on this connection until the renumbering has ended; return what they reported, and the scrub."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr("relay.maintenance.periodic_tasks.time", SimpleNamespace(monotonic=loop.time))
    told, scrub = list[events.Event](), StandingScrub()
    upkeep: Any = store
    window = Window(window=1, window_bytes=1)
    work = Maintenance(
        store=upkeep, intake=Intake(store=FakeClaims(), poll_interval=1.0), scrub=scrub,
        lock_renewer=LockRenewer(store=upkeep, window=window, lock_seconds=lambda: 30.0, silent=dict, emit=told.append),
        state=dict, gauges=lambda _: None, emit=told.append, nudge=lambda: None, wrong_direction=lambda: None,
    )  # fmt: skip
    running = asyncio.create_task(work.run())
    await store.done.wait()
    await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return told, scrub


@timeless
async def test_no_task_waits_for_the_end_of_a_renumbering() -> None:
    """Ninety million restored messages next to a running relay: sweep, retention, partitions and gauges keep their intervals."""
    store = OneConnection()
    with pytest.MonkeyPatch.context() as monkeypatch:
        await renumbered(store, monkeypatch)

    ended = store.at["renumber"][-1]
    for task, interval in INTERVALS.items():
        moments = [0.0, *store.at[task], ended]
        longest = max(later - earlier for earlier, later in pairwise(moments))
        assert longest <= interval * (1 + JITTER_SHARE) + LATE, task


@timeless
async def test_a_renumbering_ends_as_soon_as_if_it_were_alone() -> None:
    """One page follows the other, and each is reported. New messages would overtake what it has not come to yet."""
    store = OneConnection()
    with pytest.MonkeyPatch.context() as monkeypatch:
        told, scrub = await renumbered(store, monkeypatch)

    assert (0, PAGES, PAGES) == (store.left, len(store.at["renumber"]), scrub.begun)
    pages = [event for event in told if isinstance(event, events.MessagesRenumbered)]
    assert [True] * (PAGES - 1) + [False] == [page.more for page in pages]
    assert store.at["renumber"][-1] <= PAGES * PAGE_SECONDS * 1.05


@timeless
async def test_a_page_that_fails_is_tried_again_soon() -> None:
    """And delays no other task."""
    store = OneConnection(70, 30, pages=100)
    with pytest.MonkeyPatch.context() as monkeypatch:
        told, _ = await renumbered(store, monkeypatch)

    assert [events.MaintenanceFailed(TASK, "Away.")] * 2 == [event for event in told if isinstance(event, events.MaintenanceFailed)]
    assert (0, 102) == (store.left, len(store.at["renumber"]))
    assert store.at["renumber"][-1] <= 102 * PAGE_SECONDS + 6
