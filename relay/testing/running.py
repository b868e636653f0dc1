"""The relay of `relay run` in a test's process, without its signal handlers and its HTTP server."""

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
"""How long the end of a test waits for confirms."""
LOOK_SECONDS: Final = 0.25
"""Seconds between two checks if no event of the relay comes."""
NAME: Final = "relay.testing"
_LOG: Final = logging.getLogger(NAME)


class Run:
    """One relay from its start to its end; used on one event loop.

    Args:
        url: of the test database.
        schema: of the queue.
        amqp_url: of the broker.
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
        # The test has time limits of its own, so `abandon` does nothing here.
        self._relay = compose(self._settings, self._on_event, lambda _: None)
        self._task: asyncio.Task[None] | None = None
        self._database: psycopg.AsyncConnection[Any] | None = None
        self.relay_id = 0
        """The relay's id, as in the column `locked_by`."""

    async def start(self, seconds: float) -> None:
        """Return when the relay claims and is connected to the broker, within this many seconds.

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
        """Drain as on SIGTERM, and end; messages not confirmed in time keep their locks.

        Raises:
            Exception: the error that ended the relay, if it ended by itself.
        """
        task = self._task
        if task is not None:
            if not task.done():
                self._relay.shutdown.signalled("test")
            await self._end(task)

    async def kill(self) -> None:
        """End at once, as on SIGKILL: messages in flight keep their locks."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._end(self._task)

    async def forget(self) -> None:
        """Reconnect at once and forget what the last connection taught, unless messages are in flight on it."""
        if self._task is not None and not self._in_flight:
            await self._relay.publisher.aclose()
            await self._relay.publisher.start()

    async def look(self) -> None:
        """Check at once for everything that may be due."""
        if self._task is not None:
            self._look()

    async def drained(self, seconds: float) -> None:
        """Return when nothing is due and nothing is in flight.

        Raises:
            AssertionError: this takes longer than `seconds`, or the relay has ended.
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
        """Messages claimed and not settled, as far as the relay knows."""
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
