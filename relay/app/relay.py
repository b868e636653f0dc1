"""Runs a relay or a worker from start to end; builds the parts that depend on an intake, a publisher and a settler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

from relay import events
from relay.app.base import RelayBase
from relay.app.heartbeat_state import state_of
from relay.app.process import http_of, reach, serve
from relay.app.shutdown import GRACE, Shutdown
from relay.claims.intake import Intake
from relay.claims.scrub import Scrub
from relay.engine.loop import Engine
from relay.errors import StoreError
from relay.maintenance.lock_renewer import LockRenewer
from relay.maintenance.maintenance import Maintenance
from relay.maintenance.renumbering import Renumbering
from relay.observability.http_server import HttpServer
from relay.observability.logs import LogSink
from relay.ports import LivePublisher, Settler
from relay.postgres.wakeup import Listener


@dataclass(frozen=True, kw_only=True, eq=False)
class Relay:
    """One relay: moves messages until its shutdown."""

    base: RelayBase
    intake: Intake
    publisher: LivePublisher
    listener: Listener
    engine: Engine
    shutdown: Shutdown
    maintenance: Maintenance
    http: HttpServer | None
    companions: Sequence[Companion]
    """Coroutines that run concurrently with the engine, until the engine ends."""
    before_leaving: Callable[[], Coroutine[Any, Any, None]] | None
    """Called before the relay unregisters, while the database connection is still open."""

    @property
    def kept(self) -> int:
        """How many messages stay locked after the shutdown."""
        return self.base.window.messages + self.engine.kept

    async def serve(self, log: LogSink) -> None:
        """Run as a separate process, with signal handlers and HTTP pages."""
        await serve(self.run, shutdown=self.shutdown, http=self.http, log=log, emit=self.base.emit)

    async def run(self) -> None:
        """Wait for the database, start all components, move messages until the shutdown, then unregister."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.base.store.aclose)
            if await reach(self._enter, stop=self.base.stop, emit=self.base.emit):
                await self._work(stack)
                await self._leave()

    async def _enter(self) -> bool:
        """Check the schema, read policy and contracts, and register the relay in the database."""
        base = self.base
        await base.upkeep.check_schema()
        controls = await base.upkeep.refresh_policy()
        await base.upkeep.refresh_contracts()
        await Renumbering(base.upkeep, base.emit).finish()
        relay_id = await base.store.register()
        self.intake.pause(controls.paused)
        self.intake.limit(controls.limits, controls.relays + 1)
        self.base.emit(events.Started(relay_id, base.settings.name, base.settings.schema_name))
        return True

    async def _work(self, stack: AsyncExitStack) -> None:
        self.base.metrics.watch(
            in_flight=lambda: self.base.window.messages,
            silent=self.publisher.silent,
            apart=lambda: len(self.intake.streams.heads),
            behind=lambda: len(self.intake.behind),
        )
        for component in (self.publisher, self.listener):
            await component.start()
            stack.push_async_callback(component.aclose)
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self.maintenance.run()), *(tasks.create_task(companion(self)) for companion in self.companions)]
            await self.engine.run(drain_seconds=self.base.policy.drain_seconds)
            for task in beside:
                task.cancel()

    async def _leave(self) -> None:
        """Release the lanes and the relay's own row. If the database does not answer, the missing heartbeat shows that the relay ended."""
        if self.before_leaving:
            await self.before_leaving()
        kept, store = self.kept, self.base.store
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(5):
                await store.unregister(holds_locks=kept > 0 or store.left_locked)
        self.base.emit(events.Stopped(kept))


Companion = Callable[[Relay], Coroutine[Any, Any, None]]


def assemble(
    base: RelayBase,
    *,
    intake: Intake,
    publisher: LivePublisher,
    settler: Settler,
    abandon: Callable[[int], None],
    companions: Sequence[Companion],
    before_leaving: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> Relay:
    """The relay that claims, sends and settles with these parts; `abandon` is passed to `Shutdown`."""
    listener = _listener(base, intake)
    engine = _engine(base, intake, publisher, settler, listener)
    shutdown = _shutdown(base, engine, abandon)
    return Relay(
        base=base,
        intake=intake,
        publisher=publisher,
        listener=listener,
        engine=engine,
        shutdown=shutdown,
        maintenance=_maintenance(base, intake, publisher, listener, shutdown),
        http=_http(base, listener, engine),
        companions=companions,
        before_leaving=before_leaving,
    )


def _listener(base: RelayBase, intake: Intake) -> Listener:
    def hint() -> None:
        intake.hint()
        base.nudged.set()

    return Listener(
        conninfo=base.target("listen_url") if base.settings.listen_url else base.database,
        schema=base.settings.schema_name,
        name=base.settings.name,
        mode=lambda: base.policy.now.notify,
        on_hint=hint,
        emit=base.emit,
        clock=base.clock,
    )


def _engine(base: RelayBase, intake: Intake, publisher: LivePublisher, settler: Settler, listener: Listener) -> Engine:
    return Engine(
        intake=intake,
        publisher=publisher,
        settler=settler,
        wakeup=listener,
        window=base.window,
        policy=lambda: base.policy.now.retry,
        batch_size=base.settings.batch_size,
        nudged=base.nudged,
        emit=base.emit,
    )


def _shutdown(base: RelayBase, engine: Engine, abandon: Callable[[int], None]) -> Shutdown:
    return Shutdown(
        stop=base.stop,
        drain=engine.stop,
        cut=engine.cut,
        seconds=lambda: base.policy.drain_seconds + GRACE,
        in_flight=lambda: base.window.messages,
        abandon=abandon,
        emit=base.emit,
    )


def _maintenance(base: RelayBase, intake: Intake, publisher: LivePublisher, listener: Listener, shutdown: Shutdown) -> Maintenance:
    scrub = Scrub(store=base.store, intake=intake, emit=base.emit, nudge=base.nudged.set, holds=base.window.holds)
    lock_renewer = LockRenewer(
        store=base.upkeep,
        window=base.window,
        lock_seconds=lambda: base.policy.now.lock_seconds,
        silent=publisher.silent,
        emit=base.emit,
    )

    def state() -> Mapping[str, object]:
        known = state_of(publisher=publisher, listen=listener.state, intake=intake, window=base.window, health=base.health)
        return {**known, "unusable_contracts": base.contracts.unusable, "walked_ago": scrub.walked_ago}

    return Maintenance(
        store=base.upkeep,
        intake=intake,
        scrub=scrub,
        lock_renewer=lock_renewer,
        state=state,
        gauges=base.metrics.queue,
        emit=base.emit,
        nudge=base.nudged.set,
        wrong_direction=lambda: shutdown.leave("direction"),
    )


def _http(base: RelayBase, listener: Listener, engine: Engine) -> HttpServer | None:
    return http_of(
        base.settings,
        metrics=base.metrics,
        reasons=lambda: base.health.reasons,
        listen=lambda: listener.state,
        alive=lambda: engine.running,
        notes=lambda: base.health.notes,
    )
