"""Composes the relay from settings and runs it: the only place where settings meet components."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress

from relay import __version__, events
from relay.aio import pause, unless
from relay.amqp.publishing.publisher import RabbitPublisher
from relay.app.heartbeat_state import state_of
from relay.app.idle_exit import idle
from relay.app.process import run_on_loop, secret_of, serve_http
from relay.claims.flood_control import FloodControl
from relay.claims.intake import Intake
from relay.claims.scrub import Scrub
from relay.claims.unconfirmed_exchanges import UnconfirmedExchanges
from relay.codec.encoder import Encoders
from relay.config.settings import LOCK_SHARE, Settings
from relay.contracts.enforcing_encoder import EnforcingEncoder
from relay.engine.loop import Engine
from relay.engine.policy import Policy
from relay.engine.settler import RetryingSettler
from relay.engine.window import Window
from relay.errors import StoreError
from relay.maintenance.lock_renewer import LockRenewer
from relay.maintenance.maintenance import Maintenance
from relay.maintenance.renumbering import Renumbering
from relay.net.secret_url import DatabaseTarget, Secret
from relay.observability.health import Health
from relay.observability.logs import LogSink
from relay.observability.metrics import Metrics
from relay.ports import LivePublisher, Settler
from relay.postgres.maintenance_store import PostgresMaintenance
from relay.postgres.schema.sql_files import migrations
from relay.postgres.store import Store
from relay.postgres.wakeup import Listener

GRACE = 9.0
"""Seconds after the drain in which servers must have answered; half of it after a second signal."""


def run(settings: Settings) -> int:
    """Run the sidecar until SIGTERM or SIGINT; return the exit code, 0 when it left in order."""
    return run_on_loop(settings, lambda: Relay(settings).serve())


class Relay:
    """One relay process: its components, their life cycle, and the signals that end it."""

    direction = "outbox"
    """What the schema must hold."""
    peers: Sequence[str] = ("database", "broker")
    """Without which no message can move."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._policy, self._overruled = Policy(), dict[str, str]()
        self._log, self._metrics, self._health = LogSink(), Metrics(), Health(*self.peers)
        self._metrics.present(name=settings.name, schema=settings.schema_name, version=__version__)
        self._emit = events.fan_out(*self._sinks())
        self._risky = events.warn_once(self._emit)
        self._stop, self._signals = asyncio.Event(), 0
        self._engine: Engine | None = None
        self._encoders = Encoders(max_body_bytes=self._policy.max_body_bytes, allowed_exchanges=settings.allowed_exchanges)
        self._gate = EnforcingEncoder(self._emit)
        self._database = DatabaseTarget(self._secret("database_url"), self._risky)
        self._store = self._make_store()
        self._upkeep = self._make_upkeep()
        self._window = Window(window=settings.window, window_bytes=settings.window_bytes)
        self._intake = self._make_intake()
        self._publisher, self._listener = self._make_publisher(), self._make_listener()

    async def serve(self) -> int:
        """Wait for the database, start everything, move messages until a signal, drain, leave."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, signal.Signals(number).name)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._store.aclose)
            await self._serve_http(stack)
            if await self._enter():
                await self._work(stack)
                await self._leave()
        self._log.flush()
        return 0

    async def _enter(self) -> bool:
        """Register with the database as soon as it is there; False if a signal came first."""
        attempt = 0
        while not self._stop.is_set():
            try:
                await self._upkeep.check_schema()
                controls = await self._upkeep.refresh_policy()
                if not await Renumbering(self._upkeep, self._emit).finish(self._stop):
                    break
                relay_id = await self._store.register()
            except StoreError as error:
                attempt += 1
                self._emit(events.DatabaseDown(str(error), attempt))
                await unless(self._stop, asyncio.sleep(pause(attempt, first=0.4)))
            else:
                self._intake.pause(controls.paused)
                self._intake.limit(controls.limits, controls.relays + 1)
                self._emit(events.Started(relay_id, self._settings.name, self._settings.schema_name))
                return True
        return False

    async def _work(self, stack: AsyncExitStack) -> None:
        publisher, listener = self._publisher, self._listener
        self._engine = engine = self._make_engine(publisher, listener)
        self._metrics.watch(
            in_flight=lambda: self._window.messages,
            silent=publisher.silent,
            apart=lambda: len(self._intake.streams.heads),
            behind=lambda: len(self._intake.behind),
        )
        maintenance = self._maintenance(publisher, listener, engine)
        for component in (publisher, listener):
            await component.start()
            stack.push_async_callback(component.aclose)
        if self._stop.is_set():
            engine.stop()
        async with asyncio.TaskGroup() as tasks:
            helpers = [tasks.create_task(maintenance.run())]
            if self._settings.exit_after_idle is not None:
                helpers.append(tasks.create_task(self._leave_when_idle(engine, self._settings.exit_after_idle)))
            await engine.run(drain_seconds=self._drain_seconds)
            for helper in helpers:
                helper.cancel()

    async def _leave(self) -> None:
        """Free the lanes and the row; a database that is away finds out by the heartbeat."""
        kept = self._window.messages + (self._engine.kept if self._engine else 0)
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(5):
                await self._store.unregister(holds_locks=kept > 0 or self._store.left_locked)
        self._emit(events.Stopped(kept))

    async def _serve_http(self, stack: AsyncExitStack) -> None:
        await serve_http(
            stack,
            self._settings,
            metrics=self._metrics,
            reasons=lambda: self._health.reasons,
            listen=lambda: self._listener.state,
            alive=lambda: self._engine is None or self._engine.running,
            notes=lambda: self._health.notes,
            emit=self._emit,
        )

    def _sinks(self) -> Sequence[events.Sink]:
        return (self._log, self._metrics.sink, self._health.sink)

    def _secret(self, name: str) -> Secret:
        return secret_of(self._settings, name, self._emit)

    def _make_store(self) -> Store:
        return Store(
            conninfo=self._database,
            schema=self._settings.schema_name,
            name=self._settings.name,
            policy=lambda: self._policy,
            prepare=self._settings.prepare,
            emit=self._emit,
            leaving=self._stop.is_set,
            put_back=lambda: self._intake.hint_waiting(),  # noqa: PLW0108 - the intake is made after the store
        )

    def _make_upkeep(self) -> PostgresMaintenance:
        needs = migrations()[-1].version
        return PostgresMaintenance(
            store=self._store,
            needs=needs,
            adopt=self._adopt,
            contracts=self._gate.load,
            direction=self.direction,
            astray=self._leave_astray,
        )

    def _make_intake(self) -> Intake:
        strangers = UnconfirmedExchanges(window=self._settings.window, in_flight=lambda: self._window.exchanges)
        return Intake(store=self._store, poll_interval=self._settings.poll_interval, share=self._make_share(), strangers=strangers)

    def _make_share(self) -> FloodControl:
        return FloodControl(
            window=self._settings.window,
            in_flight=self._window.count,
            window_bytes=self._settings.window_bytes,
            size_in_flight=self._window.size_of,
        )

    def _make_engine(self, publisher: LivePublisher, listener: Listener) -> Engine:
        return Engine(
            intake=self._intake,
            publisher=publisher,
            settler=self._make_settler(),
            wakeup=listener,
            window=self._window,
            policy=lambda: self._policy.retry,
            batch_size=self._settings.batch_size,
            emit=self._emit,
        )

    def _make_settler(self) -> Settler:
        return RetryingSettler(store=self._store, emit=self._emit)

    def _make_publisher(self) -> LivePublisher:
        return RabbitPublisher(
            urls=[self._secret("amqp_url")],
            name=self._settings.name,
            encoder=self._encoders.make,
            checks=self._gate,
            emit=self._emit,
        )

    def _make_listener(self) -> Listener:
        return Listener(
            conninfo=DatabaseTarget(self._secret("listen_url"), self._risky) if self._settings.listen_url else self._database,
            schema=self._settings.schema_name,
            name=self._settings.name,
            mode=lambda: self._policy.notify,
            on_hint=self._hint,
            emit=self._emit,
        )

    def _maintenance(self, publisher: LivePublisher, listener: Listener, engine: Engine) -> Maintenance:
        scrub = Scrub(store=self._store, intake=self._intake, emit=self._emit, nudge=engine.nudge, holds=self._window.holds)
        return Maintenance(
            store=self._upkeep,
            intake=self._intake,
            scrub=scrub,
            lock_renewer=self._lock_renewer(publisher),
            state=lambda: {**self._state(publisher, listener), "walked_ago": scrub.walked_ago},
            gauges=self._metrics.queue,
            emit=self._emit,
            nudge=engine.nudge,
        )

    def _lock_renewer(self, publisher: LivePublisher) -> LockRenewer:
        return LockRenewer(
            store=self._upkeep,
            window=self._window,
            lock_seconds=lambda: self._policy.lock_seconds,
            silent=publisher.silent,
            emit=self._emit,
        )

    def _state(self, publisher: LivePublisher, listener: Listener) -> Mapping[str, object]:
        state = state_of(publisher=publisher, listen=listener.state, intake=self._intake, window=self._window, reasons=self._health.reasons)
        return {**state, "notes": dict(self._health.notes), "unusable_contracts": self._gate.unusable}

    def _adopt(self, policy: Policy, settings: Mapping[str, str]) -> None:
        """Take over the database's policy; name each setting in which this relay's environment differs, once."""
        self._policy = policy
        self._encoders.limit(policy.max_body_bytes)
        for name, wanted, holds in self._settings.overruled(settings):
            if self._overruled.get(name) != holds:
                self._overruled[name] = holds
                self._emit(events.SettingOverruled(name, wanted, holds))

    def _hint(self) -> None:
        if self._engine:
            self._engine.hint()

    def _leave_astray(self) -> None:
        """The schema holds something else by now: claim nothing more. Who is started anew waits and says why."""
        if self._engine is not None and not self._signals:
            self._signalled("direction")

    def _signalled(self, name: str) -> None:
        """The first signal drains, the second cuts."""
        self._signals += 1
        drains = self._signals == 1
        self._stop.set()
        self._emit(events.Stopping(name, "drain" if drains else "cut", self._window.messages))
        asyncio.get_running_loop().call_later(self._drain_seconds + GRACE if drains else GRACE / 2, self._abandon)
        if self._engine:
            (self._engine.stop if drains else self._engine.cut)()

    def _abandon(self) -> None:
        """End although a server hangs in the middle of an answer: nobody may have to kill the relay. What is in flight keeps its locks."""
        self._emit(events.Abandoned(self._window.messages))
        self._log.flush()
        os._exit(1)

    @property
    def _drain_seconds(self) -> float:
        return min(self._settings.drain_seconds, LOCK_SHARE * self._policy.lock_seconds)

    async def _leave_when_idle(self, engine: Engine, seconds: float) -> None:
        def away() -> bool:
            return not self._publisher.ready or "database" in self._health.reasons

        await idle(seconds, window=self._window, engine=engine, away=away)
        self._stop.set()
        self._emit(events.Stopping("idle", "drain", 0))
        engine.stop()
