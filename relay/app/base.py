"""Common parts of a relay and a worker: events, the current policy, the database, the window."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from relay import __version__, events
from relay.app.process import secret_of
from relay.claims.flood_control import FloodControl
from relay.config.settings import LOCK_SHARE, Settings
from relay.contracts.enforcing_encoder import EnforcingEncoder
from relay.engine.policy import Policy
from relay.engine.window import Window
from relay.net.secret_url import DatabaseTarget, Secret
from relay.observability.health import Health
from relay.observability.metrics import Metrics
from relay.postgres.maintenance_store import PostgresMaintenance
from relay.postgres.schema.sql_files import migrations
from relay.postgres.store import Store


class CurrentPolicy:
    """The database's current policy.

    Args:
        settings: the settings in this relay's environment, which may differ from those in the database.
        emit: sink of events about settings that the database overrules.
        adopted: called with each policy.

    """

    def __init__(self, settings: Settings, emit: events.Sink, adopted: Callable[[Policy], None]) -> None:
        self.now = Policy()
        self._settings = settings
        self._emit = emit
        self._adopted = adopted
        self._overruled: dict[str, str] = {}

    def adopt(self, policy: Policy, settings: Mapping[str, str]) -> None:
        """Adopt the database's policy. Report once each setting in which this relay's environment differs."""
        self.now = policy
        self._adopted(policy)
        for name, wanted, holds in self._settings.overruled(settings):
            if self._overruled.get(name) != holds:
                self._overruled[name] = holds
                self._emit(events.SettingOverruled(name, wanted, holds))

    @property
    def drain_seconds(self) -> float:
        """How long a drain may take: it ends before the locks expire."""
        return min(self._settings.drain_seconds, LOCK_SHARE * self.now.lock_seconds)


class RelayBase:
    """The common parts, in the order of their dependencies.

    Args:
        settings: the settings of the process.
        sink: receives each event before the other sinks.
        direction: the direction that the schema must have.
        peers: servers without which no message can move.
        adopted: called with each policy that was read from the database.
        clock: monotonic seconds.

    """

    def __init__(
        self,
        settings: Settings,
        sink: events.Sink,
        *,
        direction: str,
        peers: Sequence[str],
        adopted: Callable[[Policy], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self.clock = settings, clock
        self.metrics, self.health = Metrics(*peers, "queue"), Health(*peers)
        self.metrics.present(name=settings.name, schema=settings.schema_name, version=__version__)
        self.emit = events.fan_out(sink, self.metrics.sink, self.health.sink)
        self.stop = asyncio.Event()
        """Set when the process must end."""
        self.nudged = asyncio.Event()
        """Set when something has changed, so that the engine does not sleep any longer."""
        self.put_back = asyncio.Event()
        """Set when messages that are due at once were returned to the queue."""
        self.policy = CurrentPolicy(settings, self.emit, adopted)
        self._risky = events.warn_once(self.emit)
        self.database = self.target("database_url")
        self.store = self._store()
        self.contracts = EnforcingEncoder(self.emit)
        self.upkeep = PostgresMaintenance(
            store=self.store, needs=migrations()[-1].version, adopt=self.policy.adopt, contracts=self.contracts.load, direction=direction
        )
        self.window = Window(window=settings.window, window_bytes=settings.window_bytes)

    def secret(self, name: str) -> Secret:
        """A URL of the settings."""
        return secret_of(self.settings, name, self.emit)

    def target(self, name: str) -> DatabaseTarget:
        """The database at a URL of the settings."""
        return DatabaseTarget(self.secret(name), self._risky)

    def flood_control(self) -> FloodControl:
        """A new `FloodControl`, which shares the window between exchanges."""
        return FloodControl(
            window=self.settings.window,
            in_flight=self.window.count,
            window_bytes=self.settings.window_bytes,
            size_in_flight=self.window.size_of,
            clock=self.clock,
        )

    def _store(self) -> Store:
        return Store(
            conninfo=self.database,
            schema=self.settings.schema_name,
            name=self.settings.name,
            policy=lambda: self.policy.now,
            prepare=self.settings.prepare,
            emit=self.emit,
            leaving=self.stop.is_set,
            put_back=self.put_back.set,
        )
