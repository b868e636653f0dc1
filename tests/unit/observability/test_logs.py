"""Log lines: what is written, what is held back, and what never gets through."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr

from relay import events
from relay.app.outbox import compose
from relay.app.relay import Relay
from relay.config.settings import Settings
from relay.errors import BrokerError
from relay.events import broker
from relay.observability import logs

CANARY = "hunter2-canary"
THIRD_PARTIES = ("aiormq", "aiormq.connection", "aio_pika.exchange", "pamqp", "psycopg", "psycopg.pool", "uvicorn.error", "uvicorn.access")
Configured = Callable[..., io.StringIO]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@pytest.fixture
def configured() -> Iterator[Configured]:
    """Configure logging to a text in memory, and restore what was there."""
    root, names = logging.getLogger(), (None, "relay", *logs._LIBRARY_LEVELS)
    handlers, levels = list(root.handlers), {name: logging.getLogger(name).level for name in names}

    def configure(level: str = "info", log_format: str | None = "json", stream: io.StringIO | None = None) -> io.StringIO:
        stream = io.StringIO() if stream is None else stream
        logs.configure(level=level, log_format=log_format, stream=stream)
        return stream

    yield configure
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """What was written, one object a line."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_with_its_fields(configured: Configured) -> None:
    """The event's name in small letters, its level, a time in UTC, and its fields as they are."""
    stream = configured()

    logs.LogSink()(events.LocksSwept(released=3, archived=1))

    [line] = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert {"event": "locks_swept", "level": "warning", "released": 3, "archived": 1} == line


def test_levels_decide_what_is_written(configured: Configured) -> None:
    """Counters are never written, debug lines only on request."""
    told = [events.BatchClaimed("fresh", 1, 2, 0.1), broker.ExchangeProven("orders"), broker.BrokerUp("4.0")]
    info, debug = configured("info"), None
    for event in told:
        logs.LogSink()(event)
    debug = configured("debug")
    for event in told:
        logs.LogSink()(event)

    assert ["broker_up"] == [line["event"] for line in lines(info)]
    assert ["exchange_proven", "broker_up"] == [line["event"] for line in lines(debug)]


def test_a_terminal_gets_words_and_a_pipe_gets_json(configured: Configured) -> None:
    """Without a setting the stream decides; a setting goes before it."""
    event = broker.BrokerUp("4.0.5")
    written = []
    for log_format, stream in ((None, Terminal()), (None, io.StringIO()), ("json", Terminal()), ("console", io.StringIO())):
        configured(log_format=log_format, stream=stream)
        logs.LogSink()(event)
        written.append(stream.getvalue())

    assert [False, True, True, False] == [text.startswith("{") for text in written]
    assert "\x1b[" in written[0]
    assert "\x1b[" not in written[3]
    assert all("broker_up" in text and "4.0.5" in text for text in written)


def test_a_flood_is_one_line_a_second_that_counts_the_rest(configured: Configured) -> None:
    """A broker that refuses for an hour does not fill the disk, and no line counts more than it says."""
    now, stream = [100.0], configured()
    sink = logs.LogSink(clock=lambda: now[0])

    for moment in range(21):
        now[0] = 100 + moment / 8
        sink(broker.BrokerDown("refused", moment))
    sink(events.DatabaseDown("away", 1))
    sink.flush()

    written = [(line["event"], line.get("attempt"), line.get("suppressed")) for line in lines(stream)]
    assert [
        ("broker_down", 0, None), ("broker_down", 8, 7), ("broker_down", 16, 7), ("database_down", 1, None), ("broker_down", 20, 3)
    ] == written  # fmt: skip


def test_what_was_held_back_is_told_by_the_next_event_of_any_kind(configured: Configured) -> None:
    """It does not wait for another fault of the same kind, and says all that the event said."""
    now, stream = [0.0], configured()
    sink = logs.LogSink(clock=lambda: now[0])
    sink(events.MessageDead("a", "failed", "nacked", "", "orders"))
    sink(events.MessageDead("b", "failed", "nacked", "", "orders"))
    now[0] = 1.5

    sink(events.BatchClaimed("waiting", 1, 1, 0.0))

    assert ["a", "b"] == [line["id"] for line in lines(stream)]


class Told(io.StringIO):
    """A stream that says when a line has been written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def write(self, text: str) -> int:
        """Hand a line on."""
        for line in text.splitlines():
            self.lines.put_nowait(json.loads(line))
        return super().write(text)


async def test_what_was_held_back_is_told_by_itself_with_its_own_time(configured: Configured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nothing else happens, and also what is held back while another waits."""
    monkeypatch.setattr(logs, "FLOOD_SECONDS", 0.2)
    stream = Told()
    configured(stream=stream)
    sink = logs.LogSink()
    for id_ in ("first", "second", "third"):
        sink(events.MessageDead(id_, "failed", "nacked", "", "orders"))
    came = datetime.now(UTC)
    assert "first" == stream.lines.get_nowait()["id"]

    async with asyncio.timeout(5):
        third = await stream.lines.get()
    assert ("third", 1) == (third["id"], third["suppressed"])
    assert datetime.fromisoformat(third["timestamp"]) <= came

    sink(events.MessageDead("fourth", "failed", "nacked", "", "orders"))
    async with asyncio.timeout(5):
        assert "fourth" == (await stream.lines.get())["id"]


async def test_the_last_line_of_a_relay_in_order_says_that_it_stopped(
    configured: Configured, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """After what was held back; connections that it closes itself are nothing to tell of, but an end without order is."""
    away = f"127.0.0.1:{unused_tcp_port}"
    settings = Settings(database_url=SecretStr(f"postgresql://{away}/x"), amqp_url=SecretStr(f"amqp://{away}"), http_port=None)

    async def enter(_: Relay) -> bool:
        return True

    async def work(relay: Relay, stack: AsyncExitStack) -> None:
        stack.callback(relay.base.emit, events.Abandoned(0))
        stack.callback(relay.base.emit, broker.BrokerDown("closing", 3))
        for attempt in (1, 2):
            relay.base.emit(broker.BrokerDown("refused", attempt))

    monkeypatch.setattr(Relay, "_enter", enter)
    monkeypatch.setattr(Relay, "_work", work)
    stream = configured()
    log = logs.LogSink()

    await compose(settings, log, lambda _: None).serve(log)

    assert ["broker_down", "broker_down", "stopped", "abandoned"] == [line["event"] for line in lines(stream)]


def test_what_happens_once_is_never_held_back(configured: Configured) -> None:
    """Two settings that the database overrules are two lines, though they come together."""
    stream, sink = configured(), logs.LogSink(clock=lambda: 0.0)

    for name in ("notify", "archive"):
        sink(events.SettingOverruled(name, "a", "b"))

    assert ["notify", "archive"] == [line["name"] for line in lines(stream)]


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_no_text_can_forge_a_line_or_steer_a_terminal(configured: Configured, log_format: str) -> None:
    """Control characters, other line ends, overrides of direction and lone surrogates are written as escapes."""
    stream = configured(log_format=log_format)

    logs.LogSink()(events.MessageDead("id", "rejected", "code", "a\n2026 [info] forged\x1b[2J\x9b\u2028\u202e\ud800\x00", "b\r\nc"))

    text = stream.getvalue()
    assert 1 == len(text.splitlines())
    assert text.rstrip("\n").isprintable()
    assert "forged" in text
    assert r"a\n\x9b\u202e\ud800" == logs._sanitized("a\n\x9b\u202e\ud800")


def test_long_values_are_cut_and_say_so(configured: Configured) -> None:
    """One message cannot fill a screen, and a lost batch does not list its every id."""
    stream, sink = configured(), logs.LogSink()

    sink(events.DatabaseDown("x" * 5000, 1))
    sink(events.LockLost(tuple(str(number) for number in range(500))))

    down, lost = lines(stream)
    assert down["error"] == "x" * 1000 + "… (5000 characters)"
    assert lost["ids"][-2:] == ["9", "… (500 in all)"]


@pytest.mark.parametrize("name", THIRD_PARTIES)
def test_other_libraries_payloads_and_passwords_do_not_get_through(configured: Configured, name: str) -> None:
    """What clients log of frames, connections and refused rows is not written, whatever level the relay has."""
    stream = configured("debug")

    logger = logging.getLogger(name)
    logger.debug("frame %r", CANARY)
    logger.info("Publishing message %r", CANARY)
    logger.warning("connection amqp://guest:%s@host was lost", CANARY, exc_info=ValueError(CANARY))

    assert "" == stream.getvalue()


def test_an_error_of_another_library_is_its_first_line_and_the_exceptions_type_and_place(configured: Configured) -> None:
    """A bug can be found without a traceback that quotes what the exception quotes."""
    stream = configured()
    try:
        raise ValueError(CANARY)  # noqa: TRY301
    except ValueError:
        logging.getLogger("asyncio").exception("Task exception was never retrieved\nfuture: <Task exception=ValueError(%r)>", CANARY)

    [line] = lines(stream)
    assert CANARY not in stream.getvalue()
    assert ("Task exception was never retrieved", "ValueError", "asyncio") == (line["event"], line["error"], line["logger"])
    assert line["where"].startswith("test_logs.py:")


def test_an_error_of_our_own_keeps_its_sentence(configured: Configured) -> None:
    """The relay's errors are made to be read."""
    stream = configured(log_format="console")
    try:
        raise BrokerError("RabbitMQ refused the password: correct RELAY_AMQP_URL.")  # noqa: TRY301
    except BrokerError:
        logging.getLogger("relay").exception("stopped")

    assert "RabbitMQ refused the password" in stream.getvalue()
    assert 1 == len(stream.getvalue().splitlines())


async def test_a_forgotten_task_does_not_print_its_exception(configured: Configured) -> None:
    """The event loop's own report of an exception that was never retrieved leaves out the exception's words."""
    stream = configured()
    loop = asyncio.get_running_loop()

    loop.call_exception_handler({"message": "Task exception was never retrieved", "exception": ValueError(CANARY), "future": CANARY})

    assert ["ValueError"] == [line["error"] for line in lines(stream)]
    assert CANARY not in stream.getvalue()


def test_a_closed_stream_does_not_stop_the_relay(configured: Configured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is not read any more, but messages still go out."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    stream = configured()
    stream.close()

    logs.LogSink()(broker.BrokerUp("4.0"))
