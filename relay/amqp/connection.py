"""One AMQP connection: aiormq logs in, tunes, keeps the heartbeat and closes on channel 0; the other channels are the relay's.

aiormq opens its socket through a public `TransportFactory`. The factory of this module inserts a protocol that cuts the stream into
frames (`relay.amqp.frames`) and passes aiormq only the frames of channel 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import Any, Final, NamedTuple, Protocol, cast

import aiormq
from yarl import URL

from relay import __version__
from relay.amqp import frames
from relay.amqp.connection_errors import channels_allowed, connect_sentence
from relay.amqp.frames import ReplyReason
from relay.errors import BrokerError
from relay.net.transport_security import broker_risk, in_brackets

HIGH_WATER: Final = 4 << 20
"""Bytes in the transport's buffer above which nothing more is written."""
CONNECT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 3.0
ALIVE_INTERVAL: Final = 1.0
"""Seconds between the heartbeats that aiormq gets in place of the frames that it does not see."""
PROTOCOL_ERRORS: Final = frozenset((501, 502, 503, 504, 505, 506, 540, 541))
"""Reply codes of a `connection.close` that a client's frame caused (AMQP 0-9-1, 1.2)."""
_FEWER = "fewer channels are shared from now on: for more raise the limit and start the relay again"


class ConnectionLost(NamedTuple):
    """Why a connection ended."""

    sentence: str
    blame: bool = False
    """The broker closed the connection over a protocol error, and a message may be the cause."""
    allowed: int | None = None
    """How many channels are allowed, if the broker closed the connection over one channel too many; 0 if the broker names no number."""


class ConnectionOwner(Protocol):
    """Receives the events that concern the connection as a whole."""

    def blocked(self, reason: str) -> None:
        """The broker reads nothing more until its resource alarm is over."""

    def unblocked(self) -> None:
        """The alarm is over."""

    def resumed(self) -> None:
        """The transport has room again."""


class FrameRouter(asyncio.Protocol):
    """The protocol between socket and aiormq; frames of all channels but 0 go to the handlers."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        loop: asyncio.AbstractEventLoop,
        *,
        host: str = "",
        cut: type[frames.FrameParser] = frames.FrameParser,
    ) -> None:
        self.stream = asyncio.StreamReaderProtocol(reader, loop=loop)
        self.owner: ConnectionOwner | None = None
        self.close_reason: ReplyReason | None = None
        self.ended: asyncio.Future[ConnectionLost] = loop.create_future()
        """Done as soon as the connection is known to be unusable for writing."""
        self.host = host
        """Host and port as in the URL."""
        self._broker = f"broker at {host}" if host else "broker"
        self._reader = reader
        self._wire = cut(self)
        self._transport: asyncio.Transport | None = None
        self.address = ""
        """The address of the peer, as text."""
        self._paused = False
        self._alive_at = 0.0

    @property
    def handlers(self) -> dict[int, frames.ChannelHandler]:
        """The handler of each channel."""
        return self._wire.handlers

    @property
    def writable(self) -> bool:
        """Whether the connection is open and has room in the transport's buffer."""
        return not self._paused and not self.ended.done()

    def write(self, data: bytes) -> None:
        """Write whole frames to the socket; after the end of the connection they are discarded."""
        if self._transport is None or self.ended.done():
            return
        try:
            self._transport.write(data)
        except RuntimeError as error:
            # At the end of the stream, or without heartbeats, aiormq closes the transport; this protocol is called one loop turn later.
            self.end(ConnectionLost(f"The connection to the {self._broker} is lost ({error})."))

    def limit(self, frame_max: int) -> None:
        """Accept no frame above the agreed size (0: no limit); a larger frame ends the connection."""
        self._wire.limit(frame_max)

    def end(self, lost: ConnectionLost) -> None:
        """Cut the connection at once."""
        if not self.ended.done():
            self.ended.set_result(lost)
        if self._transport is not None:
            self._transport.abort()

    def blocked(self, reason: str) -> None:
        """Pass the broker's `connection.blocked` to the owner."""
        if self.owner:
            self.owner.blocked(reason)

    def unblocked(self) -> None:
        """Pass the broker's `connection.unblocked` to the owner."""
        if self.owner:
            self.owner.unblocked()

    def closing(self, reason: ReplyReason) -> None:
        """Note why the broker closes the connection; aiormq answers and closes the socket."""
        self.close_reason = reason
        if not self.ended.done():
            allowed = channels_allowed(reason)
            then = "" if allowed is None else f"; {_FEWER}"
            sentence = f"The {self._broker} closed the connection ({reason.code} {reason.text}){then}."
            self.ended.set_result(ConnectionLost(sentence, reason.code in PROTOCOL_ERRORS, allowed))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit the write buffer, and enable probes that detect a dead peer."""
        # A cast: the transports of uvloop do not inherit from asyncio's.
        transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=HIGH_WATER)
        _keep_alive(transport.get_extra_info("socket"))
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self._transport = transport
        self.stream.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Record why the connection ended, unless a reason was recorded before."""
        if not self.ended.done():
            cause = f"{type(exc).__name__}: {exc}" if exc else "the other side hung up"
            self.ended.set_result(ConnectionLost(f"The connection to the {self._broker} is lost ({cause})."))
        self._transport = None
        self.stream.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Cut the bytes into frames; bytes that break the protocol end the connection."""
        try:
            ours = self._wire.feed(data)
        except BrokerError as error:
            self.end(ConnectionLost(str(error)))
            return
        except Exception as error:  # noqa: BLE001 - a frame that cannot be read must not be mistaken for anything else
            self.end(
                ConnectionLost(f"The broker sent a frame that cannot be read ({type(error).__name__}: {error}); the connection is dropped.")
            )
            return
        now = time.monotonic()
        if not ours and now - self._alive_at >= ALIVE_INTERVAL:
            ours = frames.HEARTBEAT_FRAME
        if ours:
            self._alive_at = now
            self._reader.feed_data(ours)

    def eof_received(self) -> bool | None:
        """Let aiormq see the end of the stream; aiormq then closes."""
        return self.stream.eof_received()

    def pause_writing(self) -> None:
        """The buffer is full."""
        self._paused = True
        self.stream.pause_writing()

    def resume_writing(self) -> None:
        """The buffer has room."""
        self._paused = False
        self.stream.resume_writing()
        if self.owner:
            self.owner.resumed()


class BrokerConnection:
    """An open connection."""

    def __init__(self, connection: aiormq.Connection, tap: FrameRouter) -> None:
        self._connection = connection
        self.tap = tap
        self.host = tap.host
        tune = connection.connection_tune
        self.frame_max = int(tune.frame_max or 0)
        self.channel_max = int(tune.channel_max or 0)
        tap.limit(self.frame_max)
        version = (connection.server_properties or {}).get("version", "")
        self.version = str(version)
        external = connection.url.query.get("auth", "").lower() == "external"
        self.user = None if external else connection.url.user or "guest"
        """The user who is logged in; None if a certificate names the user."""
        self.risk = broker_risk(connection.url, address=tap.address)
        """What is unsafe about the connection, as a sentence."""

    async def close(self) -> None:
        """Close the connection by the AMQP protocol within `CLOSE_SECONDS`, then cut it."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connection.close()
        self.tap.end(ConnectionLost("The relay closed the connection."))


async def connect(url: str, *, name: str, heartbeat: int, cut: type[frames.FrameParser] = frames.FrameParser) -> BrokerConnection:
    """Open a connection that the broker lists as `name`. The URL's heartbeat, if it names one, overrides `heartbeat` (in seconds).

    `cut` is the parser class that cuts received bytes into frames.

    Raises:
        BrokerError: the connection could not be opened; the error is one sentence that says why, and what to do.
    """
    target = _target(url, name=name, heartbeat=heartbeat)
    sockets = _Sockets(cut)
    connection = aiormq.Connection(target, transport_factory=sockets, client_properties={"product": "outbox-relay", "version": __version__})
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.connect()
    except (Exception, asyncio.CancelledError) as error:
        if sockets.tap:
            sockets.tap.end(ConnectionLost("The login failed."))
        if isinstance(error, asyncio.CancelledError) and _really_cancelled():
            raise
        closed = sockets.tap.close_reason if sockets.tap else None
        accepted = bool(sockets.tap and sockets.tap.address)
        raise BrokerError(connect_sentence(connection.url, error, closed, accepted=accepted)) from error
    assert sockets.tap is not None
    link = BrokerConnection(connection, sockets.tap)
    if not connection.publisher_confirms:
        await link.close()
        raise BrokerError(f"The broker at {in_brackets(target.host)} offers no publisher confirms: use RabbitMQ.")
    return link


def _target(url: str, *, name: str, heartbeat: int) -> URL:
    try:
        target = URL(url)
    except ValueError as error:
        raise BrokerError(f"The AMQP URL cannot be read ({error}): write amqp://user:password@host:port/vhost.") from error
    if target.scheme not in ("amqp", "amqps") or not target.host:
        raise BrokerError("The AMQP URL names no broker: write amqp://user:password@host:port/vhost, or amqps:// for TLS.")
    return target.update_query(name=name, heartbeat=target.query.get("heartbeat", str(heartbeat)))


class _Sockets(aiormq.TransportFactory):
    """Opens the socket with a `FrameRouter` in it. Uses TLS for `amqps://`, and verifies the broker unless the URL turns that off."""

    def __init__(self, cut: type[frames.FrameParser]) -> None:
        self._cut = cut
        self.tap: FrameRouter | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        provider = kwargs.pop("ssl_context_provider")
        context = await provider.get_context() if url.scheme == "amqps" else None
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        tap = self.tap = FrameRouter(reader, loop, host=f"{in_brackets(url.host)}:{url.port}", cut=self._cut)
        transport, _ = await loop.create_connection(lambda: tap, url.host or "", url.port or 0, ssl=context, **kwargs)
        return reader, asyncio.StreamWriter(transport, tap.stream, reader, loop)


def _really_cancelled() -> bool:
    """Whether the task was cancelled by its owner; aiormq reports a dead peer as CancelledError too."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _keep_alive(sock: socket.socket | None) -> None:
    """Enable TCP keepalive in addition to the heartbeat.

    TCP_USER_TIMEOUT is not set: Linux also applies it to a peer that does not read for a while, such as a blocked broker.
    """
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
