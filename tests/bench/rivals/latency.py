"""How long a message takes from its COMMIT to a consumer at 200 a second, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.figures import Figure, figure
from tests.bench.rivals import backlog
from tests.bench.rivals.process import running
from tests.bench.rivals.rival import FIRST, PAD, Rival
from tests.bench.share import Delays
from tests.bench.speed import ends
from tests.bench.speed.kinds import QUEUE, ROUTING_KEY, SHORT
from tests.bench.speed.stage import Stage

RATE = 200
WARM = 2.0
"""Seconds whose times are not counted."""
PATIENCE = 30.0
"""Seconds that the consumer waits longer than the writer needs."""
_APART = 10_000
"""Between the numbers of the run that is not counted and those of the one that is."""


async def measure(stage: Stage, rival: Rival, seconds: float) -> tuple[list[Figure], list[str]]:
    """One run of so many seconds, after a short one that is not counted; and a sentence if messages did not come."""
    database = stage.database()
    rival.prepare(database)
    await stage.lay(SHORT)
    async with running(stage, rival, database):
        warm = await _ways(stage, rival, database, FIRST, WARM)
        ways = await _ways(stage, rival, database, FIRST + _APART, seconds)
    missing = [number for number, way in (warm | ways).items() if way is None]
    delays = Delays.of([way for way in ways.values() if way is not None])
    stage.say(f"{rival.name}: {delays} at {RATE}/s, {len(missing)} did not come")
    name = f"COMMIT to consumer, {RATE}/s"
    figures = [figure(f"{name}: p50", "ms", [delays.p50]), figure(f"{name}: p99", "ms", [delays.p99])]
    return figures, _sentences(rival, database, missing, len(warm | ways)) if missing else []


def _sentences(rival: Rival, database: str, missing: Sequence[int], count: int) -> list[str]:
    still = backlog.numbers(database, rival.statements.waiting).intersection(missing)
    return [f"latency: {len(missing)} of {count} messages did not come within {PATIENCE:g} s; {len(still)} of them wait in the table"]


async def _ways(stage: Stage, rival: Rival, database: str, first: int, seconds: float) -> dict[int, float | None]:
    """Seconds from the COMMIT to the consumer by message; None for one that did not come."""
    count = round(RATE * seconds)
    values = {"exchange": QUEUE, "routing_key": ROUTING_KEY, "pad": PAD}
    pace = {"first": first, "count": count, "rows": 1, "rate": RATE}
    left, came = await ends.both(
        writer={"database": database, "insert": rival.statements.insert, "values": values, **pace},
        consumer={"broker": stage.rabbitmq.url, "count": count, "seconds": seconds + PATIENCE},
    )
    return {number: came[number] - at if number in came else None for number, at in left.items()}
