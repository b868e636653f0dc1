"""How much of the relay's event loop HTTP takes, and whom a flood of requests keeps waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from relay.observability import http_acceptor
from relay.observability.http_server import HttpServer
from tests.support.database.queue import until

HEAD = "GET /livez HTTP/1.1\r\nHost: localhost\r\n"


class Counted:
    """A server that counts its answers."""

    def __init__(self) -> None:
        self.answered = 0
        self.server = HttpServer(host="127.0.0.1", port=0, metrics=self._metrics, reasons=dict, listen=lambda: "up", alive=self._alive)
        self.port = 0

    async def send(self, request: str, address: str = "127.0.0.1") -> str:
        """What is answered from a client's address until the connection ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        answer = b""
        try:
            with suppress(ConnectionError):
                writer.write(request.encode())
                answer = await reader.read()
        finally:
            writer.transport.abort()
        return answer.decode()

    async def _metrics(self, _: str) -> tuple[bytes, str]:
        return b"", "text/plain"

    def _alive(self) -> bool:
        self.answered += 1
        return True


@pytest.fixture
async def counted() -> AsyncIterator[Counted]:
    """A server on loopback."""
    made = Counted()
    made.port = await made.server.start()
    yield made
    await made.server.aclose()


async def test_requests_are_answered_at_a_bounded_rate(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come at once; all of them are answered in the end."""
    monkeypatch.setattr(http_acceptor, "SERVED", 200)
    began = time.monotonic()

    answers = await asyncio.gather(*(counted.send(f"{HEAD}\r\n") for _ in range(240)))

    assert {"HTTP/1.1 200 OK"} == {answer.partition("\r\n")[0] for answer in answers}
    assert 1 <= time.monotonic() - began


async def test_a_client_with_many_connections_does_not_keep_another_waiting(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe from another address has the next turn."""
    monkeypatch.setattr(http_acceptor, "SERVED", 20)
    flood = [asyncio.create_task(counted.send(f"{HEAD}\r\n", "127.0.0.2")) for _ in range(300)]
    await until(lambda: counted.answered >= 40)

    assert "200" in await counted.send(f"{HEAD}\r\n")

    assert counted.answered < 100
    for client in flood:
        client.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_a_connection_has_one_request(counted: Counted) -> None:
    """The server closes it after the answer, and says so."""
    answer = await counted.send(f"{HEAD}\r\n" * 5)

    assert 1 == answer.count("HTTP/1.1 200")
    assert "connection: close" in answer
    assert 1 == counted.answered


@pytest.mark.parametrize(("headers", "status"), [(50, "200"), (70, "431"), (3900, "431")])
async def test_a_request_with_very_many_headers_is_refused(counted: Counted, headers: int, status: str) -> None:
    """Reading them would take milliseconds, in which no message moves."""
    answer = await counted.send(HEAD + "a:\r\n" * headers + "\r\n")

    assert answer.startswith(f"HTTP/1.1 {status}")
    assert (status == "200") == bool(counted.answered)
