"""What is measured, in which order, and what must be reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tests.bench.figures import Figure, figure, ratio
from tests.bench.speed import archives, backlogs, drains, kinds, snapshots
from tests.bench.speed.archives import measure_archives
from tests.bench.speed.backlogs import measure_backlogs, measure_long_backlogs
from tests.bench.speed.comforts import measure_contracts, measure_folds
from tests.bench.speed.counters import updates_of
from tests.bench.speed.crowds import measure_crowds
from tests.bench.speed.drains import Round
from tests.bench.speed.inboxes import measure_receive, measure_work
from tests.bench.speed.kinds import Kind
from tests.bench.speed.latencies import measure_half, measure_singles
from tests.bench.speed.profiles import measure_profile
from tests.bench.speed.resting import measure_idle, measure_start
from tests.bench.speed.snapshots import measure_snapshots
from tests.bench.speed.stage import Stage
from tests.bench.speed.writers import measure_writers

Measure = Callable[[Stage, int], Awaitable[list[Figure]]]
"""Takes servers and a number of rounds."""


class Part(NamedTuple):
    """Something that can be measured by itself."""

    measure: Measure
    about: str
    disk: int = 0
    """Bytes that its largest piece needs."""


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
                figures += _rates(await drains.rounds(stage, url, relays, kind, count=rounds), kind)
        return figures

    return measure


async def large(stage: Stage, rounds: int) -> list[Figure]:
    """Bodies of 10 kB and more: whose CPU the bytes take, and what of them is in memory."""
    url, figures = stage.database(), list[Figure]()
    for kind in kinds.LARGE:
        # One relay for each kind, since a process tells its peak so far.
        async with stage.relays(url) as relays:
            found = await drains.rounds(stage, url, relays, kind, count=rounds)
            await relays[0].stop()
            kilobytes = kind.size / 1000
            figures += _rates(found, kind)
            figures += [
                figure(f"{kind.name}: bytes", "MB/s", [one.drain.rate * kind.size / 1e6 for one in found]),
                figure(f"{kind.name}: relay's CPU of a kilobyte", "µs", [one.drain.relay / kilobytes for one in found]),
                figure(f"{kind.name}: PostgreSQL's CPU of a kilobyte", "µs", [one.drain.postgres / kilobytes for one in found]),
                figure(f"{kind.name}: broker's CPU of a kilobyte", "µs", [one.drain.broker / kilobytes for one in found]),
                figure(f"{kind.name}: relay's memory at its peak", "MiB", [max(one.drain.memory for one in found)]),
            ]
    return figures


async def ordered(stage: Stage, rounds: int) -> list[Figure]:
    """Compare many keys with messages without order, and few keys with a publisher that is bounded by the same number in flight."""
    many, few = kinds.ORDERED
    url = stage.database()
    async with stage.relays(url) as relays:
        plain = [one.drain.rate for one in await drains.rounds(stage, url, relays, kinds.SHORT, count=rounds)]
        with_many = [one.drain.rate for one in await drains.rounds(stage, url, relays, many, count=rounds)]
        with_few = await drains.rounds(stage, url, relays, few, count=rounds, window=few.keys)
    bound = f"bare publisher with {few.keys} in flight"
    return [
        figure("without order", "messages/s", plain),
        figure(many.name, "messages/s", with_many),
        ratio(f"{many.name} : without order", with_many, plain, least=0.5),
        figure(few.name, "messages/s", [one.drain.rate for one in with_few]),
        figure(bound, "messages/s", [one.bare for one in with_few]),
        figure(f"{few.name} : {bound}", "times", [one.ratio for one in with_few]),
    ]


def _rates(found: Sequence[Round], kind: Kind) -> list[Figure]:
    return [
        figure(f"{kind.name}: relay", "messages/s", [one.drain.rate for one in found]),
        figure(f"{kind.name}: bare publisher", "messages/s", [one.bare for one in found]),
        figure(f"{kind.name}: relay : bare", "times", [one.ratio for one in found], least=kind.least),
    ]


SHORT: dict[str, Part] = {
    "drain": Part(drain, "one relay, 300 bytes of JSON"),
    "mixed": Part(draining(kinds.MIXED), "headers, many exchanges, 1 kB, a quorum queue"),
    "large": Part(large, "bodies of 10 kB, 100 kB, 1 MB"),
    "ordered": Part(ordered, "1,000 ordering keys, and 10"),
    "crowds": Part(measure_crowds, "1, 2, 4 and 8 relays on one table"),
    "latency": Part(measure_singles, "COMMIT to consumer at 200 a second"),
    "half": Part(measure_half, "COMMIT to consumer at half of capacity"),
    "idle": Part(measure_idle, "a relay with nothing to do"),
    "start": Part(measure_start, "from the process's start to the first publish"),
    "writers": Part(measure_writers, "INSERT and COMMIT beside a bare table"),
    "inbox": Part(measure_receive, "60,000 messages from a queue into an inbox"),
    "worker": Part(measure_work, "an inbox emptied by a handler that does nothing"),
    "contracts": Part(measure_contracts, "a drain under a message contract beside one without"),
    "folds": Part(measure_folds, "60,000 rows with a bundle_key, and with a coalesce_key"),
}
LONG: dict[str, Part] = {
    "profile": Part(measure_profile, "CPU of a message by stage of the relay and by process of PostgreSQL"),
    "backlogs": Part(measure_backlogs, "10,000 and 100,000 waiting"),
    "large-backlogs": Part(measure_long_backlogs, "10,000, a million and 10 million waiting", backlogs.NEEDED),
    "snapshot": Part(measure_snapshots, "a snapshot held for ten minutes under load", snapshots.NEEDED),
    "archive": Part(measure_archives, "10 million archived messages of 30 days", archives.NEEDED),
}
