"""Serves the pages on loopback until SIGINT or SIGTERM."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from itertools import chain, repeat

import typer
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from relay.cli.console.access import ENTRY, OPEN, Access, LinkKeys
from relay.cli.console.pages import ConsolePages
from relay.errors import RelayError, SettingsError
from relay.net.local_hosts import LocalHostsOnly

HOST = "127.0.0.1"
_STATIC = {"console.css": "text/css", "console.js": "text/javascript"}
_OWN = "; ".join(f"{kind} 'self'" for kind in ("style-src", "script-src", "connect-src", "form-action"))
_POLICY = f"default-src 'none'; {_OWN}; frame-ancestors 'none'; base-uri 'none'"
_HEADERS = [
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", _POLICY),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]
_HEAD_BYTES = 16 << 10
_CONNECTIONS = 200
_FOREIGN = "The console answers on loopback only: ask for localhost or 127.0.0.1.\n"


def serve(pages: ConsolePages, *, port: int, say: Callable[[str], None]) -> None:
    """Serve the pages on this port of loopback, 0 for a free one; `say` gets the link for a browser.

    Raises:
        SettingsError: another process uses the port.
    """
    bound = _bind(port)
    port = bound.getsockname()[1]
    begin = chain(["Open"], repeat("A browser has used the link. For another one, open"))
    keys = LinkKeys(lambda key: say(f"{next(begin)} http://{HOST}:{port}{ENTRY}?key={key} (works once)"))
    app = application(pages, keys, cookie=f"outbox_relay_{port}")
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=_HEADERS,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    _Server(config).run(sockets=[bound])


def application(pages: ConsolePages, keys: LinkKeys, *, cookie: str) -> Starlette:
    """The routes, behind the check of the header Host and of the cookie."""
    return Starlette(
        middleware=[
            Middleware(LocalHostsOnly, name="localhost", sentence=_FOREIGN),
            Middleware(Access, keys=keys, cookie=cookie),
        ],
        exception_handlers=dict.fromkeys((RelayError, typer.BadParameter, HTTPException, Exception), pages.problem),
        routes=[
            Route("/", pages.overview, methods=["GET"]),
            Route("/waiting", pages.waiting, methods=["GET"]),
            Route("/dead", pages.dead, methods=["GET"]),
            Route("/message", pages.search, methods=["GET"]),
            Route("/message/{id:path}", pages.message, methods=["GET"]),
            Route(f"{OPEN}{{name}}", _static, methods=["GET"]),
        ],
    )


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404, f"There is no file {name}.")
    return Response((files("relay.cli.console") / "static" / name).read_bytes(), media_type=_STATIC[name])


def _bind(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, port))
        bound.listen()
    except OSError as error:
        bound.close()
        raise SettingsError(f"Cannot listen on {HOST} port {port} ({error.strerror}): give another --port.") from error
    return bound


class _Server(uvicorn.Server):
    """Ends at a signal without raising it again, so that the command ends with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End at SIGINT and SIGTERM."""
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
