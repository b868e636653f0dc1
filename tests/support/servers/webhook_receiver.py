"""A receiver of webhooks: a real HTTP server on this machine whose answers a test chooses."""

from __future__ import annotations

import queue
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from relay.devservers.rabbitmq import Certificates


@dataclass(frozen=True)
class Got:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What is answered; `parts` are sent one after the other."""

    status: int = 204
    headers: Mapping[str, str] | None = None
    parts: Callable[[], Iterator[bytes]] | None = None


class Hook(ThreadingHTTPServer):
    """Answers as `answer` says; keeps what it got."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int = 0, tls: Certificates | None = None) -> None:
        self.got: queue.Queue[Got] = queue.Queue()
        self.answer: Callable[[Got], Answer] = lambda _: Answer()
        self.released = threading.Event()
        """Set at the end, so that requests that hang continue."""
        super().__init__(("127.0.0.1", port), _Handler)
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.scheme = "http" if tls is None else "https"

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where webhooks go."""
        return f"{self.scheme}://127.0.0.1:{self.port}/hook/not-for-logs"

    def next(self, seconds: float = 20) -> Got:
        """The next request."""
        return self.got.get(timeout=seconds)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may go at any time."""


class _Handler(BaseHTTPRequestHandler):
    server: Hook
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Note it and answer."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        got = Got(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.server.got.put(got)
        answer = self.server.answer(got)
        self.send_response(answer.status)
        for name, value in (answer.headers or {}).items():
            self.send_header(name, value)
        if answer.parts is None and answer.status != 204:
            self.send_header("content-length", "0")
        self.end_headers()
        for part in answer.parts() if answer.parts else ():
            self.wfile.write(part)
        self.close_connection = True

    do_GET = do_POST  # noqa: N815 - the library's words

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's word
        """Say nothing."""


@contextmanager
def hook(port: int = 0, tls: Certificates | None = None) -> Iterator[Hook]:
    """A receiver that listens while the block runs."""
    server = Hook(port, tls)
    thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
