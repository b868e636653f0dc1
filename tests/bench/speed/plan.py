"""What is measured, in which order, and what must be reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tests.bench.figures import Figure, figure
from tests.bench.speed import drains, kinds
from tests.bench.speed.counters import updates_of
from tests.bench.speed.drains import Round
from tests.bench.speed.kinds import Kind
from tests.bench.speed.stage import Stage

Measure = Callable[[Stage, int], Awaitable[list[Figure]]]
"""Takes servers and a number of rounds."""


class Part(NamedTuple):
    """Something that can be measured by itself."""

    measure: Measure
    about: str


async def drain(stage: Stage, rounds: int) -> list[Figure]:
    """One relay, messages of 300 bytes: rate, CPU of each party, WAL, updates in place, memory."""
    url = stage.database()
    async with stage.relays(url) as relays:
        before = updates_of(url)
        found = await drains.rounds(stage, url, relays, kinds.PLAIN, count=rounds)
        hot = await drains.hot_share(url, before)
    name = f"drain of {kinds.PLAIN.rows:,} messages"
    return [
        *_rates(found, kinds.PLAIN),
        figure(f"{name}: relay's CPU of a message", "µs", [one.drain.relay for one in found], most=25),
        figure(f"{name}: PostgreSQL's CPU of a message", "µs", [one.drain.postgres for one in found], most=30),
        figure(f"{name}: broker's CPU of a message", "µs", [one.drain.broker for one in found]),
        figure(f"{name}: bare publisher's CPU of a message", "µs", [one.before.cpu for one in found]),
        figure(f"{name}: WAL of a message", "B", [one.drain.wal for one in found], most=900),
        figure(f"{name}: full-page images of a message", "B", [one.drain.images for one in found]),
        figure(f"{name}: claims that are HOT", "%", [hot * 100], least=99),
        figure(f"{name}: relay's memory at its peak", "MiB", [max(one.drain.memory for one in found)]),
    ]


def draining(some: Sequence[Kind]) -> Measure:
    """One relay and messages of each of these kinds."""

    async def measure(stage: Stage, rounds: int) -> list[Figure]:
        url, figures = stage.database(), list[Figure]()
        async with stage.relays(url) as relays:
            for kind in some:
                found = await drains.rounds(stage, url, relays, kind, count=rounds)
                figures += _rates(found, kind)
        return figures

    return measure


def _rates(found: Sequence[Round], kind: Kind) -> list[Figure]:
    return [
        figure(f"{kind.name}: relay", "messages/s", [one.drain.rate for one in found]),
        figure(f"{kind.name}: bare publisher", "messages/s", [one.bare for one in found]),
        figure(f"{kind.name}: relay : bare", "times", [one.ratio for one in found], least=kind.least),
    ]


PARTS: dict[str, Part] = {
    "drain": Part(drain, "one relay, 300 bytes of JSON"),
    "mixed": Part(draining(kinds.MIXED), "headers, many exchanges, 1 kB, a quorum queue"),
}
