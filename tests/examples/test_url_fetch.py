"""`examples/url_fetch`, run as its README says against a real database and a real web server of several answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.applications.example_programs import EXAMPLES
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays
from tests.support.servers.webhook_receiver import Answer, Got, hook

CHUNK = b"x" * 65536
INBOX = {"RELAY_SCHEMA": "inbox", "RELAY_DIRECTION": "inbox", "RELAY_MAX_ATTEMPTS": "2", "RELAY_BACKOFF_BASE": "0.05"}


class Site:
    """What the web server answers, by path."""

    def __init__(self) -> None:
        self.port = 0
        self.done = threading.Event()
        self.sent = 0

    def answer(self, request: Got) -> Answer:
        """One page of the site."""
        pages = {
            "/fine": Answer(200, {}, lambda: iter([b"fine"])),
            "/missing": Answer(404, {}, lambda: iter([b"no such page"])),
            "/binary": Answer(200, {}, lambda: iter([b"\x00\xff\x00"])),
            "/huge": Answer(200, {"content-length": str(1 << 30)}, self._huge),
            "/slow": Answer(200, {}, self._slow),
            "/moved": Answer(302, {"Location": "/fine"}, lambda: iter([b""])),
            "/inside": Answer(302, {"Location": f"http://127.0.0.2:{self.port}/fine"}, lambda: iter([b""])),
            "/cloud": Answer(302, {"Location": "http://169.254.169.254/latest"}, lambda: iter([b""])),
            "/round": Answer(302, {"Location": "/round"}, lambda: iter([b""])),
        }
        return pages[request.path]

    def _huge(self) -> Iterator[bytes]:
        for _ in range((1 << 30) // len(CHUNK)):
            self.sent += len(CHUNK)
            yield CHUNK

    def _slow(self) -> Iterator[bytes]:
        yield b"a"
        self.done.wait()


@pytest.fixture
def site() -> Iterator[Site]:
    """The pages, on this machine."""
    made = Site()
    with hook() as server:
        server.answer = made.answer
        made.port = server.port
        yield made
        made.done.set()


async def fetched(queue: Queue, relays: Relays, urls: list[str], settings: dict[str, str]) -> dict[str, tuple[Any, ...]]:
    """Set everything up, insert URLs, and return each row's answer when the worker is through."""
    settings = {**INBOX, "PYTHONPATH": str(EXAMPLES / "url_fetch"), **settings}
    await relays.command("migrate", database=queue.url, settings=settings)
    for statement in (EXAMPLES / "url_fetch" / "schema.sql").read_text(encoding="utf-8").split(";"):
        await queue.sql(statement)
    for url in urls:
        await queue.sql("INSERT INTO url_fetch (url) VALUES (%s)", url)
    await relays.start("worker", database=queue.url, broker="amqp://x:y@127.0.0.1:1/", command=("work", "url_fetch:get"), settings=settings)

    async def all_ended() -> bool:
        return bool(await queue.value("SELECT count(*) = %s FROM inbox.queue_message_archive", len(urls)))

    await until(all_ended)
    rows = await queue.sql("SELECT url, response_code, response_body, response_cut, error, response_at FROM url_fetch")
    assert all((at is None) == (code is None) for _, code, _, _, _, at in rows)
    return {url.rpartition("/")[2]: tuple(answer[:-1]) for url, *answer in rows}


@pytest.mark.ids("A24", "C16")
async def test_a_url_in_a_row_becomes_its_response(queue: Queue, relays: Relays, site: Site) -> None:
    """Found, missing, binary, moved; a gigabyte is cut, a server that hangs is left, and a redirect to a private address refused."""
    names = ["fine", "missing", "binary", "huge", "slow", "moved", "inside", "cloud", "round"]
    settings = {"URL_FETCH_PRIVATE": "127.0.0.1", "URL_FETCH_SECONDS": "1", "URL_FETCH_BYTES": "100000"}
    found = await fetched(queue, relays, [f"http://127.0.0.1:{site.port}/{name}" for name in names], settings)

    assert (200, b"fine", False, None) == found["fine"] == found["moved"]
    assert (404, b"no such page", False, None) == found["missing"]
    assert (200, b"\x00\xff\x00", False, None) == found["binary"]
    assert (200, b"x" * 100_000, True, None) == found["huge"]
    assert site.sent < 1 << 28
    for name in ("slow", "inside", "cloud", "round"):
        assert (None, None, None) == found[name][:3]
    assert "gave no whole answer within 1 s. (attempt 2 of 2)" in found["slow"][3]
    assert found["inside"][3].startswith("url_refused: ")
    assert "private address 127.0.0.2" in found["inside"][3]
    assert "cloud's credentials" in found["cloud"][3]
    assert found["round"][3].startswith("redirects: ")


@pytest.mark.ids("C16")
async def test_a_private_address_is_refused_unless_it_is_named(queue: Queue, relays: Relays, site: Site) -> None:
    """And nothing is sent there, nor to what is no URL."""
    found = await fetched(queue, relays, [f"http://127.0.0.1:{site.port}/fine", "http://[none"], {})
    assert found["fine"][3].startswith("url_refused: The URL names the private address 127.0.0.1")
    assert found["[none"][3].startswith("url_refused: ")
