"""One relay process: the relay as its command runs it, on sessions and a connection in memory."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, cast

from pydantic import SecretStr

from relay import events
from relay.amqp.publishing.publisher import RabbitPublisher
from relay.app.outbox import GRACE, Relay
from relay.config.settings import Settings
from relay.message import Position
from relay.postgres.wakeup import Listener
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
    """Stands for `relay.observability.logs.LogSink`."""

    def __call__(self, event: events.Event) -> None:
        """Write nothing; what the relay itself takes for a bug of its own breaks the run."""
        if "report this as a bug" in (sentence := getattr(event, "error", "")):
            asyncio.get_running_loop().call_exception_handler({"message": sentence})

    def flush(self) -> None:
        """Nothing was held back."""


class Uncounted:
    """Stands for `relay.observability.metrics.Metrics`, which nobody reads here."""

    def __init__(self) -> None:
        self.sink = self.present = self.watch = self.queue = lambda *_, **__: None


STAND_INS: dict[str, object] = {
    "relay.app.outbox.LogSink": Silence,
    "relay.app.outbox.Metrics": Uncounted,
    "relay.postgres.store.PAGE": SCAN,
    "relay.postgres.store.MAX_FINDINGS": 8,
    "relay.postgres.store.LOOK": WALK,
    "relay.claims.lanes.PAGE": WALK,
    "relay.claims.stream.WALK": WALK,
    "relay.claims.cursor.MAX_LATE": 2,
    "relay.claims.suspects.MAX_GROUP": 6,
}
"""By what they stand for."""


class App(Relay):
    """The relay, with what stands at its borders taken from the world."""

    def __init__(self, name: str, url: str, sessions: list[FakeSession], clock: Time) -> None:
        self._clock = clock
        super().__init__(SETTINGS.model_copy(update={"name": name, "amqp_url": SecretStr(url)}))
        self.store = cast("Any", self._store)
        self.store._claims, self.store._settles, self.store._control = self.store._sessions = sessions
        self.store._claiming._session, self.store._settling._session, self.store._settling._control = self.store._sessions
        self.intake = cast("Any", self._intake)
        self.intake._clock = self.intake.suspects._clock = self.intake.limits.clock = clock.monotonic
        self.intake.backlog._most = self.intake.lanes.backlog._most = self.intake.lanes.keys._most = 2 * SCAN
        self.intake.suspects.backlog._most = SUSPECTS
        self.intake.streams._share._clock = clock.monotonic

    async def serve(self) -> int:
        """Run as the command does, but for its signals and HTTP."""
        async with AsyncExitStack() as stack:
            if await self._enter():
                await self._work(stack)
                await self._leave()
        return 0

    def signal(self) -> None:
        """Hear a SIGTERM."""
        self._signalled("SIGTERM")

    @property
    def kept(self) -> int:
        """What it leaves under its locks: written, not confirmed when the drain ended, or never settled."""
        return self._window.messages + (self._engine.kept if self._engine else 0)

    def _make_publisher(self) -> RabbitPublisher:
        url = self._settings.amqp_url.get_secret_value()
        clock = self._clock.monotonic
        return RabbitPublisher(
            urls=[url],
            name=self._settings.name,
            encoder=self._encoders.make,
            checks=self._gate,
            emit=self._emit,
            open_channels=3,
            clock=clock,
        )

    def _make_listener(self) -> Listener:
        return Listener(
            conninfo="",
            schema="public",
            name=self._settings.name,
            mode=lambda: self._policy.notify,
            on_hint=self._hint,
            emit=self._emit,
            clock=self._clock.monotonic,
        )

    def _abandon(self) -> None:
        """Its time to stop is over: the world looks for that itself."""


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
        return self._app.kept

    @property
    def unheard(self) -> bool:
        """It may leave more, and says so."""
        return bool(self._app.store.left_locked)

    def stop(self) -> None:
        """SIGTERM: the first one drains, the second one cuts."""
        self.stops += 1
        self.stopping_at = self.stopping_at or self._loop.time()
        self._loop.call_soon(self._app.signal, context=self.process.context)

    def kill(self) -> None:
        """SIGKILL."""
        self.client.dead = True
        self._loop.kill(self.process)

    async def _main(self) -> None:
        try:
            await self._app.serve()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the world tells of it
            self.failure = error

    @property
    def longest_stop(self) -> float:
        """Seconds after which a relay that was told to stop has left, whatever happens."""
        return DRAIN + GRACE
