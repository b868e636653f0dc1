"""The maintenance tasks of a relay: heartbeat, policy, locks, lanes, sweep, schedules, archive partitions and retention."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from relay import events
from relay.claims.intake import Intake
from relay.claims.scrub import Scrub
from relay.engine.policy import Controls
from relay.errors import WrongDirectionError
from relay.maintenance.folds import Folds, FoldStore
from relay.maintenance.lock_renewer import LockRenewer
from relay.maintenance.periodic_tasks import PeriodicTask, PeriodicTasks
from relay.maintenance.renumbering import TASK, ForeignStore, Renumbering
from relay.maintenance.schedules import FailureReports, Schedules
from relay.ports import NOWHERE, Places

HEARTBEAT_SECONDS = 2.0
"""Seconds between two heartbeats."""
CONTRACT_SECONDS = 1.0
"""Seconds between two checks whether the policy's contracts have changed."""
LANE_SECONDS = 2.5
"""Seconds between two checks of the lanes that this relay owns. Each heartbeat renews their lease, which lasts twice as long."""
GAUGE_SECONDS = 15.0
"""Seconds between two reads of the queue for metrics: the usual interval of a scrape."""
REST = 4.0
"""Pause after a slow task, as a multiple of its duration. Folds, schedules and the scrub use the same connection, which no slow task
occupies for more than a fifth of the time."""
MINUTE = 60.0
HOUR = 3600.0


class MaintenanceStore(ForeignStore, FoldStore, Protocol):
    """The statements behind the tasks; each may raise StoreError."""

    async def heartbeat(self, state: Mapping[str, object], places: Places = NOWHERE) -> None:
        """Report this relay's state and places, and that it is alive."""

    async def sweep_minute(self) -> tuple[int, int]:
        """Sweep expired locks, and note changes of the database's clock; return how many messages were released and archived."""

    async def ensure_partitions(self) -> int:
        """Create the archive's partitions in advance; return how many were created."""

    async def retain(self) -> tuple[int, int]:
        """Drop one day and delete some dead messages past their retention; return how many days and messages were removed."""

    async def renotify(self) -> None:
        """In the mode `always`, notify relays again of waiting messages."""

    async def read_gauges(self) -> Mapping[str, float | None]:
        """The state of the queue, for metrics."""

    async def refresh_policy(self) -> Controls:
        """Read the database's policy; return what operators have paused, limited or scheduled.

        Raises:
            WrongDirectionError: the schema's direction has changed.
        """

    async def refresh_contracts(self) -> None:
        """Load the message contracts if the last policy that was read has new contracts."""

    async def run_schedules(self) -> tuple[int, float | None]:
        """Insert the messages of due schedules; return how many, and the seconds until the next tick (None without a tick)."""

    async def failing_schedules(self) -> Mapping[str, str]:
        """Why schedules fail, by name."""


class Maintenance:
    """The maintenance tasks of a relay, with their intervals."""

    def __init__(
        self,
        *,
        store: MaintenanceStore,
        intake: Intake,
        scrub: Scrub,
        lock_renewer: LockRenewer,
        state: Callable[[], Mapping[str, object]],
        gauges: Callable[[Mapping[str, float | None]], None],
        emit: events.Sink,
        nudge: Callable[[], None],
        wrong_direction: Callable[[], None],
    ) -> None:
        self._store = store
        self._intake = intake
        self._scrub = scrub
        self._lock_renewer = lock_renewer
        self._state = state
        self._gauges = gauges
        self._emit = emit
        self._nudge = nudge
        self._wrong_direction = wrong_direction
        self._paused: list[str] = []
        self._limits: Mapping[str, float] = {}
        self._relays = 0
        self._schedules = Schedules(carry_out=store.run_schedules, inserted=self._hint_new_messages, emit=emit)
        self._failures = FailureReports(emit)
        self._renumbering = Renumbering(store, emit, scrub.begin_again)
        self._folds = Folds(store, emit)
        self._key_folds = Schedules(
            carry_out=self._folds.carry_out, inserted=self._hint_new_messages, emit=emit, task="messages with a key"
        )

    async def run(self) -> None:
        """Run every task when it is due, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._slow_tasks().run())
            tasks.create_task(self._foreign_tasks().run())
            tasks.create_task(self._quick_tasks().run())
            tasks.create_task(self._key_tasks().run())
            tasks.create_task(self._contract_tasks().run())
            tasks.create_task(self._lock_renewer.run(self._pause_exchanges))
            tasks.create_task(self._scrub.run())
            tasks.create_task(self._schedules.run())
            tasks.create_task(self._key_folds.run())

    def _quick_tasks(self) -> PeriodicTasks:
        return PeriodicTasks(
            # The heartbeat comes first: reading the policy counts the relays that have reported.
            PeriodicTask("heartbeat", HEARTBEAT_SECONDS, self._heartbeat),
            PeriodicTask("policy", HEARTBEAT_SECONDS, self._refresh_policy),
            PeriodicTask("lanes", LANE_SECONDS, self._keep_lanes),
            emit=self._emit,
        )

    def _key_tasks(self) -> PeriodicTasks:
        """Tasks that may take long; the heartbeat must not wait for them."""
        return PeriodicTasks(PeriodicTask("messages with a key", HEARTBEAT_SECONDS, self._read_next_fold), emit=self._emit)

    def _contract_tasks(self) -> PeriodicTasks:
        """The task that loads contracts; compiling them may take a minute."""
        return PeriodicTasks(PeriodicTask("contracts", CONTRACT_SECONDS, self._store.refresh_contracts), emit=self._emit)

    def _slow_tasks(self) -> PeriodicTasks:
        """Tasks that may take long or wait for the archive; renewals of locks and lanes must not wait for them."""
        return PeriodicTasks(
            PeriodicTask("partitions", HOUR, self._ensure_partitions),
            PeriodicTask("retention", HOUR, self._retain),
            PeriodicTask("sweep", MINUTE, self._sweep_minute),
            PeriodicTask("notifications", MINUTE, self._store.renotify),
            PeriodicTask("gauges", GAUGE_SECONDS, self._read_gauges),
            emit=self._emit,
            rest=REST,
        )

    def _foreign_tasks(self) -> PeriodicTasks:
        """The task that renumbers: one run does all the work, page by page. Between pages, other tasks use the same connection."""
        return PeriodicTasks(PeriodicTask(TASK, MINUTE, self._renumbering.run), emit=self._emit)

    async def _refresh_policy(self) -> None:
        try:
            controls = await self._store.refresh_policy()
        except WrongDirectionError:
            # Claim nothing more. After a restart the relay waits and reports the reason.
            self._wrong_direction()
            raise
        self._paused = controls.paused
        # A relay that misses one heartbeat keeps its share of the limits. Otherwise, after an outage, the first relay would use them up.
        relays, self._relays = max(self._relays, controls.relays), controls.relays
        self._intake.limit(controls.limits, relays)
        self._report_limits(controls.limits)
        self._schedules.set_next(controls.tick_in)
        self._pause_exchanges()

    async def _read_next_fold(self) -> None:
        self._key_folds.set_next(await self._folds.due_in())

    def _report_limits(self, limits: Mapping[str, float]) -> None:
        """Report each new, changed or lifted limit once."""
        before, self._limits = self._limits, limits
        for exchange in sorted(before.keys() | limits.keys()):
            if before.get(exchange) != (figure := limits.get(exchange)):
                self._emit(events.ExchangeLimited(exchange, figure) if figure else events.ExchangeUnlimited(exchange))

    def _hint_new_messages(self) -> None:
        self._intake.hint()
        self._nudge()

    def _pause_exchanges(self) -> None:
        """Claim nothing for exchanges that an operator has paused, or that do not confirm and fill the window."""
        if self._intake.pause({*self._paused, *self._lock_renewer.window.stuck}):
            self._scrub.hint()
        self._nudge()

    async def _heartbeat(self) -> None:
        await self._store.heartbeat(self._state(), self._intake.streams.places(self._lock_renewer.window.lowest))

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
        self._failures.report(await self._store.failing_schedules() if gauges.get("schedules_failing") else {})
