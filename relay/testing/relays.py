"""Starts and ends a relay and its in-memory broker for a test."""

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
"""Seconds that `drained` waits at most; draining should take milliseconds."""
_KILLED: Final = "The relay was killed: start another one with outbox.relay()."


class Running(Broker):
    """An in-memory broker, and the relay that sends to it.

    Args:
        database: the test's database.
        waiting: lists the waiting messages, for error messages.
        start_seconds: seconds within which the relay must be ready.
    """

    def __init__(self, database: OutboxDatabase, waiting: Callable[[], Messages], start_seconds: float) -> None:
        super().__init__()
        self._start_seconds = start_seconds
        self._database = database
        self._waiting = waiting
        self._run: Run | None = None

    @property
    def relay_id(self) -> int:
        """The relay's id, as in the column `locked_by`; 0 after the relay was killed."""
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
        """Let the relay drain, and end the relay and the broker."""
        run, self._run = self._run, None
        if self._server.blocked:
            # A blocked broker would not read the relay's close, and would send no more confirms.
            self.down()
        try:
            if run is not None:
                self._loop.run(run.stop())
        finally:
            super().__exit__(None, None, None)

    def kill_relay(self) -> None:
        """End the relay as SIGKILL does. Messages in flight stay locked until another relay or `outbox.clock` frees them."""
        run, self._run = self._run, None
        if run is not None:
            self._loop.run(run.kill())

    def up(self) -> None:
        """Accept connections again; the relay reconnects at once."""
        super().up()
        self.forget()
        self.look()

    def forget(self) -> None:
        """Make the relay forget what it has learned about the broker, such as a missing exchange."""
        if self._run is not None:
            self._loop.run(self._run.forget())

    def look(self) -> None:
        """Make the relay check every message that may be due."""
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
    """The broker for a test without an event loop."""

    def drained(self, seconds: float = SECONDS) -> None:
        """Return when no message is due or in flight any more.

        Raises:
            AssertionError: draining takes longer than `seconds`; the error names the waiting messages and the relay's problems.
        """
        __tracebackhide__ = True
        self._loop.run(self._drained(seconds))


class AsyncRunningRelay(Running):
    """The broker for a test on an event loop."""

    async def drained(self, seconds: float = SECONDS) -> None:
        """Return when no message is due or in flight any more.

        Raises:
            AssertionError: draining takes longer than `seconds`; the error names the waiting messages and the relay's problems.
        """
        __tracebackhide__ = True
        await self._loop.arun(self._drained(seconds))


R = TypeVar("R", bound=Running)


class RelayInTest:
    """Starts a relay with `with` or `async with`; in both cases the relay runs in a thread of its own.

    Args:
        database: the test's database.
        waiting: lists the waiting messages, for error messages.
        running: the list to which the relay is added while it runs.
        start_seconds: seconds within which the relay must be ready.
    """

    def __init__(self, database: OutboxDatabase, *, waiting: Callable[[], Messages], running: list[Running], start_seconds: float) -> None:
        self._database = database
        self._start_seconds = start_seconds
        self._waiting = waiting
        self._running = running
        self._made: Running | None = None

    def __enter__(self) -> RunningRelay:
        """Start the relay; return when it claims messages and is connected to the broker.

        Raises:
            AssertionError: the relay is not ready in time; the error says why.
        """
        return self._begin(RunningRelay(self._database, self._waiting, self._start_seconds))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Let the relay drain, and end it."""
        self._end()

    async def __aenter__(self) -> AsyncRunningRelay:
        """The same as for `with`."""
        return self._begin(AsyncRunningRelay(self._database, self._waiting, self._start_seconds))

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """The same as for `with`."""
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
