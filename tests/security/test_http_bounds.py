"""The HTTP side under hostile hands: whom it answers, what a request may cost, and that nothing is changed by one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from relay.errors import SettingsError
from relay.observability.http_server import AT_ONCE, HttpServer
from tests.support.database.queue import until
from tests.support.relays.processes import peak_memory

METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "GETT", "\x00")
PATHS = ("/metrics", "/livez", "/readyz", "/", "/../etc/passwd", "/%2e%2e/", "/metrics/../livez", "//livez", "*", "http://elsewhere/livez")
BIG = 1 << 20
IN_TIME = 1.0
"""Seconds: what Kubernetes gives a probe by default (`timeoutSeconds`)."""
CHURN = """
import socket, sys, time
port, request, begun, made = int(sys.argv[1]), sys.argv[2].encode(), time.monotonic(), 0
while True:
    opened = []
    for _ in range(50):
        each = socket.socket()
        each.connect(("127.0.0.1", port))
        each.sendall(request)
        opened.append(each)
    for each in opened:
        each.close()
    made += len(opened)
    if made == len(opened):
        print("churning", flush=True)
    time.sleep(max(0.0, begun + made / 500 - time.monotonic()))
"""
"""Opens 500 connections a second at the most, and drops them, without a request, within one, or right after it."""


class Pages:
    """A server whose three pages count how often they were asked for."""

    def __init__(self, host: str) -> None:
        self.asked = 0
        self.port = 0
        self.begun = asyncio.Event()
        """A page is being rendered."""
        self.rendered = threading.Event()
        """No page is rendered before this is set, as it is unless a test clears it."""
        self.rendered.set()
        self.work = 0.0
        """Seconds that a page takes, in which its thread works."""
        self.server = HttpServer(
            host=host, port=0, metrics=self._page, reasons=lambda: self._count({}), listen=lambda: "up", alive=lambda: self._count(True)
        )

    async def send(self, *parts: bytes, address: str = "127.0.0.1") -> bytes:
        """Send parts as they are, and read to the end; what the server cuts short may be nothing."""
        reader, writer = await asyncio.open_connection(address, self.port)
        answer = b""
        with suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                while more := await reader.read(1 << 16):
                    answer += more
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return answer

    async def ask(
        self, host: str | None, path: str = "/livez", *, method: str = "GET", version: str = "1.1", address: str = "127.0.0.1"
    ) -> int:
        """The status of one request."""
        named = "" if host is None else f"Host: {host}\r\n"
        request = f"{method} {path} HTTP/{version}\r\n{named}Connection: close\r\n\r\n".encode()
        return int((await self.send(request, address=address)).split()[1])

    async def slowest(self, probes: int = 20) -> float:
        """The longest time of some probes, each of which must be answered."""
        took = []
        for _ in range(probes):
            began = time.monotonic()
            assert 200 == await self.ask("localhost")
            took.append(time.monotonic() - began)
        return max(took)

    async def answering(self, requests: int) -> None:
        """Wait until so many requests are being answered."""
        await until(lambda: self.server._server is not None and len(self.server._server.server_state.tasks) >= requests)

    async def _page(self, _: str) -> tuple[bytes, str]:
        self.begun.set()
        await asyncio.to_thread(self._work)
        return self._count(b"page"), "text/plain"

    def _work(self) -> None:
        self.rendered.wait()
        end = time.thread_time() + self.work
        while time.thread_time() < end:
            pass

    def _count(self, answer: Any) -> Any:
        self.asked += 1
        return answer


Serve = Callable[[str], Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start servers on a host."""
    made: list[Pages] = []

    async def start(host: str = "127.0.0.1") -> Pages:
        made.append(Pages(host))
        made[-1].port = await made[-1].server.start()
        return made[-1]

    yield start
    for each in made:
        each.rendered.set()
        await each.server.aclose()


@pytest.mark.parametrize(
    "name",
    [
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "2130706433",
        "[evil]",
        "a b",
        "[::1]evil",
        "[::1]:80.evil.example",
        "[::1",
        "::1]",
        "localhost:80:evil",
        "[localhost]",
    ],
)
async def test_a_foreign_name_that_leads_to_loopback_is_refused(serve: Serve, name: str) -> None:
    """A page in a browser on this machine could read the answer under its own name (DNS rebinding)."""
    pages = await serve("127.0.0.1")
    with suppress(IndexError):  # closed without an answer, by a server that found no name at all
        assert await pages.ask(name) in {400, 403}
    assert 0 == pages.asked


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:8080", "127.0.0.1:9", "127.0.0.1", "[::1]:80", "10.0.0.7"])
async def test_an_address_or_localhost_is_answered(serve: Serve, name: str) -> None:
    """What people and scrapers on this machine type; an address cannot be led anywhere."""
    assert 200 == await (await serve("127.0.0.1")).ask(name)


async def test_the_name_that_it_listens_by_is_answered(serve: Serve) -> None:
    """And a client so old that it names no host."""
    pages = await serve("localhost")
    assert 200 == await pages.ask(None, version="1.0", address="localhost")


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [
        ("1.1", "Host:\r\n", 200),
        ("1.0", "", 200),
        ("1.1", "", 400),
        ("1.1", "Host: localhost\r\nHost: localhost\r\n", 400),
        ("1.0", "Host: localhost\r\nHost: localhost\r\n", 400),
    ],
)
async def test_no_name_leads_nowhere_and_two_are_no_request(serve: Serve, version: str, hosts: str, status: int) -> None:
    """An empty Host is none, which only HTTP/1.0 may leave out."""
    pages = await serve("127.0.0.1")
    assert status == int((await pages.send(f"GET /livez HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n".encode())).split()[1])


async def test_on_all_addresses_every_name_leads_there(serve: Serve) -> None:
    """In a container the server cannot know the names by which it is asked."""
    assert 200 == await (await serve("0.0.0.0")).ask("relay.shop.svc.cluster.local:8080")


@pytest.mark.parametrize("path", PATHS)
async def test_no_method_but_looking_does_anything(serve: Serve, path: str) -> None:
    """Refused whatever the path, none of them reaches a page."""
    pages = await serve("127.0.0.1")
    for method in METHODS:
        with suppress(IndexError):  # closed without an answer
            assert await pages.ask("localhost", path, method=method) in {400, 404, 405}
    assert 0 == pages.asked


HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
FLOODS = {
    "a line": (b"GET /", *[b"a" * BIG] * 8),
    "a header": (HEAD + b"X: ", *[b"a" * BIG] * 8),
    "headers": (HEAD, *[b"X: a\r\n" * (BIG // 6)] * 8),
    "a body": (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n", *[b"a" * BIG] * 8),
    "chunks": (
        b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        *[b"100000\r\n" + b"a" * BIG + b"\r\n"] * 8,
    ),
    "requests": tuple([(HEAD + b"\r\n") * 2000] * 8),
    "no protocol": (bytes(range(256)) * (BIG // 64),),
}


def peak_anew() -> int:
    """Bytes that this process takes, from which on its peak is counted: see proc(5), clear_refs."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_memory(os.getpid())


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_costs_no_memory_and_ends(serve: Serve, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by length nor by number; the next one is answered."""
    monkeypatch.setattr("relay.observability.http_server.MAX_CONNECTION_SECONDS", 2.0)
    pages = await serve("127.0.0.1")
    before = peak_anew()

    await asyncio.gather(*(pages.send(*FLOODS[name]) for _ in range(8)))

    assert peak_memory(os.getpid()) - before < 60_000_000
    assert 200 == await pages.ask("localhost")


async def test_who_sends_a_byte_now_and_then_is_ended(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow heads hold no connection beyond its time, and others are answered meanwhile."""
    monkeypatch.setattr("relay.observability.http_server.MAX_CONNECTION_SECONDS", 1.0)
    pages = await serve("127.0.0.1")

    async def slow() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
        ended = asyncio.create_task(reader.read())
        with suppress(ConnectionError):
            for byte in HEAD * 1000:
                writer.write(bytes((byte,)))
                await asyncio.wait([ended], timeout=0.05)
                if ended.done():
                    break
        with suppress(ConnectionError):
            assert b"" == await ended
        writer.close()

    async with asyncio.timeout(60):
        slow_ones = asyncio.gather(*(slow() for _ in range(AT_ONCE // 2)))
        assert 200 == await pages.ask("localhost")
        await slow_ones
    assert 200 == await pages.ask("localhost")


async def hold(pages: Pages, opened: list[None]) -> None:
    """Begin a request and never end it, again and again."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
            opened.append(None)
            writer.write(b"GET /livez HTT")
            try:
                await reader.read()
            finally:
                writer.close()


@pytest.mark.parametrize("most", [AT_ONCE, 150])
async def test_who_holds_connections_keeps_no_probe_out(serve: Serve, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 requests never end, and each begins again when it is closed: an orchestrator would have restarted a healthy relay."""
    monkeypatch.setattr("relay.observability.http_server.AT_ONCE", most)
    pages, opened = await serve("127.0.0.1"), list[None]()
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        holders = [tasks.create_task(hold(pages, opened)) for _ in range(200)]
        while len(opened) < len(holders):  # noqa: ASYNC110 - they need a moment each
            await asyncio.sleep(0)
        answers = [await pages.ask("localhost") for _ in range(20)]
        for holder in holders:
            holder.cancel()

    assert [200] * 20 == answers


@contextmanager
def churning(pages: Pages, request: str) -> Iterator[None]:
    """Another process opens and drops connections meanwhile."""
    with subprocess.Popen([sys.executable, "-c", CHURN, str(pages.port), request], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline()
            yield
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.parametrize("begun", ["", "GET /livez HTT", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["none", "half", "page"])
async def test_a_probe_is_answered_in_time_while_connections_come_and_go(serve: Serve, begun: str) -> None:
    """Whatever they ask for, or an orchestrator would restart a healthy relay: in the best of some rounds, since a machine may be busy."""
    pages = await serve("127.0.0.1")
    pages.work = 0.005
    with churning(pages, begun):
        assert min([await pages.slowest() for _ in range(3)]) < IN_TIME


async def test_a_probe_is_answered_in_time_while_pages_are_rendered_slowly(serve: Serve) -> None:
    """Half as many clients as may be connected wait for a page, which is finished only once the probes have their answers."""
    pages = await serve("127.0.0.1")
    pages.rendered.clear()
    waiting = [asyncio.create_task(pages.ask("localhost", "/metrics")) for _ in range(AT_ONCE // 2)]
    await pages.answering(len(waiting))
    answers = [await pages.ask("localhost") for _ in range(20)]
    pages.rendered.set()

    assert [200] * 20 == answers
    assert [200] * len(waiting) == await asyncio.gather(*waiting)


async def test_those_who_wait_for_a_page_share_one(serve: Serve) -> None:
    """One that begins to be rendered after they have asked, so that it shows what they came for."""
    pages = await serve("127.0.0.1")
    pages.rendered.clear()
    first = asyncio.create_task(pages.ask("localhost", "/metrics"))
    await pages.begun.wait()

    others = [asyncio.create_task(pages.ask("localhost", "/metrics")) for _ in range(20)]
    await pages.answering(21)
    pages.rendered.set()

    assert [200] * 21 == [await first, *await asyncio.gather(*others)]
    assert pages.asked == 2


async def test_however_many_are_opened_only_so_many_stay(serve: Serve) -> None:
    """Five times as many as are allowed: the oldest were closed, and the server answers at once."""
    pages = await serve("127.0.0.1")
    held = [await asyncio.open_connection("127.0.0.1", pages.port) for _ in range(5 * AT_ONCE)]
    assert 200 == await pages.ask("localhost")
    assert len(pages.server._server.server_state.connections) <= AT_ONCE
    for _, writer in held:
        writer.close()


def test_a_host_that_cannot_be_had_is_a_sentence() -> None:
    """Not a traceback."""
    with pytest.raises(SettingsError, match="RELAY_HTTP_HOST"):
        asyncio.run(Pages("203.0.113.77").server.start())


async def test_who_thinks_up_formats_has_no_page_rendered_for_each(serve: Serve) -> None:
    """The server renders a few formats at a time; further requests get the plain page."""
    pages = await serve("127.0.0.1")
    pages.rendered.clear()
    request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain; version={}\r\nConnection: close\r\n\r\n"

    asked = [asyncio.create_task(pages.send(request.format(number).encode())) for number in range(50)]
    await pages.answering(50)
    pages.rendered.set()

    assert [b"200"] * 50 == [answer.split()[1] for answer in await asyncio.gather(*asked)]
    assert pages.asked < 10
