"""Plays a soak: load, a fault each minute, samples; then the ledger and the verdict."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from relay import devservers
from relay.demo import ledger
from tests.soak.closing import archive, backlog, settled
from tests.soak.faults import FAULTS, WINDOWS
from tests.soak.fleet import RELAY_LOG
from tests.soak.load import PRODUCERS, Consumer, Producer
from tests.soak.machine import described
from tests.soak.samples import Control, Sampler
from tests.soak.shards import InFlight, Noted, Shards, join, repeats
from tests.soak.stage import Stage, staged
from tests.soak.verdict import Line, mismatches
from tests.support.faults.runner import numbers

Say = Callable[[str], None]
MOSTLY_DONE = 20
"""Messages that may be due and not claimed in a queue that counts as recovered."""


@dataclass(frozen=True)
class Plan:
    """What is played."""

    seconds: float
    seed: int
    rate: float = 200.0
    """Messages a second."""
    period: float = 60.0
    """Seconds from a fault to the next."""
    every: float = 15.0
    """Seconds from a sample to the next."""


@dataclass
class Soak:
    """One run.

    Args:
        plan: what is played.
        stage: what it is played on.
        folder: where the ledger is kept.
        out: the file of what is seen, a line each.
        say: takes a line for the person who waits.
        stop: ends the run early, with the verdict of what was seen so far.

    """

    plan: Plan
    stage: Stage
    folder: Path
    out: Path
    say: Say
    stop: asyncio.Event
    lines: list[Line] = field(default_factory=list)
    faults: list[Noted] = field(default_factory=list)
    producers: list[Producer] = field(default_factory=list)
    fault: str | None = None
    """The one that is played just now, until its backlog is gone."""

    async def run(self) -> list[Line]:
        """Play everything, and return what was seen."""
        async with AsyncExitStack() as stack:
            journals = [stack.enter_context(Shards(self.folder, name)) for name in (ledger.PRODUCER, ledger.CONSUMER)]
            self.consumer = Consumer(self.stage.broker.url, journals[1])
            self.control = Control(self.stage)
            quiet, over = asyncio.Event(), asyncio.Event()
            helpers = [asyncio.create_task(self.consumer.run(over)), asyncio.create_task(self.control.run())]
            load = [asyncio.create_task(task) for task in self._load(journals[0], quiet)]
            self._began = time.monotonic()
            await self._until_over(self._play(), self._look(), self._tell())
            quiet.set()
            await asyncio.gather(*load)
            await self._close(over, helpers)
        await self._join()
        return self.lines

    @property
    def at(self) -> float:
        """Seconds since the beginning."""
        return round(time.monotonic() - self._began, 2)

    def note(self, kind: str, **line: Any) -> None:
        """Keep a line, and write it down at once."""
        self.lines.append({"kind": kind, **line})
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.lines[-1]) + "\n")

    def _load(self, journal: Shards, quiet: asyncio.Event) -> Iterator[Coroutine[Any, Any, None]]:
        for number in range(PRODUCERS):
            chance = random.Random(f"{self.plan.seed} {number}")
            self.producers.append(Producer(number, url=self.stage.database, journal=journal, chance=chance))
            yield self.producers[-1].run(self.plan.rate / PRODUCERS, quiet)

    async def _until_over(self, *works: Awaitable[None]) -> None:
        """Let these run until the time is over or a person stops the run; a fault that has begun is repaired first."""
        faults, *others = (asyncio.ensure_future(work) for work in works)
        await asyncio.wait([faults, *others], return_when=asyncio.FIRST_COMPLETED)
        self.stop.set()
        await faults
        for other in others:
            other.cancel()
        ends = await asyncio.gather(*others, return_exceptions=True)
        self.stage.problems += [f"The run ended early, by {end!r}." for end in ends if isinstance(end, Exception)]

    async def _play(self) -> None:
        """One fault in each period, at a random moment of its first half; each once in random order before any again."""
        names: list[str] = []
        while not self.stop.is_set() and self.at < self.plan.seconds:
            begin = self.at
            names = names or self.stage.chance.sample([*FAULTS], len(FAULTS))
            if not await self._stopped(self.stage.chance.uniform(0.05, 0.25) * self.plan.period) and self.at < self.plan.seconds:
                await self._play_one(names.pop())
            await self._stopped(min(begin + self.plan.period, self.plan.seconds) - self.at)

    async def _play_one(self, name: str) -> None:
        self.fault, at, wall = name, self.at, time.time()
        in_flight = await self._broken_and_mended(name)
        lasted = self.at - at
        self.faults.append(Noted(wall, in_flight))
        recovered = await self._recovered()
        self.note("fault", name=name, at=at, wall=wall, lasted=lasted, recovered=recovered, in_flight=self.faults[-1].size)
        self.say(f"soak: {_clock(at)} {name}, {lasted:.0f} s, and {recovered:.0f} s until all that was due was sent")
        self.fault = None

    async def _broken_and_mended(self, name: str) -> InFlight:
        """Report a fault that does not go as it should, and continue the run."""
        try:
            return await FAULTS[name](self.stage)
        except Exception as error:  # noqa: BLE001 - whatever it was, hours of load are not to be lost over it
            self.stage.problems.append(f"The fault {name} at {_clock(self.at)} did not go as it should: {error!r}.")
            await self.stage.mend()
            return WINDOWS

    async def _recovered(self) -> float:
        """Seconds from the end of a fault until nothing waits that the relays could take."""
        began = time.monotonic()
        while time.monotonic() - began < 5 * self.plan.period:
            with suppress(psycopg.OperationalError, TimeoutError):
                if await backlog(self.stage) <= MOSTLY_DONE:
                    return round(time.monotonic() - began, 1)
            await asyncio.sleep(0.5)
        self.stage.problems.append(f"After {self.fault} the queue was not worked off within {5 * self.plan.period:g} s.")
        return round(time.monotonic() - began, 1)

    async def _look(self) -> None:
        sampler = Sampler(self.stage, self.control)
        while not await self._stopped(self.plan.every):
            calm = self.fault is None
            if calm:
                await self._revive()
            self.stage.fleet.read_logs()
            seen = await sampler.take()
            self.note("sample", at=self.at, calm=calm and self.fault is None, **self._counts(), **seen)

    async def _revive(self) -> None:
        for name in await self.stage.fleet.revive():
            self.stage.problems.append(f"The {name} died by itself at {_clock(self.at)}.")

    async def _tell(self) -> None:
        while not await self._stopped(60):
            seen = next((line for line in reversed(self.lines) if line["kind"] == "sample"), {})
            counts = self._counts()
            memory = f"{seen.get('survivor_rss', 0) / 1e6:.1f} MB"
            passed = f"{counts['committed']:,} committed, {counts['delivered']:,} delivered, {len(self.faults)} faults"
            left = f"{seen.get('rows', 0):,} rows, {memory}, {len(self.stage.problems)} problems"
            self.say(f"soak: {_clock(self.at)} of {_clock(self.plan.seconds)}, {passed}, {left}")

    def _counts(self) -> dict[str, int]:
        committed = sum(producer.committed for producer in self.producers)
        return {"committed": committed, "delivered": self.consumer.delivered, "again": self.consumer.again}

    async def _stopped(self, seconds: float) -> bool:
        """Wait so long; return at once, and True, when the run is to end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), max(0.0, seconds))
        return self.stop.is_set()

    async def _close(self, over: asyncio.Event, helpers: list[asyncio.Task[None]]) -> None:
        """Let everything arrive, and end the relays in order."""
        await settled(self.stage, self.say)
        for name in list(self.stage.fleet.lives):
            if code := await self.stage.fleet.end(name):
                self.stage.problems.append(f"The {name} ended with {code}.")
        self.stage.fleet.read_logs()
        over.set()
        helpers[1].cancel()
        await asyncio.gather(*helpers, return_exceptions=True)

    async def _join(self) -> None:
        await asyncio.to_thread(archive, self.stage.database, self.folder)
        report = await asyncio.to_thread(join, self.folder, self.faults)
        times = await asyncio.to_thread(lambda: sorted(repeats(self.folder)))
        if lines := self.stage.fleet.tracebacks:
            self.stage.problems.append(f"{len(lines)} log lines of relays are tracebacks or no JSON, such as {lines[0]}.")
        problems = [*report.mismatches(), *self.stage.problems]
        events = dict(self.stage.fleet.events.most_common())
        self.note("ledger", problems=problems, report=numbers(report), repeats=times, seconds=self.at, events=events)


async def soak(
    plan: Plan, *, postgres: devservers.Postgres, broker: devservers.RabbitMQ, out: Path, say: Say, stop: asyncio.Event
) -> list[Line]:
    """Play a plan on two servers that run; return what was seen, the verdict at the end.

    Args:
        plan: what is played.
        postgres: to be killed.
        broker: to be killed.
        out: the file of what is seen; its ledger is in a folder next to it.
        say: takes a line for the person who waits.
        stop: ends the run early.
    """
    for library in ("aiormq", "aio_pika", "psycopg"):
        logging.getLogger(library).setLevel(logging.CRITICAL + 1)  # each tells of every connection that is lost
    folder = _emptied(out)
    async with staged(postgres, broker, folder, random.Random(plan.seed), say) as stage:
        run = Soak(plan, stage, folder, out, say, stop)
        versions = {"PostgreSQL": (await stage.value("SHOW server_version")).split()[0], "RabbitMQ": broker.installation.version}
        run.note("begin", plan=asdict(plan), faults=[*FAULTS], versions=versions, **described())
        say(f"soak: seed {plan.seed}, {len(FAULTS)} kinds of faults, the relays are those of {run.lines[0]['code']}")
        lines = await run.run()
        found = mismatches(lines)
        run.note("verdict", passed=not found, mismatches=found)
    return lines


def _emptied(out: Path) -> Path:
    folder = out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    (folder / RELAY_LOG).unlink(missing_ok=True)
    return folder


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
