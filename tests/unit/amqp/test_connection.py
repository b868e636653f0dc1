"""The protocol between socket and aiormq, without a socket; and the pauses between two connects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from pamqp import commands
from pamqp.frame import marshal

from relay.aio import pause
from relay.amqp import frames
from relay.amqp.connection import ConnectionLost, FrameRouter


def tap() -> tuple[FrameRouter, asyncio.StreamReader]:
    """Make a tap and the stream that aiormq reads."""
    reader = asyncio.StreamReader()
    return FrameRouter(reader, asyncio.get_running_loop()), reader


def waiting(reader: asyncio.StreamReader) -> bytes:
    """Return what aiormq could read now."""
    return bytes(reader._buffer)  # type: ignore[attr-defined] # a look inside: reading would wait


async def test_aiormq_is_told_that_the_broker_lives() -> None:
    """It counts frames to notice a dead peer, and does not see confirms. One heartbeat a second replaces them."""
    between, reader = tap()
    for tag in range(1, 100):
        between.data_received(marshal(commands.Basic.Ack(tag), 1))
    assert waiting(reader) == frames.HEARTBEAT_FRAME


async def test_a_frame_of_channel_0_stands_for_itself() -> None:
    """No heartbeat is added where aiormq sees a frame anyway."""
    between, reader = tap()
    blocked = marshal(commands.Connection.Blocked("low on disk"), 0)
    between.data_received(blocked)
    assert waiting(reader) == blocked


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (marshal(commands.Basic.Ack(1), 1)[:-1] + b"\x00", "without its end octet"),
        (b"\x01\x00\x00\x00\x00\x00\x01\x00\xce", "cannot be read"),
    ],
)
async def test_what_breaks_the_protocol_ends_the_connection(data: bytes, words: str) -> None:
    """Nothing that follows such a frame is believed."""
    between, _ = tap()
    between.data_received(data)
    assert words in (await between.ended).sentence
    assert not between.writable


@pytest.mark.parametrize(("code", "blame"), [(320, False), (501, True), (504, True), (530, False), (540, True), (541, True)])
async def test_a_close_that_a_frame_brought_about_is_told_from_others(code: int, blame: bool) -> None:
    """A protocol error puts what was in flight at fault; an operator's close does not."""
    between, _ = tap()
    between.data_received(marshal(commands.Connection.Close(code, "WORDS", 0, 0), 0))
    assert await between.ended == ConnectionLost(f"The broker closed the connection ({code} WORDS).", blame)


async def test_the_first_reason_of_an_end_holds() -> None:
    """The socket closes after the broker said why."""
    between, _ = tap()
    between.data_received(marshal(commands.Connection.Close(320, "SHUTDOWN", 0, 0), 0))
    between.connection_lost(None)
    between.end(ConnectionLost("later"))
    assert "320 SHUTDOWN" in (await between.ended).sentence


def test_pauses_double_up_to_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance takes up to half, so that many relays do not come back at once."""
    monkeypatch.setattr("random.random", lambda: 0.0)
    assert [pause(failures) for failures in (1, 2, 3, 6, 7, 1000)] == [0.1, 0.2, 0.4, 3.2, 5.0, 5.0]
    monkeypatch.setattr("random.random", lambda: 1.0)
    assert pause(1) == 0.05


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_is_written_when_aiormq_has_closed_already_goes_nowhere(loops: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """It closes by itself, and the tap hears of it later: nothing is raised, and the connection is known to have ended."""
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(_write_after_eof())


async def _write_after_eof() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        between, reader = tap()
        host, port = server.sockets[0].getsockname()
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: between, host, port)
        writer = asyncio.StreamWriter(transport, between.stream, reader, asyncio.get_running_loop())
        writer.write_eof()
        writer.close()
        try:
            between.write(frames.HEARTBEAT_FRAME)
            assert "is lost" in (await between.ended).sentence
            assert not between.writable
        finally:
            await gone.wait()
