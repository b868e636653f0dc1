"""What a scraper and an orchestrator ask: /metrics, /livez, /readyz. Only GET, nothing is read from a request's body."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
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
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from relay.errors import SettingsError
from relay.net.transport_security import is_here
from relay.observability.metrics_pages import Page, Pages

LONGEST = 10.0
"""Seconds that a connection may live, whatever it does: nobody can hold one by sending slowly."""
AT_ONCE = 400
"""Connections at the same time. Each one more closes the oldest: nobody keeps a probe out by holding many."""
_NUMBERS = count()
"""Of connections, in the order in which they came: the loop's clock is too coarse for that."""
KEEP_ALIVE = 5
"""Seconds that a connection may wait for its next request."""
_HEADERS = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]
_HEAD_BYTES = 16 << 10
_BACKLOG = 2048
"""Connections that wait to be accepted; beyond them a client tries again only after a second."""
_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::[0-9]*)?")
"""The header Host: an address in brackets or a name, and a port (RFC 9110, 7.2)."""


class HttpServer:
    """Serves on the loop that runs the relay, without signal handlers and without a log line a request.

    Args:
        host: name or address to listen on.
        port: 0 takes a free one.
        metrics: page and content type for an Accept header; it must not hold up the loop.
        reasons: what keeps the relay from moving messages, by peer; empty means ready.
        listen: state of LISTEN, for information.
        notes: what slows messages down and stops none, by what it is about.
        alive: False once the relay is about to end; a peer that is down is no reason.

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
            SettingsError: host and port cannot be had.
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
        """Answer what is being asked, for a second at most, and close; legal at any time, and again."""
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
        except OSError as error:
            if bound is not None:
                bound.close()
            where = f"{self.host} port {self._port}"
            raise SettingsError(f"Cannot listen on {where} ({error.strerror}): change RELAY_HTTP_HOST or RELAY_HTTP_PORT.") from error
        return bound

    def _app(self, bound: socket.socket) -> Starlette:
        only_here = is_here(bound.getsockname()[0])
        return Starlette(
            middleware=[Middleware(_Here, name=self.host)] if only_here else [],
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
        timeout_keep_alive=KEEP_ALIVE,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )


class _Here:
    """Answers on loopback only who asks for an address or a name of this machine.

    A browser here asks a foreign name too, where somebody has led that name to 127.0.0.1, and hands the answer to the foreign page.
    """

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._names = {"", "localhost", name.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on or refuse."""
        asked = _HOST.fullmatch(dict(scope.get("headers", [])).get(b"host", b"").decode("latin-1").lower())
        if asked and ((name := asked["name"]) in self._names or _is_address(asked["address"] or name or "")):
            await self._app(scope, receive, send)
        else:
            sentence = "This listens on loopback: ask for localhost or an address, or set RELAY_HTTP_HOST to the name.\n"
            await Response(sentence, 403, media_type="text/plain")(scope, receive, send)


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False


class _Server(uvicorn.Server):
    """Leaves signals to the relay and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve; who waits for `up` does not wait for a server that could not begin."""
        try:
            await super().serve(sockets=sockets)
        finally:
            self.up.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and tell."""
        await super().startup(sockets=sockets)
        self.up.set()


class _Protocol(H11Protocol):
    """HTTP/1.1 on a connection that ends in time, or for a newer one."""

    def connection_made(self, transport: Any) -> None:
        """Set the end."""
        super().connection_made(transport)
        self._number = next(_NUMBERS)
        self._end = self.loop.call_later(LONGEST, transport.abort)
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the end."""
        with suppress(AttributeError):
            self._end.cancel()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        if len(self.connections) <= AT_ONCE:
            return
        # Whatever it does: an answer takes a moment, so that the oldest is one that waits for its client, not the other way round.
        living = [each for each in self.connections if isinstance(each, _Protocol) and not each.transport.is_closing()]
        if len(living) > AT_ONCE:
            min(living, key=lambda each: each._number).transport.abort()  # noqa: SLF001 - of its own kind
