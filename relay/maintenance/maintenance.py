"""What a relay does beside the loop: keeps its locks and lanes, reports itself, frees what others left, tends the archive."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from relay import events
from relay.claims.intake import Intake
from relay.claims.scrub import Scrub
from relay.engine.policy import Controls
from relay.engine.window import Window
from relay.errors import StoreError
from relay.maintenance.renumbering import CHORE, ForeignStore, Renumbering
from relay.maintenance.schedules import Failing, Folded, Folds, Schedules
from relay.message import Batch
from relay.ports import NOWHERE, Places

HEARTBEAT = 2.0
"""Seconds between two reports of a living relay."""
JITTER = 0.1
"""Share of its time by which a chore comes sooner or later, so that relays started together do not sweep together."""
LANES = 2.5
"""Seconds between two renewals of the lanes' leases, which last twice as long."""
GAUGES = 15.0
"""Seconds between two looks at the queue for metrics: a scrape's usual interval."""
MINUTE = 60.0
HOUR = 3600.0
MORE = 5.0
"""Seconds until a chore goes on that has left something over, which it does in small steps so that nobody waits for it."""
SILENT = 1.0
"""Seconds without a confirm after which an exchange counts as silent."""
RENEWAL = 0.5
"""Share of the relay's own deadline that must be left, else the locks are renewed."""


class LockStore(Protocol):
    """The statement that keeps locks."""

    async def renew(self, batch: Batch, positions: list[tuple[int, int]]) -> int:
        """Move locks ahead; return how many are still ours. May raise StoreError."""


class MaintenanceStore(ForeignStore, Protocol):
    """The statements behind the chores; each may raise StoreError."""

    async def heartbeat(self, state: Mapping[str, object], places: Places = NOWHERE) -> None:
        """Report that this relay lives, and where it is."""

    async def sweep_minute(self) -> tuple[int, int]:
        """Run the minute's sweep, which also notes when the database's clock was set; return how many were released, and archived."""

    async def ensure_partitions(self) -> int:
        """Make the days of the archive ahead; return how many."""

    async def retain(self) -> tuple[int, int]:
        """Drop one day and delete some dead messages that are past their retention; return how many days and messages went."""

    async def renotify(self) -> None:
        """In mode `always`, notify waiting messages again."""

    async def read_gauges(self) -> Mapping[str, float | None]:
        """The state of the queue, for metrics."""

    async def refresh_policy(self) -> Controls:
        """Read the database's policy; return what operators hold, limit or have scheduled."""

    async def run_schedules(self) -> tuple[int, float | None]:
        """Insert the messages that schedules owe; return how many, and the seconds until the next tick, None for none."""

    async def failing_schedules(self) -> Mapping[str, str]:
        """Why schedules fail, by name."""

    async def fold_in(self) -> float | None:
        """Seconds until a message that waits under its key is due; None where there is none."""

    async def fold_keys(self) -> Folded:
        """Send what is due under its keys."""

    async def failing_keys(self) -> Mapping[str, str]:
        """Why keys could not be sent, by name."""


@dataclass(slots=True, eq=False)
class PeriodicTask:
    """One thing to do every so often; sooner again after a turn that says that there may be more to do."""

    name: str
    every: float
    do: Callable[[], Awaitable[bool | None]]
    due_at: float = 0.0


class PeriodicTasks:
    """Does chores one after the other, each when it is due; one that fails is told of and tried again."""

    def __init__(self, *chores: PeriodicTask, emit: events.Sink) -> None:
        self._chores = chores
        self._emit = emit

    async def run(self) -> None:
        """Do what is due, for ever."""
        while True:
            for chore in self._chores:
                if chore.due_at <= time.monotonic():
                    await self._try(chore)
            await asyncio.sleep(max(0.0, min(chore.due_at for chore in self._chores) - time.monotonic()))

    async def _try(self, chore: PeriodicTask) -> None:
        try:
            every = MORE if await chore.do() else chore.every
        except StoreError as error:
            self._emit(events.MaintenanceFailed(chore.name, str(error)))
            chore.due_at = time.monotonic() + min(chore.every, HEARTBEAT)
            return
        chore.due_at = time.monotonic() + every * (1 - JITTER + 2 * JITTER * random.random())  # noqa: S311 - jitter


class LockRenewer:
    """Keeps what is in hand: renews the locks of what takes long, and notes exchanges that do not confirm.

    Args:
        store: where locks are renewed.
        in_hand: what this relay holds.
        lock_seconds: how long a lock lasts, as the policy says now.
        silent: seconds without a confirm by exchange.
        emit: takes what cannot be renewed.
    """

    def __init__(
        self,
        *,
        store: LockStore,
        in_hand: Window,
        lock_seconds: Callable[[], float],
        silent: Callable[[], Mapping[str, float]],
        emit: events.Sink,
    ) -> None:
        self.in_hand = in_hand
        self._store = store
        self._lock_seconds = lock_seconds
        self._silent = silent
        self._emit = emit

    async def run(self, hold: Callable[[], None]) -> None:
        """Look often enough for every lock, for ever; `hold` is called when other exchanges than before are stuck."""
        while True:
            await asyncio.sleep(min(1.0, self._lock_seconds() / 10))
            if self.in_hand.note_silence([exchange for exchange, seconds in self._silent().items() if seconds > SILENT]):
                hold()
            await self._renew()

    async def _renew(self) -> None:
        for batch, positions in self.in_hand.due_for_renewal(time.monotonic(), self._lock_seconds() * RENEWAL):
            try:
                await self._store.renew(batch, positions)
            except StoreError as error:
                self._emit(events.MaintenanceFailed("lock renewal", str(error)))


class Maintenance:
    """Runs the chores and keeps the locks until cancelled."""

    def __init__(
        self,
        *,
        store: MaintenanceStore,
        intake: Intake,
        scrub: Scrub,
        keeper: LockRenewer,
        state: Callable[[], Mapping[str, object]],
        gauges: Callable[[Mapping[str, float | None]], None],
        emit: events.Sink,
        nudge: Callable[[], None],
    ) -> None:
        self._store = store
        self._intake = intake
        self._scrub = scrub
        self._keeper = keeper
        self._state = state
        self._gauges = gauges
        self._emit = emit
        self._nudge = nudge
        self._paused: list[str] = []
        self._limits: Mapping[str, float] = {}
        self._relays = 0
        self._schedules = Schedules(carry_out=store.run_schedules, inserted=self._look, emit=emit)
        self._failing = Failing(emit)
        self._renumbering = Renumbering(store, emit, scrub.begin_again)
        folds = Folds(store.fold_keys, store.failing_keys, emit)
        self._keys = Schedules(carry_out=folds.carry_out, inserted=self._look, emit=emit, chore="messages with a key")

    async def run(self) -> None:
        """Do what is due, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._slow_chores().run())
            tasks.create_task(self._quick_chores().run())
            tasks.create_task(self._key_chores().run())
            tasks.create_task(self._keeper.run(self._hold))
            tasks.create_task(self._scrub.run())
            tasks.create_task(self._schedules.run())
            tasks.create_task(self._keys.run())

    def _quick_chores(self) -> PeriodicTasks:
        return PeriodicTasks(
            # First: each relay that reads the policy counts those that have reported.
            PeriodicTask("heartbeat", HEARTBEAT, self._heartbeat),
            PeriodicTask("policy", HEARTBEAT, self._refresh_policy),
            PeriodicTask("lanes", LANES, self._keep_lanes),
            emit=self._emit,
        )

    def _key_chores(self) -> PeriodicTasks:
        """What it reads may be long, as what it leads to: no heartbeat waits for it."""
        return PeriodicTasks(PeriodicTask("messages with a key", HEARTBEAT, self._name_fold), emit=self._emit)

    def _slow_chores(self) -> PeriodicTasks:
        """They may take long, or wait for the archive: nothing that keeps locks and lanes waits behind them."""
        return PeriodicTasks(
            PeriodicTask("partitions", HOUR, self._ensure_partitions),
            PeriodicTask("retention", HOUR, self._retain),
            PeriodicTask("sweep", MINUTE, self._sweep_minute),
            PeriodicTask(CHORE, MINUTE, self._renumbering.run),
            PeriodicTask("notifications", MINUTE, self._store.renotify),
            PeriodicTask("gauges", GAUGES, self._read_gauges),
            emit=self._emit,
        )

    async def _refresh_policy(self) -> None:
        controls = await self._store.refresh_policy()
        self._paused = controls.paused
        # One that is missed keeps its part until it is missed again: after an outage the first to be back would take the whole limit.
        relays, self._relays = max(self._relays, controls.relays), controls.relays
        self._intake.limit(controls.limits, relays)
        self._tell_limits(controls.limits)
        self._schedules.name(controls.tick_in)
        self._hold()

    async def _name_fold(self) -> None:
        self._keys.name(await self._store.fold_in())

    def _tell_limits(self, limits: Mapping[str, float]) -> None:
        """Once each, what is limited from now on, and what no longer."""
        before, self._limits = self._limits, limits
        for exchange in sorted(before.keys() | limits.keys()):
            if before.get(exchange) != (figure := limits.get(exchange)):
                self._emit(events.ExchangeLimited(exchange, figure) if figure else events.ExchangeUnlimited(exchange))

    def _look(self) -> None:
        self._intake.hint()
        self._nudge()

    def _hold(self) -> None:
        """Claim nothing for exchanges that an operator holds, nor for those that do not confirm and fill the window."""
        if self._intake.hold({*self._paused, *self._keeper.in_hand.stuck}):
            self._scrub.hint()
        self._nudge()

    async def _heartbeat(self) -> None:
        await self._store.heartbeat(self._state(), self._intake.streams.places(self._keeper.in_hand.lowest))

    async def _keep_lanes(self) -> None:
        if await self._intake.keep_lanes():
            self._scrub.hint()
        self._nudge()

    async def _sweep_minute(self) -> None:
        released, archived = await self._store.sweep_minute()
        if released or archived:
            self._emit(events.LocksSwept(released, archived))
            self._intake.hint_waiting()
            self._nudge()

    async def _ensure_partitions(self) -> None:
        if created := await self._store.ensure_partitions():
            self._emit(events.PartitionsEnsured(created, 0))

    async def _retain(self) -> bool:
        dropped, deleted = await self._store.retain()
        if dropped:
            self._emit(events.PartitionsEnsured(0, dropped))
        return bool(dropped or deleted)

    async def _read_gauges(self) -> None:
        gauges = await self._store.read_gauges()
        self._gauges(gauges)
        self._failing.tell(await self._store.failing_schedules() if gauges.get("schedules_failing") else {})
