"""Maintenance tasks take turns and survive their failures. Messages in flight keep their locks, and silent exchanges are held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from relay import events
from relay.claims.intake import Intake
from relay.claims.scrub import Scrub
from relay.engine.policy import Controls
from relay.engine.window import Window
from relay.errors import StoreError
from relay.maintenance import maintenance, periodic_tasks
from relay.maintenance.folds import NextFold
from relay.maintenance.lock_renewer import LockRenewer, LockStore
from relay.maintenance.maintenance import Maintenance
from relay.maintenance.periodic_tasks import PeriodicTask, PeriodicTasks
from relay.maintenance.renumbering import Renumbered
from relay.message import Batch
from tests.support.fakes.adapters import FakeClaims, a_batch, a_claim, at_once

SOON = 0.001
"""Seconds between two turns of a task, so that a test need not wait."""


class Turns:
    """Turns of a task, some of which fail."""

    def __init__(self, *failures: str, more: bool = False) -> None:
        self.taken = 0
        self.twice = asyncio.Event()
        self._failures = list(failures)
        self._more = more

    async def take(self) -> bool:
        """One turn; whether there is more to do."""
        self.taken += 1
        if self.taken >= 2:
            self.twice.set()
        if self._failures:
            raise StoreError(self._failures.pop(0))
        return self._more


class Renewals:
    """Notes what is renewed; the first time the database is away."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.twice = asyncio.Event()

    async def renew(self, batch: Batch, positions: list[tuple[int, int]]) -> int:
        """Note the batch."""
        self.tokens.append(batch.token)
        if len(self.tokens) == 1:
            raise StoreError("Away.")
        self.twice.set()
        return len(positions)


async def run_until(done: asyncio.Event, running: Coroutine[Any, Any, None]) -> None:
    """Let what has no end run until something has happened."""
    task = asyncio.create_task(running)
    async with asyncio.timeout(20):
        await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def renewer(window: Window, store: LockStore, told: list[events.Event], silent: Callable[[], dict[str, float]] = dict) -> LockRenewer:
    """A renewer of what is in flight, under locks so short that it looks all the time."""
    return LockRenewer(store=store, window=window, lock_seconds=lambda: 10 * SOON, silent=silent, emit=told.append)


async def test_a_chore_that_fails_is_told_of_and_tried_again() -> None:
    """Under its name, with the sentence; the next turn is not missed."""
    told: list[events.Event] = []
    turns = Turns("Away.")

    await run_until(turns.twice, PeriodicTasks(PeriodicTask("sweep", SOON, turns.take), emit=told.append).run())

    assert [events.MaintenanceFailed("sweep", "Away.")] == told


async def test_a_chore_that_fails_keeps_no_other_from_its_turn() -> None:
    """Those behind it in the row have theirs."""
    failing, other = Turns(*["Away."] * 1000), Turns()

    await run_until(
        other.twice,
        PeriodicTasks(PeriodicTask("failing", SOON, failing.take), PeriodicTask("other", SOON, other.take), emit=lambda event: None).run(),
    )

    assert failing.taken >= 1


async def test_a_chore_that_is_not_due_waits() -> None:
    """The first turn is at once, the second when its time has come."""
    seldom, often = Turns(), Turns()

    await run_until(
        often.twice,
        PeriodicTasks(PeriodicTask("seldom", 3600, seldom.take), PeriodicTask("often", SOON, often.take), emit=lambda event: None).run(),
    )

    assert 1 == seldom.taken


async def test_a_chore_that_leaves_something_over_goes_on_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait until it is due again."""
    monkeypatch.setattr(periodic_tasks, "CONTINUE_SECONDS", SOON)
    turns = Turns(more=True)

    await run_until(turns.twice, PeriodicTasks(PeriodicTask("retention", 3600, turns.take), emit=lambda event: None).run())


@pytest.mark.parametrize("failures", [(), ("Away.",)], ids=["done", "failed"])
async def test_a_slow_task_rests_for_several_times_as_long_as_it_ran(monkeypatch: pytest.MonkeyPatch, failures: tuple[str, ...]) -> None:
    """It does so whether it is done or failed; a quick task next to it runs at its interval."""
    now, slow, quick = [0.0], Turns(*failures), Turns()

    async def ten_seconds() -> None:
        now[0] += 10.0
        await slow.take()

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        await asyncio.sleep(0)

    monkeypatch.setattr(periodic_tasks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(periodic_tasks, "asyncio", SimpleNamespace(sleep=sleep))
    tasks = PeriodicTasks(PeriodicTask("slow", 1, ten_seconds), PeriodicTask("quick", 1, quick.take), emit=lambda event: None, rest=4.0)
    await run_until(slow.twice, tasks.run())

    assert 60.0 <= now[0] < 62.0
    assert quick.taken > 30


async def test_a_lock_that_cannot_be_renewed_is_told_of_and_tried_again() -> None:
    """A batch whose deadline is near, and no other."""
    window, told, store = Window(window=10, window_bytes=100), list[events.Event](), Renewals()
    near, far = a_batch(deadline=0.0), a_batch()
    window.add(near)
    window.add(far)

    await run_until(store.twice, renewer(window, store, told).run(lambda: None))

    assert {near.token} == {*store.tokens}
    assert [events.MaintenanceFailed("lock renewal", "Away.")] == told


async def test_exchanges_that_become_stuck_are_held() -> None:
    """Once they have been silent for a while, and not again while nothing changes."""
    window, held = Window(window=2, window_bytes=100), list[frozenset[str]]()
    window.add(a_batch(a_claim(exchange="slow"), deadline=0.0))
    store = Renewals()

    await run_until(store.twice, renewer(window, store, [], lambda: {"slow": 2.0, "quick": 0.1}).run(lambda: held.append(window.stuck)))

    assert [frozenset({"slow"})] == held


class Scrubs(Scrub):
    """Does nothing, and counts hints."""

    def __init__(self) -> None:
        self.hints = 0

    async def run(self) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    def hint(self) -> None:
        """Count it."""
        self.hints += 1


class Reports:
    """What a relay writes and reads of the relays; it finds so many of them each time, at last the last number."""

    def __init__(self, *relays: int, paused: Sequence[str] = ()) -> None:
        self.told: list[str] = []
        self.read = asyncio.Event()
        self.paused = list(paused)
        self._relays = list(relays)

    async def heartbeat(self, *state: object) -> None:
        """Report."""
        del state
        self.told.append("heartbeat")

    async def refresh_policy(self) -> Controls:
        """Count those who have."""
        self.told.append("policy")
        relays = self._relays.pop(0)
        if not self._relays:
            self._relays.append(relays)
            self.read.set()
        return Controls(self.paused, {"a": 60.0}, relays)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def nothing(*_: object) -> Any:
            if name == "renumber":
                return Renumbered(0, more=False, searched=None)
            if name == "fold_in":
                return NextFold(None, 0.0, 0.0)
            return (0, 0) if name.startswith(("sweep", "retain")) else {} if name == "read_gauges" else 0

        return nothing


async def parts_of(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> list[int]:
    """Between how many relays each policy that was read has divided the limits."""
    monkeypatch.setattr(maintenance, "HEARTBEAT_SECONDS", SOON)
    intake, parts = Intake(store=FakeClaims(), poll_interval=1.0), list[int]()
    monkeypatch.setattr(intake, "limit", lambda _, relays: parts.append(relays))
    upkeep: Any = reports
    work = Maintenance(
        store=upkeep, intake=intake, scrub=Scrubs(), lock_renewer=renewer(Window(window=1, window_bytes=1), Renewals(), []), state=dict,
        gauges=lambda _: None, emit=lambda _: None, nudge=lambda: None, wrong_direction=lambda: None,
    )  # fmt: skip
    await run_until(reports.read, work.run())
    return parts


async def test_a_relay_reports_before_it_counts_the_relays(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage that made all of them silent the others shall count it."""
    reports = Reports(1)

    await parts_of(monkeypatch, reports)

    assert ["heartbeat", "policy"] == reports.told[:2]


async def test_a_relay_that_is_missed_keeps_its_part_until_it_is_missed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the relay that is back first after an outage takes the whole limit, until the others have reported too."""
    parts = await parts_of(monkeypatch, Reports(3, 1, 3, 1, 1, 2, 2))

    assert [3, 3, 3, 3, 1, 2] == parts[:6]


async def test_neither_heartbeat_nor_lanes_wait_until_contracts_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the other relays would take its lanes."""

    async def compile_for_ever() -> None:
        reports.told.append("contracts")
        await asyncio.Event().wait()

    reports = Reports(1, 1, 1, 1)
    monkeypatch.setattr(reports, "refresh_contracts", compile_for_ever, raising=False)

    await parts_of(monkeypatch, reports)

    assert (1, 4) == (reports.told.count("contracts"), reports.told.count("policy"))


class Rig:
    """What a relay does next to the loop, one step at a time."""

    def __init__(self) -> None:
        self.reports, self.scrub, self.claims = Reports(1), Scrubs(), FakeClaims()
        self.intake = Intake(store=self.claims, poll_interval=1.0)
        upkeep: Any = self.reports
        self.nudged = 0
        self.work = Maintenance(
            store=upkeep, intake=self.intake, scrub=self.scrub, lock_renewer=renewer(Window(window=1, window_bytes=1), Renewals(), []),
            state=dict, gauges=lambda _: None, emit=lambda _: None, nudge=self._nudge,
            wrong_direction=lambda: None,
        )  # fmt: skip

    def _nudge(self) -> None:
        self.nudged += 1


def test_a_resumed_exchange_is_scanned_for_at_once() -> None:
    """A pause begins without a scan."""
    rig = Rig()
    for paused, hints in ((["audit"], 0), (["audit"], 0), ([], 1)):
        rig.reports.paused = paused
        at_once(rig.work._refresh_policy())
        assert (hints, paused) == (rig.scrub.hints, rig.intake.streams.paused)


def test_gained_lanes_are_scanned_at_once() -> None:
    """Their keys may wait anywhere; lanes that stay as they are cost no scan."""
    rig = Rig()
    rig.claims.lanes = {3: 1}
    for hints in (1, 1):
        at_once(rig.work._keep_lanes())
        assert hints == rig.scrub.hints
    rig.claims.lanes = {3: 2}
    at_once(rig.work._keep_lanes())
    assert 2 == rig.scrub.hints
