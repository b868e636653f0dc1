"""Composes the receiver from settings and runs it: what `relay receive` is."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack

from relay import __version__, events
from relay.aio import pause, unless
from relay.amqp.consuming.consumer_connection import ConsumerConnection
from relay.app.process import run_on_loop, secret_of, serve_http
from relay.codec.option_rules import SHORT_LIMIT
from relay.config.settings import Settings
from relay.errors import SettingsError, StoreError
from relay.events.inbox import QueueOpened, QueueRefused, Receiving
from relay.inbox.receiver import Receiver
from relay.net.secret_url import DatabaseTarget, Secret
from relay.observability.health import Health
from relay.observability.logs import LogSink
from relay.observability.metrics import Metrics
from relay.postgres.inbox import Inbox
from relay.postgres.schema.sql_files import migrations

BATCH_BYTES = 8 << 20
"""About how many bytes of payload one write takes."""


def run(settings: Settings) -> int:
    """Receive until SIGTERM or SIGINT; return the exit code, 0 when it left in order.

    Raises:
        SettingsError: no queue is named, or one that cannot be, or a stream.
    """
    if not settings.receive_queues:
        raise SettingsError("RELAY_RECEIVE_QUEUES names no queue: write the queues to take messages from, such as orders,billing.")
    if any(len(queue.encode()) > SHORT_LIMIT for queue in settings.receive_queues):
        raise SettingsError(f"RELAY_RECEIVE_QUEUES names a queue of more than {SHORT_LIMIT} bytes, which no broker has: correct it.")
    return run_on_loop(settings, lambda: Receive(settings).serve())


class Receive:
    """One receiving process: its components, their life cycle, and the signals that end it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._queues = tuple(dict.fromkeys(settings.receive_queues or ()))
        self._log, self._metrics, self._health = LogSink(), Metrics(), Health()
        self._metrics.present(name=settings.name, schema=settings.schema_name, version=__version__)
        self._emit = events.fan_out(self._log, self._metrics.sink, self._health.sink, self._note_queue)
        self._asked: set[str] = set()
        """Queues about which the broker has said something."""
        self._wrong: SettingsError | None = None
        self._stop = asyncio.Event()
        self._inbox = Inbox(
            conninfo=DatabaseTarget(self._secret("database_url"), events.warn_once(self._emit)),
            schema=settings.schema_name,
            name=settings.name,
            prepare=settings.prepare,
        )
        self._source = self._make_source()
        self._receiver = Receiver(
            source=self._source,
            inbox=self._inbox,
            batch_size=settings.batch_size,
            batch_bytes=BATCH_BYTES,
            limit=settings.inbox_limit,
            emit=self._emit,
        )

    async def serve(self) -> int:
        """Wait for the database, receive until a signal, finish what is being written, leave.

        Raises:
            SettingsError: a queue is a stream.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, signal.Signals(number).name)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._inbox.aclose)
            await self._serve_http(stack)
            if await self._enter():
                await self._source.start()
                stack.push_async_callback(self._source.aclose)
                await self._receiver.run()
        self._emit(events.Stopped(0))
        self._log.flush()
        if self._wrong:
            raise self._wrong
        return 0

    async def _enter(self) -> bool:
        """See that there is an inbox as soon as the database is there; False if a signal came first."""
        attempt = 0
        while not self._stop.is_set():
            try:
                await self._inbox.check(migrations()[-1].version)
            except StoreError as error:
                attempt += 1
                self._emit(events.DatabaseDown(str(error), attempt))
                await unless(self._stop, asyncio.sleep(pause(attempt, first=0.4)))
            else:
                self._emit(events.DatabaseUp())
                self._emit(Receiving(self._settings.schema_name, self._queues))
                return True
        return False

    def _note_queue(self, event: events.Event) -> None:
        """Leave where a queue is a stream from the beginning; one that becomes a stream later keeps the others from nothing."""
        if isinstance(event, QueueRefused) and event.is_stream and event.queue not in self._asked:
            self._wrong = SettingsError(event.error)
            self._receiver.stop()
        if isinstance(event, QueueRefused | QueueOpened):
            self._asked.add(event.queue)

    def _make_source(self) -> ConsumerConnection:
        return ConsumerConnection(
            urls=[self._secret("amqp_url")],
            name=self._settings.name,
            queues=self._queues,
            prefetch=self._settings.receive_prefetch,
            most_bytes=self._settings.receive_bytes,
            max_body_bytes=lambda: self._inbox.max_body_bytes,
            emit=self._emit,
        )

    async def _serve_http(self, stack: AsyncExitStack) -> None:
        await serve_http(
            stack,
            self._settings,
            metrics=self._metrics,
            reasons=lambda: {**self._health.reasons, **self._source.reasons, **self._receiver.reasons},
            listen=lambda: "not used",
            alive=lambda: True,
            notes=lambda: self._health.notes,
            emit=self._emit,
        )

    def _secret(self, name: str) -> Secret:
        return secret_of(self._settings, name, self._emit)

    def _signalled(self, name: str) -> None:
        """The first signal ends the loop after what is being written; the second does not wait for the database any more."""
        if self._stop.is_set():
            self._abandon()
        self._emit(events.Stopping(name, "drain", 0))
        self._stop.set()
        self._receiver.stop()
        asyncio.get_running_loop().call_later(self._settings.drain_seconds, self._abandon)

    def _abandon(self) -> None:
        """End although a server hangs in the middle of an answer: what is not acknowledged comes again."""
        self._emit(events.Abandoned(0))
        self._log.flush()
        os._exit(1)
