"""What every process that runs for long has: a loop, secrets that are read anew, pages for probes and scrapes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

from relay import events
from relay.config.settings import Settings
from relay.net.secret_url import Secret
from relay.observability.http_server import HttpServer
from relay.observability.logs import configure
from relay.observability.metrics import Metrics


def run_on_loop(settings: Settings, serve: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Log as the settings say, and run to the end on the quickest loop there is; return the exit code."""
    configure(level=settings.log_level, log_format=settings.log_format)
    if sys.platform == "win32":
        return asyncio.run(serve())
    import uvloop  # noqa: PLC0415 - not on Windows

    return uvloop.run(serve())


def secret_of(settings: Settings, name: str, emit: events.Sink) -> Secret:
    """A URL of the settings; what becomes of its file is told."""
    return settings.secret(
        name,
        changed=lambda: emit(events.SecretChanged(name)),
        kept=lambda sentence: emit(events.SecretKept(name, sentence)),
    )


async def serve_http(
    stack: AsyncExitStack,
    settings: Settings,
    *,
    metrics: Metrics,
    reasons: Callable[[], Mapping[str, str]],
    listen: Callable[[], str],
    alive: Callable[[], bool],
    notes: Callable[[], Mapping[str, str]],
    emit: events.Sink,
) -> None:
    """Serve /metrics, /livez and /readyz until the stack unwinds, if the settings name a port; the arguments are those of `HttpServer`."""
    if settings.http_port is None:
        return
    server = HttpServer(
        host=settings.http_host, port=settings.http_port, metrics=metrics.page, reasons=reasons, listen=listen, alive=alive, notes=notes
    )
    port = await server.start()
    stack.push_async_callback(server.aclose)
    emit(events.HttpUp(settings.http_host, port))
