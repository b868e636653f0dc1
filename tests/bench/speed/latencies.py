"""How long a message takes from its COMMIT to a consumer: at 200 a second, and at half of what the relay can do.

From just before COMMIT is sent until the consumer has the body; writer, relay and consumer are processes of their own.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.bench.figures import Figure, figure
from tests.bench.share import Delays
from tests.bench.speed import drains, ends, kinds
from tests.bench.speed.stage import Stage, tidy

_VALUES = {"exchange": kinds.QUEUE, "routing_key": kinds.ROUTING_KEY, "pad": "x" * 275}
_INSERT = """
    INSERT INTO queue_message (exchange, routing_key, content)
    SELECT %(exchange)s, %(routing_key)s, jsonb_build_object('value', n, 'pad', %(pad)s::text)
    FROM generate_series(%(first)s::int, %(last)s::int) AS n
"""
PATIENCE = 60.0
"""Seconds that a consumer waits longer than the writer needs."""


class Pace(NamedTuple):
    """Messages a second, messages in a transaction, and for how long."""

    rate: float
    rows: int
    seconds: float

    @property
    def messages(self) -> int:
        """Messages of it, in whole transactions."""
        return round(self.rate * self.seconds / self.rows) * self.rows


SINGLE = Pace(200, 1, 10)
ROWS = 50
"""Of a transaction at half of capacity."""
SECONDS = 10.0
"""Of a round at half of capacity."""
WARM = 3.0
"""Seconds of a round that is not counted."""


async def measure_singles(stage: Stage, rounds: int) -> list[Figure]:
    """200 messages a second, each in a transaction of its own."""
    url = stage.database()
    await stage.lay(kinds.SHORT)
    async with stage.relays(url):
        found = await _rounds(stage, url, SINGLE, rounds)
    return _figures(f"COMMIT to consumer, {SINGLE.rate:g}/s", found, p50=3, p99=10)


async def measure_half(stage: Stage, rounds: int) -> list[Figure]:
    """Half of what the relay drains a second, in transactions of some tens."""
    url = stage.database()
    await stage.lay(kinds.SHORT)
    async with stage.relays(url) as relays:
        await drains.drain(stage, url, relays, kinds.SHORT)
        capacity = (await drains.drain(stage, url, relays, kinds.PLAIN)).rate
        await stage.purge()
        pace = Pace(capacity / 2, ROWS, SECONDS)
        stage.say(f"capacity {capacity:,.0f}/s, so {pace.rate:,.0f}/s in transactions of {ROWS}")
        found = await _rounds(stage, url, pace, rounds)
    name = "COMMIT to consumer at half of capacity"
    return [figure(f"{name}: pace", "messages/s", [pace.rate]), *_figures(name, found, p99=30)]


def _figures(name: str, found: list[Delays], *, p50: float | None = None, p99: float) -> list[Figure]:
    return [
        figure(f"{name}: p50", "ms", [one.p50 for one in found], most=p50),
        figure(f"{name}: p99", "ms", [one.p99 for one in found], most=p99),
        figure(f"{name}: longest", "ms", [one.longest for one in found]),
    ]


async def _rounds(stage: Stage, url: str, pace: Pace, count: int) -> list[Delays]:
    """So many rounds, and a short one before them that is not counted."""
    found = []
    for number in range(count + 1):
        tidy(url)
        one = await _delays(stage, url, pace if number else pace._replace(seconds=WARM))
        stage.say(f"{pace.rate:,.0f}/s: {one}{'' if number else ' (not counted)'}")
        found += [one] if number else []
    return found


async def _delays(stage: Stage, url: str, pace: Pace) -> Delays:
    """One round, of which nothing may be missing."""
    left, came = await ends.both(
        writer={
            "database": url, "insert": _INSERT, "values": _VALUES, "first": 0, "count": pace.messages, "rows": pace.rows, "rate": pace.rate
        },
        consumer={"broker": stage.rabbitmq.url, "count": pace.messages, "seconds": pace.seconds + PATIENCE},
    )  # fmt: skip
    assert left.keys() == came.keys(), f"{len(left) - len(came)} of {pace.messages} messages did not come"
    needed = max(left.values()) - min(left.values())
    if needed > pace.seconds * 1.05:
        stage.say(f"the writer did not keep this pace: it needed {needed:.1f} s instead of {pace.seconds:g}")
    return Delays.of([came[number] - at for number, at in left.items()])
