"""Several relays on one queue table: what they move together compared with one alone, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from tests.bench.figures import Figure, figure, ratio
from tests.bench.speed import kinds
from tests.bench.speed.drains import Drain, drain
from tests.bench.speed.stage import Stage, tidy
from tests.support.relays.processes import RelayProcess

COUNTS = (1, 2, 4, 8)
ROWS = 30_000
_WARM = 2_000
"""Messages for each relay before what is measured: statements are prepared, and channels open."""
_LEAST = 0.95


async def measure_crowds(stage: Stage, rounds: int) -> list[Figure]:
    """One relay, then 2, 4 and 8; every other round goes the other way round, and one drain before them is not counted."""
    url, found = stage.database(), defaultdict[int, list[Drain]](list)
    await stage.lay(kinds.PLAIN)
    await _drained(stage, url, COUNTS[0])
    for number in range(rounds):
        for count in reversed(COUNTS) if number % 2 else COUNTS:
            one = await _drained(stage, url, count)
            stage.say(f"{_words(count)}: {one.rate:,.0f}/s; CPU of a message: relays {one.relay:.1f}, PostgreSQL {one.postgres:.1f} µs")
            found[count].append(one)
    return _figures(found)


async def _drained(stage: Stage, url: str, count: int) -> Drain:
    """A backlog drained by so many relays, which begin before and end after."""
    async with _crowd(stage, url, count) as relays:
        await drain(stage, url, relays, kinds.PLAIN, rows=_WARM * count)
        tidy(url)
        drained = await drain(stage, url, relays, kinds.PLAIN, rows=ROWS)
    assert ROWS + _WARM * count == await stage.purge(), "the queue has other messages than were inserted"
    return drained


@asynccontextmanager
async def _crowd(stage: Stage, url: str, count: int) -> AsyncIterator[Sequence[RelayProcess]]:
    """So many relays; they end in order, so that none of them is heard of or waited for in the next round."""
    async with stage.relays(url, count) as relays:
        yield relays
        for relay in relays:
            await relay.stop()


def _figures(found: Mapping[int, Sequence[Drain]]) -> list[Figure]:
    rates = {count: [one.rate for one in drains] for count, drains in found.items()}
    name = f"drain of {ROWS:,} messages"
    return [
        *(figure(f"{name} by {_words(count)}", "messages/s", some) for count, some in rates.items()),
        *(ratio(f"{name}: {_words(count)} : one", some, rates[1], least=_LEAST) for count, some in rates.items() if count > 1),
        *(figure(f"{name} by {_words(count)}: PostgreSQL's CPU", "µs", [one.postgres for one in some]) for count, some in found.items()),
        *(figure(f"{name} by {_words(count)}: relays' CPU", "µs", [one.relay for one in some]) for count, some in found.items()),
    ]


def _words(count: int) -> str:
    return "one relay" if count == 1 else f"{count} relays"
