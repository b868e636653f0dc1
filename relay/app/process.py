"""Parts of every long-running process: log, event loop, signals, HTTP pages for probes and scrapes, and a wait for the database."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any, NoReturn, TypeVar

from relay import events
from relay.aio import pause, unless
from relay.app.shutdown import Shutdown
from relay.config.settings import Settings
from relay.errors import StoreError
from relay.net.secret_url import Secret
from relay.observability.http_server import HttpServer
from relay.observability.logs import LogSink, configure
from relay.observability.metrics import Metrics

T = TypeVar("T")


def log_of(settings: Settings) -> LogSink:
    """Configure logging by the settings, and return the sink of log lines."""
    configure(level=settings.log_level, log_format=settings.log_format)
    return LogSink()


def run_on_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on the fastest available event loop."""
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop  # noqa: PLC0415 - not on Windows

    return uvloop.run(main)


async def serve(
    run: Callable[[], Awaitable[None]], *, shutdown: Shutdown, http: HttpServer | None, log: LogSink, emit: events.Sink
) -> None:
    """Run `run` to its end, and serve the HTTP pages if `http` is given; SIGTERM and SIGINT begin the shutdown."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, shutdown.signalled, signal.Signals(number).name)
    async with AsyncExitStack() as stack:
        if http is not None:
            port = await http.start()
            stack.push_async_callback(http.aclose)
            emit(events.HttpUp(http.host, port))
        await run()
    log.flush()


def abandon(log: LogSink, in_flight: int) -> NoReturn:
    """End the process even if a server hangs during an answer, so that no operator has to kill it. Messages in flight are not lost."""
    log(events.Abandoned(in_flight))
    log.flush()
    os._exit(1)


async def reach(look: Callable[[], Coroutine[Any, Any, bool]], *, stop: asyncio.Event, emit: events.Sink) -> bool:
    """Return the result of `look` once the database answers. If the process must stop first, cancel `look` and return False."""
    attempt = 0
    while not stop.is_set():
        try:
            return bool(await unless(stop, look()))
        except StoreError as error:
            attempt += 1
            emit(events.DatabaseDown(str(error), attempt))
            await unless(stop, asyncio.sleep(pause(attempt, first=0.4)))
    return False


def secret_of(settings: Settings, name: str, emit: events.Sink) -> Secret:
    """A secret URL from the settings. If the URL is in a file, changes of that file are logged."""
    return settings.secret(
        name,
        changed=lambda: emit(events.SecretChanged(name)),
        kept=lambda sentence: emit(events.SecretKept(name, sentence)),
    )


def http_of(
    settings: Settings,
    *,
    metrics: Metrics,
    reasons: Callable[[], Mapping[str, str]],
    listen: Callable[[], str],
    alive: Callable[[], bool],
    notes: Callable[[], Mapping[str, str]],
) -> HttpServer | None:
    """The server of /metrics, /livez and /readyz, if the settings name a port; the arguments are those of `HttpServer`."""
    if settings.http_port is None:
        return None
    return HttpServer(
        host=settings.http_host, port=settings.http_port, metrics=metrics.page, reasons=reasons, listen=listen, alive=alive, notes=notes
    )
