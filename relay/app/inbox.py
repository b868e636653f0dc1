"""Composes the receiver from settings and runs it, for `relay receive`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from relay import __version__, events
from relay.amqp.consuming.consumer_connection import ConsumerConnection
from relay.app.process import abandon, http_of, log_of, reach, run_on_loop, secret_of, serve
from relay.app.shutdown import Shutdown
from relay.codec.option_rules import SHORT_LIMIT
from relay.config.settings import Settings
from relay.errors import SettingsError
from relay.events.inbox import QueueOpened, QueueRefused, Receiving
from relay.inbox.receiver import Receiver
from relay.net.secret_url import DatabaseTarget
from relay.observability.health import Health
from relay.observability.http_server import HttpServer
from relay.observability.metrics import Metrics
from relay.postgres.inbox import Inbox
from relay.postgres.schema.sql_files import migrations

BATCH_BYTES = 8 << 20
"""About how many bytes of payload one write contains."""


def run(settings: Settings) -> int:
    """Receive until SIGTERM or SIGINT; return the exit code, which is 0 after an orderly shutdown.

    Raises:
        SettingsError: no queue is named, a queue's name is too long, or a queue is a stream.
    """
    if not settings.receive_queues:
        raise SettingsError("RELAY_RECEIVE_QUEUES names no queue: write the queues to take messages from, such as orders,billing.")
    if any(len(queue.encode()) > SHORT_LIMIT for queue in settings.receive_queues):
        raise SettingsError(f"RELAY_RECEIVE_QUEUES names a queue of more than {SHORT_LIMIT} bytes, which no broker has: correct it.")
    log = log_of(settings)
    receive = compose(settings, log, partial(abandon, log))
    run_on_loop(serve(receive.run, shutdown=receive.shutdown, http=receive.http, log=log, emit=receive.emit))
    if receive.streams.error:
        raise receive.streams.error
    return 0


class StreamCheck:
    """Notes whether a queue is a stream at the start. A queue that becomes a stream later must not stop the other queues."""

    def __init__(self) -> None:
        self._asked: set[str] = set()
        """Queues for which the broker has answered."""
        self.error: SettingsError | None = None
        self.found = asyncio.Event()

    def sink(self, event: events.Event) -> None:
        """Learn from an event; see `relay.events.Sink`."""
        if isinstance(event, QueueRefused) and event.is_stream and event.queue not in self._asked:
            self.error = SettingsError(event.error)
            self.found.set()
        if isinstance(event, QueueRefused | QueueOpened):
            self._asked.add(event.queue)


@dataclass(frozen=True, kw_only=True, eq=False)
class Receive:
    """One receiving process: moves messages from queues into an inbox until its shutdown."""

    inbox: Inbox
    source: ConsumerConnection
    receiver: Receiver
    streams: StreamCheck
    receiving: Receiving
    stop: asyncio.Event
    shutdown: Shutdown
    http: HttpServer | None
    emit: events.Sink

    async def run(self) -> None:
        """Wait for the database, then receive until the shutdown or until a queue turns out to be a stream."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.inbox.aclose)
            if await reach(self._enter, stop=self.stop, emit=self.emit):
                await self.source.start()
                stack.push_async_callback(self.source.aclose)
                await self._receive()
        self.emit(events.Stopped(0))

    async def _enter(self) -> bool:
        """Check that the schema holds an inbox."""
        await self.inbox.check(migrations()[-1].version)
        self.emit(events.DatabaseUp())
        self.emit(self.receiving)
        return True

    async def _receive(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            leaving = tasks.create_task(self._leave_for_a_stream())
            await self.receiver.run()
            leaving.cancel()

    async def _leave_for_a_stream(self) -> None:
        await self.streams.found.wait()
        self.receiver.stop()


def compose(settings: Settings, sink: events.Sink, abandon: Callable[[int], None]) -> Receive:
    """A receiver that has not connected yet; `sink` gets its events, `abandon` is passed to `Shutdown`."""
    queues = tuple(dict.fromkeys(settings.receive_queues or ()))
    peers = ("database", "broker")
    metrics, health, streams, stop = Metrics(*peers), Health(*peers), StreamCheck(), asyncio.Event()
    metrics.present(name=settings.name, schema=settings.schema_name, version=__version__)
    emit = events.fan_out(sink, metrics.sink, health.sink, streams.sink)
    inbox = _inbox(settings, emit)
    source = _source(settings, queues, inbox, emit)
    receiver = Receiver(
        source=source,
        inbox=inbox,
        batch_size=settings.batch_size,
        batch_bytes=BATCH_BYTES,
        limit=settings.inbox_limit,
        emit=emit,
    )
    return Receive(
        inbox=inbox,
        source=source,
        receiver=receiver,
        streams=streams,
        receiving=Receiving(settings.schema_name, queues),
        stop=stop,
        shutdown=_shutdown(settings, stop, receiver, abandon, emit),
        http=_http(settings, metrics, health, source, receiver),
        emit=emit,
    )


def _inbox(settings: Settings, emit: events.Sink) -> Inbox:
    return Inbox(
        conninfo=DatabaseTarget(secret_of(settings, "database_url", emit), events.warn_once(emit)),
        schema=settings.schema_name,
        name=settings.name,
        prepare=settings.prepare,
    )


def _source(settings: Settings, queues: tuple[str, ...], inbox: Inbox, emit: events.Sink) -> ConsumerConnection:
    return ConsumerConnection(
        urls=[secret_of(settings, "amqp_url", emit)],
        name=settings.name,
        queues=queues,
        prefetch=settings.receive_prefetch,
        most_bytes=settings.receive_bytes,
        max_body_bytes=lambda: inbox.max_body_bytes,
        emit=emit,
    )


def _shutdown(settings: Settings, stop: asyncio.Event, receiver: Receiver, abandon: Callable[[int], None], emit: events.Sink) -> Shutdown:
    """The shutdown. After the second signal the receiver does not wait for the database: unacknowledged messages are delivered again."""
    return Shutdown(
        stop=stop,
        drain=receiver.stop,
        cut=None,
        seconds=lambda: settings.drain_seconds,
        in_flight=lambda: 0,
        abandon=abandon,
        emit=emit,
    )


def _http(settings: Settings, metrics: Metrics, health: Health, source: ConsumerConnection, receiver: Receiver) -> HttpServer | None:
    return http_of(
        settings,
        metrics=metrics,
        reasons=lambda: {**health.reasons, **source.reasons, **receiver.reasons},
        listen=lambda: "not used",
        alive=lambda: True,
        notes=lambda: {**health.notes, **receiver.notes},
    )
