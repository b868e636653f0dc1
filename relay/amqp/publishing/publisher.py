"""Publishes batches to RabbitMQ over one supervised connection and returns the result of each message."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Protocol

from relay import events
from relay.amqp.channel_limit import ChannelLimit
from relay.amqp.connection import BrokerConnection, ConnectionLost
from relay.amqp.publishing.channel_allowance import ChannelAllowance
from relay.amqp.publishing.channel_pool import ChannelPool
from relay.amqp.publishing.offenders import Offenders
from relay.amqp.publishing.publish_batch import PublishBatch
from relay.amqp.supervisor import Supervisor
from relay.codec.encoder import Encoder
from relay.events import broker
from relay.message import Batch, Portion, PublishResult, Verdict
from relay.net.secret_url import Secret

_CUT = PublishResult(Verdict.UNKNOWN, "cut", "The relay stopped waiting for the confirm.")
_CUT_UNWRITTEN = PublishResult(Verdict.UNWRITTEN, "cut", "The relay stopped before it was written.")

COUNTED = 0.1
"""Seconds for which the broker usually still counts a closed channel, if it limits channels."""
LOOKS = 60.0
"""Seconds between two checks whether exchanges wait for a channel."""


class Checks(Protocol):
    """Checks that may refuse messages before they are written."""

    def concerned(self, batch: Batch) -> list[int]:
        """The places in the batch of the messages that must be checked."""

    async def check(
        self, batch: Batch, places: Sequence[int], hand_over: Callable[[Sequence[int], Mapping[int, PublishResult]], None]
    ) -> None:
        """Check these messages. Hand over each place as soon as it is checked, with the results of messages that must not be sent."""

    async def aclose(self) -> None:
        """End the checks; may be called at any time, and repeatedly."""


class RabbitPublisher:
    """The port `Publisher` on RabbitMQ.

    A message costs no task, no future and no lock: a batch is encoded and written at once, on one channel per exchange,
    and the broker's answers write the results.

    Args:
        urls: `amqp://` or `amqps://` URLs of brokers with the same vhost, or secrets with such URLs; all hosts in them are tried in turn.
        name: the broker lists the connection as `outbox-relay/<name>`.
        encoder: makes the encoder for a negotiated frame size.
        checks: checks messages before they are written; None for no checks.
        emit: sink of events.
        heartbeat: seconds between heartbeats; a dead peer is noticed within three heartbeats and three seconds.
        patience: seconds after which the results of a batch so far are yielded.
        open_channels: idle channels above this number are closed, the least recently used first.
        clock: monotonic seconds.

    """

    def __init__(
        self,
        *,
        urls: Sequence[Secret],
        name: str,
        encoder: Callable[[int], Encoder],
        emit: events.Sink,
        checks: Checks | None = None,
        heartbeat: int = 10,
        patience: float = 0.25,
        open_channels: int = 100,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not urls:
            raise ValueError("Give at least one AMQP URL.")
        self._encoder = encoder
        self._checks = checks
        self._checking: dict[tuple[PublishBatch, str], float] = {}
        """Batches and exchanges whose messages wait for their check, each with the start of the wait."""
        self._emit = emit
        self._patience = patience
        self._open_channels = open_channels
        self._clock = clock
        self._jobs: dict[PublishBatch, None] = {}
        self._blamed = Offenders()
        self._stopped_writing = False
        self._session: ChannelPool | None = None
        self._limit = ChannelLimit(clock=clock, emit=emit, spares=True)
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._down = ConnectionLost("The broker has not been reached yet.")
        self._supervisor = Supervisor(urls=urls, name=f"outbox-relay/{name}", heartbeat=heartbeat, tenant=self, clock=clock, emit=emit)

    @property
    def ready(self) -> bool:
        """Whether the publisher is connected and not blocked."""
        return self._ready.is_set()

    async def start(self) -> None:
        """Begin to connect, and return at once. A second call changes nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._supervisor.run(), name="broker supervisor")

    async def aclose(self) -> None:
        """Give up on messages in flight and close the connection; may be called at any time, and repeatedly."""
        task, self._task = self._task, None
        self.cut()
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._checks is not None:
            await self._checks.aclose()

    async def wait_ready(self) -> None:
        """Return once `ready` is true."""
        await self._ready.wait()

    def publish(self, batch: Batch) -> AsyncGenerator[Portion, None]:
        """Write a batch and yield portions of results. Each exchange keeps the order of the calls, except for messages that are checked."""
        job = PublishBatch(batch, self._clock)
        wait: Sequence[int] = ()
        if self._stopped_writing:
            job.give_up(written=None, unwritten=_CUT_UNWRITTEN)
        elif self._session is None:
            job.give_up(written=None, unwritten=PublishResult(Verdict.UNWRITTEN, "broker_down", self._down.sentence))
        else:
            self._jobs[job] = None
            wait = self._checks.concerned(batch) if self._checks else ()
            self._session.submit(job, sorted({*range(len(batch.claims))} - {*wait}) if wait else None)
        return self._portions(job, wait)

    def stop_writing(self) -> None:
        """Write no further message: messages that were not written are UNWRITTEN, the others wait for their confirms.

        A message whose channel died before its confirm may still be written again, because its confirm can arrive in no other way.
        """
        self._stopped_writing = True
        for job in self._jobs:
            job.give_up(written=None, unwritten=_CUT_UNWRITTEN)

    def cut(self) -> None:
        """Give up on confirms: written messages are UNKNOWN, the rest are UNWRITTEN."""
        for job in self._jobs:
            job.give_up(written=_CUT, unwritten=_CUT_UNWRITTEN)

    def silent(self) -> dict[str, float]:
        """For each exchange with an unconfirmed write or an unfinished check: the seconds since the oldest of these."""
        silent, now = self._session.silent() if self._session else {}, self._clock()
        for (_, exchange), since in self._checking.items():
            silent[exchange] = max(now - since, silent.get(exchange, 0.0))
        return silent

    def in_flight(self) -> dict[str, int]:
        """Messages that were handed over and have no result yet, by exchange."""
        return self._session.in_flight() if self._session else {}

    def up(self, link: BrokerConnection) -> None:
        """Use a new connection."""
        most = self._limit.of(link.channel_max)
        wake = asyncio.get_running_loop().call_later
        later = partial(wake, COUNTED) if self._limit.is_learned else None
        self._session = ChannelPool(
            pipe=link.tap,
            user=link.user,
            encoder=self._encoder(link.frame_max),
            channels=ChannelAllowance(most, self._open_channels, wake, partial(self._limit.shared, most), later),
            clock=self._clock,
            emit=self._emit,
            blamed=self._blamed,
        )
        link.tap.owner = self
        self._look(self._session)
        self._ready.set()

    def down(self, lost: ConnectionLost) -> None:
        """Decide the messages that the lost connection leaves open; this call sends nothing again."""
        if self._session and self._session.blocked:
            # The broker reports a lasting alarm to the next connection again, but never reports its end to the lost connection.
            self._emit(broker.BrokerUnblocked())
        if self._session and lost.allowed is not None:
            self._limit.refused(self._session.channels, lost.allowed, sharing=self._session.exchanges)
        if self._session and lost.blame:
            self._blamed.blame(self._session.suspects() or [slot for job in self._jobs for slot in job.in_doubt()], lost.sentence)
        self._session, self._down = None, lost
        self._ready.clear()
        unknown = PublishResult(Verdict.UNKNOWN, "connection_lost", lost.sentence)
        unwritten = PublishResult(Verdict.UNWRITTEN, "connection_lost", lost.sentence)
        for job in self._jobs:
            job.give_up(written=unknown, unwritten=unwritten)

    def blocked(self, reason: str) -> None:
        """Write nothing more until the alarm is over; messages in flight wait."""
        if self._session:
            self._session.blocked = True
            self._ready.clear()
            self._emit(broker.BrokerBlocked(reason))

    def unblocked(self) -> None:
        """Write again."""
        if self._session:
            self._session.blocked = False
            self._ready.set()
            self._emit(broker.BrokerUnblocked())
            self._session.pump()

    def resumed(self) -> None:
        """The transport has room again."""
        if self._session:
            self._session.pump()

    def _look(self, session: ChannelPool) -> None:
        """Check periodically whether exchanges wait for a channel, as long as the connection lives."""
        if session is self._session:
            self._limit.look(waiting=session.is_short)
            asyncio.get_running_loop().call_later(LOOKS, self._look, session)

    async def _portions(self, job: PublishBatch, wait: Sequence[int]) -> AsyncGenerator[Portion, None]:
        checking = asyncio.create_task(self._check(job, wait)) if wait else None
        try:
            async with aclosing(job.portions(self._patience)) as portions:
                async for portion in portions:
                    yield portion
        finally:
            self._jobs.pop(job, None)
            if checking is not None:
                checking.cancel()
                with suppress(asyncio.CancelledError):
                    await checking

    async def _check(self, job: PublishBatch, wait: Sequence[int]) -> None:
        """Submit messages once they are checked, including refused messages, because another reason may take precedence."""
        assert self._checks is not None
        left = Counter((job, job.claims[place].exchange) for place in wait)
        self._checking |= dict.fromkeys(left, self._clock())

        def hand_over(places: Sequence[int], refused: Mapping[int, PublishResult]) -> None:
            job.refused |= refused
            keys = [(job, job.claims[place].exchange) for place in places]
            left.subtract(keys)
            for key in keys:
                if not left[key]:
                    self._checking.pop(key, None)
            if self._session and not job.done:
                self._session.submit(job, places)

        try:
            await self._checks.check(job.batch, wait, hand_over)
        except Exception:
            job.give_up(written=None, unwritten=_CUT_UNWRITTEN)
            raise
        finally:
            for key in left:
                self._checking.pop(key, None)
