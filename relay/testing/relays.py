"""A relay and its in-memory broker, which a test starts and ends."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, TypeVar

from relay.testing.database import OutboxDatabase
from relay.testing.fake_broker.broker import Broker
from relay.testing.messages import Messages
from relay.testing.running import Run

START_SECONDS: Final = 30.0
SECONDS: Final = 10.0
"""How long `drained` waits for what should take milliseconds."""
_KILLED: Final = "The relay was killed: start another one with outbox.relay()."


class Running(Broker):
    """A broker in memory, and the relay that sends to it.

    Args:
        database: of the test.
        waiting: lists the waiting messages, for error messages.
        start_seconds: within which the relay must be ready.
    """

    def __init__(self, database: OutboxDatabase, waiting: Callable[[], Messages], start_seconds: float) -> None:
        super().__init__()
        self._start_seconds = start_seconds
        self._database = database
        self._waiting = waiting
        self._run: Run | None = None

    @property
    def relay_id(self) -> int:
        """The relay's id, as in the column `locked_by`; 0 once it is killed."""
        return self._run.relay_id if self._run else 0

    def start(self) -> None:
        """Start the broker and the relay."""
        super().__enter__()

        async def start() -> Run:
            run = Run(url=self._database.url, schema=self._database.schema, amqp_url=self.url)
            try:
                await run.start(self._start_seconds)
            except BaseException:
                await run.kill()
                raise
            return run

        try:
            self._run = self._loop.run(start())
        except BaseException:
            super().__exit__(None, None, None)
            raise

    def stop(self) -> None:
        """Drain, and end the relay and the broker."""
        run, self._run = self._run, None
        if self._server.blocked:
            # A blocked broker would not read the relay's close, and confirms nothing any more.
            self.down()
        try:
            if run is not None:
                self._loop.run(run.stop())
        finally:
            super().__exit__(None, None, None)

    def kill_relay(self) -> None:
        """End the relay as SIGKILL does: messages in flight keep their locks, until another relay or `outbox.clock` frees them."""
        run, self._run = self._run, None
        if run is not None:
            self._loop.run(run.kill())

    def up(self) -> None:
        """Accept connections again; the relay reconnects at once."""
        super().up()
        self.forget()
        self.look()

    def forget(self) -> None:
        """Clear the relay's short-lived memory of the broker, such as a missing exchange."""
        if self._run is not None:
            self._loop.run(self._run.forget())

    def look(self) -> None:
        """Have the relay check every message that may be due."""
        if self._run is not None:
            self._loop.run(self._run.look())

    async def _drained(self, seconds: float) -> None:
        if self._run is None:
            raise AssertionError(_KILLED)
        try:
            await self._run.drained(seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._waiting().listed()}") from None


class RunningRelay(Running):
    """The broker, in a test that has no event loop."""

    def drained(self, seconds: float = SECONDS) -> None:
        """Return when no message is due or in flight any more.

        Raises:
            AssertionError: this takes longer than `seconds`; the error names the waiting messages and the relay's troubles.
        """
        __tracebackhide__ = True
        self._loop.run(self._drained(seconds))


class AsyncRunningRelay(Running):
    """The broker, in a test on an event loop."""

    async def drained(self, seconds: float = SECONDS) -> None:
        """Return when no message is due or in flight any more.

        Raises:
            AssertionError: this takes longer than `seconds`; the error names the waiting messages and the relay's troubles.
        """
        __tracebackhide__ = True
        await self._loop.arun(self._drained(seconds))


R = TypeVar("R", bound=Running)


class RelayInTest:
    """Starts a relay with `with` or `async with`; it runs in a thread of its own either way.

    Args:
        database: of the test.
        waiting: lists the waiting messages, for error messages.
        running: the list that has the relay as long as it runs.
        start_seconds: within which the relay must be ready.
    """

    def __init__(self, database: OutboxDatabase, *, waiting: Callable[[], Messages], running: list[Running], start_seconds: float) -> None:
        self._database = database
        self._start_seconds = start_seconds
        self._waiting = waiting
        self._running = running
        self._made: Running | None = None

    def __enter__(self) -> RunningRelay:
        """Start; returns when the relay claims and reaches the broker.

        Raises:
            AssertionError: the relay does not get that far; the error says why.
        """
        return self._begin(RunningRelay(self._database, self._waiting, self._start_seconds))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Drain and end."""
        self._end()

    async def __aenter__(self) -> AsyncRunningRelay:
        """As `with`."""
        return self._begin(AsyncRunningRelay(self._database, self._waiting, self._start_seconds))

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """As `with`."""
        self._end()

    def _begin(self, made: R) -> R:
        made.start()
        self._made = made
        self._running.append(made)
        return made

    def _end(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            self._running.remove(made)
            made.stop()
