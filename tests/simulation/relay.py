"""One relay process: the relay as its command runs it, on sessions and a connection in memory."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import SecretStr

from relay import events
from relay.app.outbox import compose
from relay.app.shutdown import GRACE
from relay.config.settings import Settings
from relay.message import Position
from tests.simulation.clock import Process, SimulatedLoop, Time
from tests.simulation.server import Client, FakeSession, Server

DRAIN = 20.0
WALK = 12
"""Messages that a claim looks at: so few that walks are cut, as every other bound is small here."""
SCAN = 30
"""Messages that a page of a scan looks at."""
SUSPECTS = 20
"""Suspects of an exchange that are remembered."""
POLL = 1.0
"""Seconds between two looks of a relay that rests."""


class Unset(Settings):
    """Settings of which none is one that the database decides."""

    def overruled(self, database: Mapping[str, str]) -> list[tuple[str, str, str]]:
        """Say so, without reading the database's policy once more."""
        del database
        return []


SETTINGS = Unset(name="relay", http_port=None, window=40, batch_size=10, drain_seconds=DRAIN, poll_interval=POLL)


class Silence:
    """Replaces `relay.observability.logs.LogSink`."""

    def __call__(self, event: events.Event) -> None:
        """Write nothing; what the relay itself takes for a bug of its own breaks the run."""
        if "report this as a bug" in (sentence := getattr(event, "error", "")):
            asyncio.get_running_loop().call_exception_handler({"message": sentence})


class Uncounted:
    """Replaces `relay.observability.metrics.Metrics`, which no test reads here."""

    def __init__(self, *_peers: str) -> None:
        self.sink = self.present = self.watch = self.queue = lambda *_, **__: None


STAND_INS: dict[str, object] = {
    "relay.app.base.Metrics": Uncounted,
    "relay.postgres.store.PAGE": SCAN,
    "relay.postgres.store.MAX_FINDINGS": 8,
    "relay.postgres.store.LOOK": WALK,
    "relay.claims.lanes.PAGE": WALK,
    "relay.claims.stream.WALK": WALK,
    "relay.claims.cursor.MAX_LATE": 2,
    "relay.claims.suspects.MAX_GROUP": 6,
}
"""By what they stand for."""


class App:
    """The relay, with its adapters taken from the world. It has no signals and no HTTP, and nothing is abandoned."""

    def __init__(self, name: str, url: str, sessions: list[FakeSession], clock: Time) -> None:
        settings = SETTINGS.model_copy(update={"name": name, "amqp_url": SecretStr(url)})
        self.relay = compose(settings, Silence(), lambda _: None, clock=clock.monotonic)
        self.store = cast("Any", self.relay.base.store)
        self.store._claims, self.store._settles, self.store._control = self.store._sessions = sessions
        self.store._claiming._session, self.store._settling._session, self.store._settling._control = self.store._sessions
        self.intake = cast("Any", self.relay.intake)
        self.intake.backlog._most = self.intake.lanes.backlog._most = self.intake.lanes.keys._most = 2 * SCAN
        self.intake.suspects.backlog._most = SUSPECTS
        cast("Any", self.relay.publisher)._open_channels = 3


class SimulatedRelay:
    """A relay from its start to its end, whichever that is."""

    def __init__(self, number: int, *, loop: SimulatedLoop, server: Server, trouble: Callable[[SimulatedRelay, str], None]) -> None:
        self.name = f"relay-{number}"
        self.url = f"amqp://{self.name}/"
        self.process = Process()
        self.process.number = lambda: self.id
        self.client = Client(self.name)
        self.process.away_until = lambda: self.client.away_until
        self.client.note = lambda name: trouble(self, name)
        self.failure: BaseException | None = None
        self.stopping_at: float | None = None
        self.trouble_at = loop.time()
        """When something last happened after which its locks may expire."""
        self.upset_at = loop.time()
        """When anything last went wrong, if only one statement."""
        self.clock_set_at = -math.inf
        """When the server's clock was last set."""
        self.may_lose = 0
        """Locks that it may still lose for that."""
        self.stopped_at = 0.0
        """When it was last made to stand still."""
        self.stops = 0
        self._loop = loop
        self._app = self.process.context.run(App, self.name, self.url, [FakeSession(server, self.client) for _ in range(3)], Time(loop))
        self.task = loop.spawn(self.process, self._main())

    @property
    def id(self) -> int:
        """What `locked_by` holds of it; 0 before it is registered."""
        return int(self._app.store.relay_id)

    @property
    def alive(self) -> bool:
        """Neither ended nor killed."""
        return not (self.task.done() or self.process.dead)

    @property
    def head(self) -> Position:
        """How far it has come in claim order; everything up to there the scrub looks after."""
        return cast("Position", self._app.intake.streams.main.head)

    @property
    def kept(self) -> int:
        """What it leaves under its locks."""
        return self._app.relay.kept

    @property
    def unheard(self) -> bool:
        """It may leave more, and says so."""
        return bool(self._app.store.left_locked)

    def stop(self) -> None:
        """SIGTERM: the first one drains, the second one cuts."""
        self.stops += 1
        self.stopping_at = self.stopping_at or self._loop.time()
        self._loop.call_soon(self._app.relay.shutdown.signalled, "SIGTERM", context=self.process.context)

    def kill(self) -> None:
        """SIGKILL."""
        self.client.dead = True
        self._loop.kill(self.process)

    async def _main(self) -> None:
        try:
            await self._app.relay.run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the world tells of it
            self.failure = error

    @property
    def longest_stop(self) -> float:
        """Seconds after which a relay that was asked to stop has left, whatever happens."""
        return DRAIN + GRACE
