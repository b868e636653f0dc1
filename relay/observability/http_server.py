"""The HTTP server for /metrics, /livez and /readyz. It allows only GET and reads no request body."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from relay.errors import SettingsError
from relay.net.local_hosts import LocalHostsOnly
from relay.net.transport_security import is_here
from relay.observability.http_acceptor import Acceptor
from relay.observability.metrics_pages import Page, Pages

MAX_CONNECTION_SECONDS = 10.0
"""Seconds after which a connection is closed, so that a slow client cannot occupy it."""
AT_ONCE = 400
"""Most connections at the same time. A further connection closes the oldest, so that a client with many connections cannot block a
probe."""
_NUMBERS = count()
"""Numbers connections in the order of arrival, because the loop's clock is too coarse to order them."""
_HEADERS = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Connection", "close")]
"""A connection has one request, so that the number of connections bounds that of requests."""
_HEAD_BYTES, _HEAD_LINES = 8 << 10, 64
"""How long a request may be. Each header takes time: 3,900 of them, in 16 KiB, took 7 ms."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_BACKLOG = 2048
"""Connections that may wait to be accepted; the next client retries only after a second."""
_FOREIGN = "This listens on loopback: ask for localhost or an address, or set RELAY_HTTP_HOST to the name.\n"
"""The answer to a request by another name."""


class HttpServer:
    """Serves on the relay's event loop, without signal handlers and without access logs.

    Args:
        host: name or address to listen on.
        port: port to listen on; 0 picks a free port.
        metrics: returns page and content type for an Accept header; it must not block the loop.
        reasons: returns why the relay is not ready, by peer; empty means ready.
        listen: returns the state of LISTEN, for information.
        notes: returns conditions that slow messages down but do not stop them, by subject.
        alive: returns False once the relay is about to end; an unreachable peer has no influence.

    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        metrics: Callable[[str], Awaitable[Page]],
        reasons: Callable[[], Mapping[str, str]],
        listen: Callable[[], str],
        alive: Callable[[], bool],
        notes: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.host = host
        self._port = port
        self._pages = Pages(metrics)
        self._reasons = reasons
        self._listen = listen
        self._notes = notes
        self._alive = alive
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen, and return the port. Starting again changes nothing.

        Raises:
            SettingsError: the server cannot listen on this host and port.
        """
        if self._task is None:
            bound = await self._bind()
            self._port = bound.getsockname()[1]
            self._server = _Server(_config(self._app(bound)))
            self._task = asyncio.create_task(self._server.serve(sockets=[bound]), name="http")
            await self._server.up.wait()
            if self._task.done():
                await self._task
        return self._port

    async def aclose(self) -> None:
        """Finish open requests within a second, then close the server; may be called at any time, and repeatedly."""
        task, self._task = self._task, None
        if task is not None and self._server is not None:
            self._server.should_exit = True
            await task
            self._pages.close()

    async def _bind(self) -> socket.socket:
        bound = None
        try:
            [(family, _, _, _, address), *_] = await asyncio.get_running_loop().getaddrinfo(self.host, self._port, type=socket.SOCK_STREAM)
            bound = socket.socket(family, socket.SOCK_STREAM)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(_BACKLOG)
            bound.settimeout(0)
        except OSError as error:
            if bound is not None:
                bound.close()
            where = f"{self.host} port {self._port}"
            raise SettingsError(f"Cannot listen on {where} ({error.strerror}): change RELAY_HTTP_HOST or RELAY_HTTP_PORT.") from error
        return bound

    def _app(self, bound: socket.socket) -> Starlette:
        loopback = is_here(bound.getsockname()[0])
        return Starlette(
            middleware=[Middleware(LocalHostsOnly, name=self.host, sentence=_FOREIGN)] if loopback else [],
            routes=[
                Route("/metrics", self._answer_metrics, methods=["GET"]),
                Route("/livez", self._answer_livez, methods=["GET"]),
                Route("/readyz", self._answer_readyz, methods=["GET"]),
            ],
        )

    async def _answer_metrics(self, request: Request) -> Response:
        page, content_type = await self._pages.page(request.headers.get("accept", ""))
        return Response(page, media_type=content_type)

    async def _answer_livez(self, _: Request) -> Response:
        alive = self._alive()
        return _json(200 if alive else 503, {"status": "alive" if alive else "dead"})

    async def _answer_readyz(self, _: Request) -> Response:
        reasons, notes = dict(self._reasons()), dict(self._notes())
        state = {"status": "not ready" if reasons else "ready", "reasons": reasons, "listen": self._listen()}
        return _json(503 if reasons else 200, {**state, "notes": notes} if notes else state)


def _json(status: int, value: object) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")


def _config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=_HEADERS,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to the relay, and sets `up` when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve. If the server fails to start, `up` is also set, so that no waiter hangs."""
        try:
            await super().serve(sockets=sockets)
        finally:
            self.up.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections by `Acceptor`, and set `up`."""
        self.servers = []
        self._accepting = [asyncio.create_task(Acceptor(each, self._served).run(), name="http-accept") for each in sockets or ()]
        self.started = True
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and let open requests end."""
        for task in self._accepting:
            task.cancel()
        await asyncio.wait(self._accepting)
        await super().shutdown(sockets=sockets)

    async def _served(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> _Protocol:
        return _Protocol(self.config, self.server_state, {})


class _Protocol(H11Protocol):
    """One request of HTTP/1.1 on a connection with a time limit; a newer connection may close it."""

    def connection_made(self, transport: Any) -> None:
        """Start the time limit."""
        super().connection_made(transport)
        self._number = next(_NUMBERS)
        self._lines = 0
        self._time_limit = self.loop.call_later(MAX_CONNECTION_SECONDS, transport.abort)
        self._close_oldest()

    def data_received(self, data: bytes) -> None:
        """Refuse a request of too many lines before it is read: the time for a request grows with them."""
        self._lines += data.count(b"\n")
        if self._lines <= _HEAD_LINES:
            super().data_received(data)
        elif not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        with suppress(AttributeError):
            self._time_limit.cancel()
        super().connection_lost(exc)

    def _close_oldest(self) -> None:
        if len(self.connections) <= AT_ONCE:
            return
        # A response takes only a moment, so the oldest connection is waiting for its client.
        open_connections = [each for each in self.connections if isinstance(each, _Protocol) and not each.transport.is_closing()]
        if len(open_connections) > AT_ONCE:
            min(open_connections, key=lambda each: each._number).transport.abort()  # noqa: SLF001 - of its own kind
