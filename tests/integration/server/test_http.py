"""The HTTP side: what it answers, what bounds it, and that it leaves signals and logs alone."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from relay import events
from relay.errors import SettingsError
from relay.events import broker
from relay.observability.health import Health
from relay.observability.http_server import AT_ONCE, HttpServer
from relay.observability.metrics import Metrics

UP = (events.Started(1, "one", "public"), broker.BrokerUp("4.0"), events.ListenUp())


class Answer(NamedTuple):
    """One response."""

    status: int
    headers: str
    body: str

    @property
    def json(self) -> Any:
        """The body as an object."""
        return json.loads(self.body)


class Served:
    """A server, and the events that it learns from."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.metrics, self.health, self.alive, self.host = Metrics(), Health("database", "broker"), True, host
        self.emit = events.fan_out(self.metrics.sink, self.health.sink)
        self.server = HttpServer(
            host=host,
            port=port,
            metrics=self.metrics.page,
            reasons=lambda: self.health.reasons,
            listen=lambda: self.health.listen,
            alive=lambda: self.alive,
            notes=lambda: self.health.notes,
        )
        self.port = port

    async def start(self) -> None:
        """Start, and remember the port."""
        self.port = await self.server.start()

    async def ask(self, path: str, *, method: str = "GET", more: str = "") -> Answer:
        """Send one request and read its answer to the end."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n".encode())
            head, _, body = (await asyncio.wait_for(reader.read(), 20)).decode().partition("\r\n\r\n")
        finally:
            await close(writer)
        return Answer(int(head.split()[1]), head.lower(), body)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a client's connection, whatever the server has done to it."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Read to the end: a reset ends a connection too, where the client writes to one that the server has closed."""
    with suppress(ConnectionResetError):
        return await asyncio.wait_for(reader.read(), 20)
    return b""


Serve = Callable[..., Served]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Make servers, and close them."""
    made: list[Served] = []

    def server(**options: Any) -> Served:
        made.append(Served(**options))
        return made[-1]

    yield server
    for each in made:
        await each.server.aclose()


@pytest.mark.ids("A25")
async def test_ready_means_that_messages_can_move(serve: Serve) -> None:
    """503 with a sentence for each peer that is missing, 200 when none is."""
    served = serve()
    await served.start()
    before = await served.ask("/readyz")
    for event in UP:
        served.emit(event)

    after = await served.ask("/readyz")

    assert (503, {"database", "broker"}) == (before.status, set(before.json["reasons"]))
    assert (200, {"status": "ready", "reasons": {}, "listen": "up"}) == (after.status, after.json)
    assert "application/json" in after.headers


@pytest.mark.parametrize(
    ("event", "about", "cure"),
    [
        (events.DatabaseDown("PostgreSQL does not answer.", 1), "database", events.DatabaseUp()),
        (broker.BrokerDown("RabbitMQ does not answer.", 1), "broker", broker.BrokerUp("4.0")),
        (broker.BrokerBlocked("low on memory"), "blocked", broker.BrokerUnblocked()),
        (broker.BrokerBlocked("low on disk"), "blocked", broker.BrokerUp("4.0")),
        (events.Stopping("SIGTERM", "drain", 3), "stopping", None),
    ],
)
async def test_what_keeps_messages_from_moving_is_named(serve: Serve, event: events.Event, about: str, cure: events.Event | None) -> None:
    """Each of them by itself, until it is over; the process is alive all the while."""
    served = serve()
    await served.start()
    for told in (*UP, event):
        served.emit(told)

    answer = await served.ask("/readyz")
    assert (503, [about]) == (answer.status, list(answer.json["reasons"]))
    assert 200 == (await served.ask("/livez")).status
    if cure is not None:
        served.emit(cure)
        assert 200 == (await served.ask("/readyz")).status


async def test_too_few_channels_leave_the_relay_ready_and_are_noted(serve: Serve) -> None:
    """Messages move, so an orchestrator takes nothing away; an operator finds the reason of the slowness."""
    served = serve()
    await served.start()
    for event in (*UP, broker.ChannelsLimited(1, 3)):
        served.emit(event)

    noted = await served.ask("/readyz")
    served.emit(broker.ChannelsUnlimited())
    after = await served.ask("/readyz")

    assert (200, "ready", {}) == (noted.status, noted.json["status"], noted.json["reasons"])
    assert noted.json["notes"]["channels"].startswith("The broker grants one channel, at which 3 exchanges or queues take turns")
    assert "notes" not in after.json


async def test_without_listen_the_relay_is_ready_and_says_so(serve: Serve) -> None:
    """Polling continues. LISTEN is only for information."""
    served = serve()
    await served.start()
    for event in (*UP, events.ListenDown("LISTEN is not heard.")):
        served.emit(event)

    answer = await served.ask("/readyz")

    assert (200, "LISTEN is not heard.") == (answer.status, answer.json["listen"])


@pytest.mark.ids("A25")
async def test_only_a_dead_loop_fails_the_liveness(serve: Serve) -> None:
    """A restart cures that, and nothing else."""
    served = serve()
    await served.start()
    assert (200, {"status": "alive"}) == ((await served.ask("/livez")).status, (await served.ask("/livez")).json)

    served.alive = False

    assert 503 == (await served.ask("/livez")).status


async def test_metrics_are_served_as_they_stand(serve: Serve) -> None:
    """The page of the relay's own registry, in the format that is asked for."""
    served = serve()
    await served.start()
    served.emit(events.StrandedFound(3))

    plain = await served.ask("/metrics")
    other = await served.ask("/metrics", more="Accept: application/openmetrics-text\r\n")

    assert "relay_stranded_total 3.0" in plain.body
    assert "content-type: text/plain" in plain.headers
    assert "content-type: application/openmetrics-text" in other.headers
    assert "cache-control: no-store" in plain.headers
    assert "server:" not in plain.headers


@pytest.mark.parametrize(
    ("method", "path", "status"), [("POST", "/metrics", 405), ("DELETE", "/readyz", 405), ("GET", "/", 404), ("HEAD", "/livez", 200)]
)
async def test_nothing_but_looking_is_possible(serve: Serve, method: str, path: str, status: int) -> None:
    """Three pages to GET; everything else is refused."""
    served = serve()
    await served.start()

    assert status == (await served.ask(path, method=method)).status


async def test_a_body_is_answered_without_being_read(serve: Serve) -> None:
    """Who announces a gigabyte hears no at once."""
    served = serve()
    await served.start()

    assert 405 == (await served.ask("/metrics", method="POST", more="Content-Length: 1000000000\r\n")).status


async def test_a_request_without_end_is_refused(serve: Serve) -> None:
    """The head of a request is bounded."""
    served = serve()
    await served.start()

    with suppress(ConnectionError):  # which the client may see before the answer
        assert 400 == (await served.ask("/metrics", more=f"X-Long: {'x' * 200_000}\r\n")).status

    assert 200 == (await served.ask("/livez")).status


async def test_a_connection_that_sends_nothing_is_ended(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """No client can use up the connections by holding them."""
    monkeypatch.setattr("relay.observability.http_server.MAX_CONNECTION_SECONDS", 0.2)
    served = serve()
    await served.start()
    held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(AT_ONCE)]
    for _, writer in held:
        writer.write(b"GET /metrics HTTP/1.1\r\n")

    try:
        assert {b""} == {await rest(reader) for reader, _ in held}
    finally:
        for _, writer in held:
            await close(writer)

    assert 200 == (await served.ask("/livez")).status


async def test_each_connection_more_than_allowed_closes_the_oldest(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest is answered, and so is one that was neither the oldest nor the newest."""
    monkeypatch.setattr("relay.observability.http_server.AT_ONCE", 3)
    served = serve()
    await served.start()
    held = []
    for _ in range(3):
        held.append(await asyncio.open_connection("127.0.0.1", served.port))
        held[-1][1].write(b"GET /livez HTT")

    assert 200 == (await served.ask("/livez")).status
    held[1][1].write(b"P/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

    assert [b"", b"HTTP/1.1 200"] == [(await rest(reader))[:12] for reader, _ in held[:2]]
    for _, writer in held:
        await close(writer)


async def test_signals_and_log_lines_stay_as_they_are(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Signals belong to the relay, and a probe each second must not fill the log."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    served = serve()
    with caplog.at_level(logging.INFO):
        await served.start()
        assert before == [signal.getsignal(number) for number in numbers]
        caplog.clear()
        await served.ask("/livez")

    assert [] == [record.getMessage() for record in caplog.records]


async def test_a_port_that_is_taken_is_a_sentence(serve: Serve) -> None:
    """It says what to change."""
    first = serve()
    await first.start()

    with pytest.raises(
        SettingsError, match=rf"Cannot listen on 127.0.0.1 port {first.port} \(Address already in use\): change RELAY_HTTP_HOST"
    ):
        await serve(port=first.port).start()
    with pytest.raises(SettingsError, match=r"Cannot listen on no\.such\.host\.invalid port 0"):
        await serve(host="no.such.host.invalid").start()


async def test_loopback_written_as_an_ipv6_address_is_loopback(serve: Serve) -> None:
    """A foreign name that leads there is refused as on any other."""
    served = serve(host="::ffff:127.0.0.1")
    await served.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")

    assert not (await reader.read()).startswith(b"HTTP/1.1 200")
    await close(writer)


async def test_start_and_close_may_be_called_at_any_time_and_again(serve: Serve) -> None:
    """Close before start, start twice, close twice; a connection that is kept alive does not hold the end."""
    served = serve(host="localhost")
    await served.server.aclose()
    await served.start()
    port = served.port
    await served.start()
    assert port == served.port
    reader, writer = await asyncio.open_connection("localhost", port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")

    await asyncio.wait_for(served.server.aclose(), 10)
    await served.server.aclose()

    await close(writer)
    with pytest.raises(ConnectionError):
        await served.ask("/livez")
