"""Runs the relay of `relay run` in a test's process, without its signal handlers and its HTTP server."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

import psycopg
from pydantic import SecretStr

from relay import events
from relay.app.outbox import compose
from relay.config.settings import Settings
from relay.testing.statements import statement

DRAIN_SECONDS: Final = 1.0
"""Seconds that the end of a test waits for confirms."""
LOOK_SECONDS: Final = 0.25
"""Seconds between two checks if the relay emits no event."""
NAME: Final = "relay.testing"
_LOG: Final = logging.getLogger(NAME)


class Run:
    """One relay from its start to its end; used on one event loop.

    Args:
        url: URL of the test database.
        schema: the schema of the queue's tables.
        amqp_url: URL of the broker.
    """

    def __init__(self, *, url: str, schema: str, amqp_url: str) -> None:
        self._settings = Settings(
            database_url=SecretStr(url),
            amqp_url=SecretStr(amqp_url),
            name=NAME,
            http_port=None,
            drain_seconds=DRAIN_SECONDS,
        ).model_copy(update={"schema_name": schema})
        self._changed = asyncio.Event()
        self._started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._troubles: list[str] = []
        # `abandon` does nothing, because the test has time limits of its own.
        self._relay = compose(self._settings, self._on_event, lambda _: None)
        self._task: asyncio.Task[None] | None = None
        self._database: psycopg.AsyncConnection[Any] | None = None
        self.relay_id = 0
        """The relay's id, as in the column `locked_by`."""

    async def start(self, seconds: float) -> None:
        """Start the relay; return when it claims messages and is connected to the broker, within this many seconds.

        Raises:
            AssertionError: the relay is not ready in time.
        """
        self._database = await psycopg.AsyncConnection.connect(self._settings.conninfo, autocommit=True)
        self._task = asyncio.create_task(self._relay.run(), name=NAME)
        waits = (self._started, asyncio.ensure_future(self._relay.publisher.wait_ready()))
        try:
            async with asyncio.timeout(seconds):
                for wait in waits:
                    await asyncio.wait({wait, self._task}, return_when=asyncio.FIRST_COMPLETED)
                    self._alive()
        except TimeoutError:
            waits[1].cancel()
            raise AssertionError(f"The relay did not start within {seconds:g} seconds.{self._trouble()}") from None
        self.relay_id = self._started.result()

    async def stop(self) -> None:
        """Drain and end, as on SIGTERM; messages that are not confirmed in time stay locked.

        Raises:
            Exception: the error that ended the relay, if it ended by itself.
        """
        task = self._task
        if task is not None:
            if not task.done():
                self._relay.shutdown.signalled("test")
            await self._end(task)

    async def kill(self) -> None:
        """End at once, as on SIGKILL; messages in flight stay locked."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._end(self._task)

    async def forget(self) -> None:
        """Reconnect at once, and forget what was learned on the last connection; does nothing while messages are in flight."""
        if self._task is not None and not self._in_flight:
            await self._relay.publisher.aclose()
            await self._relay.publisher.start()

    async def look(self) -> None:
        """Check at once for all messages that may be due."""
        if self._task is not None:
            self._look()

    async def drained(self, seconds: float) -> None:
        """Return when no message is due or in flight.

        Raises:
            AssertionError: draining takes longer than `seconds`, or the relay has ended.
        """
        left = 0
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._changed.clear()
                    self._alive()
                    left = await self._due()
                    if not (left or self._in_flight):
                        return
                    self._look()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(
                f"After {seconds:g} seconds messages are still due or in flight: {max(left, self._in_flight)}.{self._trouble()}"
            ) from None

    def _look(self) -> None:
        self._relay.intake.hint_waiting()
        self._relay.intake.hint()
        self._relay.base.nudged.set()

    @property
    def _in_flight(self) -> int:
        """The number of messages that, as far as the relay knows, are claimed and not settled."""
        return self._relay.base.window.messages

    async def _end(self, task: asyncio.Task[None]) -> None:
        self._task = None
        try:
            await task
        finally:
            if self._database is not None:
                await self._database.close()

    async def _due(self) -> int:
        assert self._database is not None
        await self._database.execute(statement("carry_out", self._settings.schema_name))
        cursor = await self._database.execute(statement("count_due", self._settings.schema_name))
        [(left,)] = await cursor.fetchall()
        return int(left)

    def _alive(self) -> None:
        if self._task is None:
            raise AssertionError("The relay was killed: start another one with outbox.relay().")
        if self._task.done():
            self._task.result()
            raise AssertionError(f"The relay has ended.{self._trouble()}")

    def _on_event(self, event: events.Event) -> None:
        self._changed.set()
        if isinstance(event, events.Started) and not self._started.done():
            self._started.set_result(event.relay_id)
        if event.level in {"warning", "error"}:
            _LOG.warning("%s", event)
            self._troubles.append(str(event))

    def _trouble(self) -> str:
        return f" Last heard of it: {self._troubles[-1]}" if self._troubles else ""
