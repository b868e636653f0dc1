"""`python -m tests.bench.designs`, for `make bench-designs`: ways to find claimable messages, side by side, as a table and as JSON.

CPU, WAL and pages are counters of the database and hardly depend on what else the machine does; milliseconds that are not CPU do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tests.bench import command, machine
from tests.bench.designs import backlogs, keys, rounds
from tests.bench.designs.design import Design, Held
from tests.bench.designs.drains import Figures, drain
from tests.bench.designs.stage import DESIGNS, SETTINGS, Stage, staged
from tests.bench.figures import Figure, figure

PARTS = ("drain", "paused", "future", "keys")
BY_NAME = ("paused-rounds", "future-rounds")
"""Parts that are measured where they are named alone: they need a RabbitMQ, and compare nothing."""
NAMES = f"of {', '.join(PARTS)}, which are the default, {' and '.join(BY_NAME)}"
LONG_BACKLOG = 1_000_000
LONG_FUTURE = 10_000_000
Rounds = dict[str, dict[str, list[float]]]
"""By what was measured, then by design: a value of each round."""
Fill = Callable[[type[Design], str, int], Awaitable[None]]
Measure = Callable[[type[Design], str], Awaitable[Figures]]


class Comparison:
    """Collects what rounds find, the designs taking turns."""

    def __init__(self, stage: Stage, rounds: int, designs: Sequence[type[Design]], note: Callable[[Rounds], None]) -> None:
        self._stage = stage
        self._rounds = rounds
        self._designs = designs
        self._note = note
        self.found: Rounds = defaultdict(lambda: defaultdict(list))

    async def drains(self, messages: int) -> None:
        """What each message costs, and whether that stays."""
        for number in range(self._rounds):
            for design in self._designs:
                say(f"drain of {messages:,} messages, round {number + 1}: {design.name}")
                self._take(design.name, await drain(self._stage, design, messages))

    async def backlog(self, rows: int, fill: Fill, measure: Measure) -> None:
        """The same backlog for each design, then the rounds."""
        async with AsyncExitStack() as stack:
            urls = {design: await stack.enter_async_context(self._stage.database(design)) for design in self._designs}
            for design, url in urls.items():
                say(f"{measure.__name__}: {rows:,} messages for {design.name}")
                await fill(design, url, rows)
            for _ in range(self._rounds):
                for design, url in urls.items():
                    self._take(design.name, await measure(design, url))

    async def keys(self) -> None:
        """Bounds of keys."""
        for number in range(self._rounds):
            say(f"head of a key, round {number + 1}")
            self._take("cursor and scan", await keys.measure(self._stage))

    async def scrub(self, name: str, rows: int, held: Held) -> None:
        """Rounds of the scrub, and a relay, while that many messages wait."""
        for number in range(self._rounds):
            say(f"rounds, {name}, round {number + 1}: {rows:,} messages")
            async for figures in rounds.measured(self._stage, name, rows, held, say):
                self._take("cursor and scan", figures)

    def _take(self, name: str, figures: Figures) -> None:
        for what, value in figures.items():
            self.found[what][name].append(value)
        self._note(self.found)


async def compare(given: argparse.Namespace) -> Rounds:
    """Measure everything; the file always has what is known so far."""
    with staged(say) as stage:
        facts = machine.described(stage.url, ["psycopg"]) | {"settings of postgresql": ", ".join(SETTINGS)}
        say("; ".join(f"{name} {value}" for name, value in facts.items()))
        one = Comparison(stage, given.rounds, DESIGNS, lambda found: _write(given.json, facts, found))
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "drain": lambda: one.drains(given.messages),
            "paused": lambda: one.backlog(given.rows, backlogs.fill_paused, backlogs.paused),
            "future": lambda: one.backlog(given.future, backlogs.fill_future, backlogs.future),
            "keys": one.keys,
            "paused-rounds": lambda: one.scrub("paused", given.rows, backlogs.PAUSED),
            "future-rounds": lambda: one.scrub("tomorrow", given.future, ()),
        }
        for name in given.parts or PARTS:
            await parts[name]()
    return one.found


def _write(file: Path, facts: Mapping[str, str], found: Rounds) -> None:
    figures = [figure(f"{what}: {name}", "", values).as_json() for what, by in found.items() for name, values in by.items()]
    file.write_text(json.dumps({"facts": facts, "figures": figures}, indent=2, ensure_ascii=False))


def table(found: Rounds) -> str:
    """Markdown: a line for each thing measured, a column for each design; medians, with the lowest and highest round."""
    names = [design.name for design in DESIGNS]
    lines = [["", *names], ["---"] * (len(names) + 1)]
    lines += [[what, *(_cell(what, by.get(name, ())) for name in names)] for what, by in found.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(what: str, values: Sequence[float]) -> str:
    if not values:
        return ""
    if what.endswith(": found"):
        return "yes" if all(values) else "no"
    one: Figure = figure(what, "", values)
    spread = "" if min(values) == max(values) else f" ({_shown(min(values))} to {_shown(max(values))})"
    return f"{_shown(one.median)}{spread}"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def say(line: str, began: float = time.monotonic()) -> None:
    """Tell the person who waits."""
    print(f"[{time.monotonic() - began:6.1f} s, load {os.getloadavg()[0]:.1f}] {line}", flush=True)  # noqa: T201 - what this command is for


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="tests.bench.designs", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", type=command.one_of((*PARTS, *BY_NAME)), help=NAMES)
    parser.add_argument("--rounds", type=command.positive, default=3, help="of everything; 3 by default")
    parser.add_argument(
        "--messages", type=command.positive, default=50_000, help="that go through under a held snapshot; 50,000 by default"
    )
    parser.add_argument("--rows", type=command.positive, default=200_000, help="of a paused exchange; 200,000 by default")
    parser.add_argument("--future", type=command.positive, default=200_000, help="for tomorrow; 200,000 by default")
    parser.add_argument("--long", action="store_true", help=f"{LONG_BACKLOG:,} of a paused exchange, {LONG_FUTURE:,} for tomorrow")
    parser.add_argument("--json", type=command.writable, default=Path("build/bench/designs.json"), help="the file for every round")
    given = parser.parse_args()
    given.json = command.writable(str(given.json))
    if given.long:
        given.rows, given.future = LONG_BACKLOG, LONG_FUTURE
    found = command.run(compare(given), given.json)
    print(f"\n{table(found)}\n\n{given.json} has the rounds")  # noqa: T201 - what this command is for
    return 0


if __name__ == "__main__":
    sys.exit(main())
