"""A publisher on a real broker, and what a test needs to speak to it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from relay.amqp.publishing.publisher import RabbitPublisher
from relay.codec.encoder import Encoder
from relay.events import Event
from relay.message import Batch, Claim, Portion, PublishResult, Verdict
from tests.support.fakes.adapters import octets

E = TypeVar("E", bound=Event)


class Seen:
    """A sink of events that a test can wait on."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._added = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Take an event."""
        self.events.append(event)
        self._added.set()

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of a kind, oldest first."""
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(self, kind: type[E], count: int = 1, *, seconds: float = 30) -> E:
        """Wait until there are `count` events of a kind; return the last of these."""
        async with asyncio.timeout(seconds):
            while len(self.of(kind)) < count:
                self._added.clear()
                await self._added.wait()
        return self.of(kind)[count - 1]


def claim(exchange: str, routing_key: str = "key", payload: bytes = b'{"n": 1}', **other: Any) -> Claim:
    """Make a claimed message with an id of its own; options are text."""
    fields = {
        "xid": 1,
        "seq": 1,
        "id": str(uuid.uuid4()),
        "binary": False,
        "options": None,
        "ordering_key": None,
        "replay_of": None,
        "attempts": 1,
        "expires_in": None,
    }
    other |= octets(other.get("options"))
    return Claim(**{**fields, "exchange": exchange, "routing_key": routing_key, "payload": payload, **other})


def batch(claims: Iterable[Claim], *, seconds: float = 60, now: float | None = None) -> Batch:
    """Make a batch that was claimed now, or when the given clock says, and may be written for `seconds`."""
    now = time.monotonic() if now is None else now
    return Batch(
        token=str(uuid.uuid4()), claims=list(claims), claimed_at=time.time(), claimed_tick=now, deadline=now + seconds, source="test"
    )


class Publishing:
    """A started publisher with its events."""

    def __init__(self, publisher: RabbitPublisher, seen: Seen) -> None:
        self.publisher = publisher
        self.seen = seen

    async def portions(self, sent: Batch) -> list[Portion]:
        """Publish a batch; return its portions."""
        async with asyncio.timeout(60):
            return [portion async for portion in self.publisher.publish(sent)]

    async def send(self, claims: Iterable[Claim], *, seconds: float = 60) -> list[PublishResult]:
        """Publish claims as one batch; return a result for each, in their order."""
        sent = batch(claims, seconds=seconds)
        results = {}
        for portion in await self.portions(sent):
            for one, result in zip(portion.claims, portion.results, strict=True):
                assert one.id not in results, "two results for one message"
                results[one.id] = result
        return [results[one.id] for one in sent.claims]

    async def verdicts(self, claims: Iterable[Claim]) -> list[Verdict]:
        """Publish claims as one batch; return a verdict for each, in their order."""
        return [result.verdict for result in await self.send(claims)]


@asynccontextmanager
async def publishing(
    *urls: str, wait: bool = True, encoder: Callable[[int], Encoder] | None = None, **arguments: Any
) -> AsyncIterator[Publishing]:
    """Start a publisher on these URLs, and close it in the end."""
    seen = Seen()
    publisher = RabbitPublisher(urls=urls, name="test", encoder=encoder or plain_encoder, emit=seen, **arguments)
    await publisher.start()
    try:
        if wait:
            async with asyncio.timeout(30):
                await publisher.wait_ready()
        yield Publishing(publisher, seen)
    finally:
        await publisher.aclose()


def plain_encoder(frame_max: int) -> Encoder:
    """Make an encoder that allows every exchange and 16 MiB."""
    return Encoder(frame_max=frame_max, max_body_bytes=16 << 20, allowed_exchanges=None)
