"""`python -m tests.bench.speed [PART …]`, for `make bench` and `make bench-long`: measure, print a table, write JSON.

The exit code is 1 where a goal is missed or a part failed; the other parts continue.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from tests.bench import command, machine
from tests.bench.figures import Figure, table
from tests.bench.speed.plan import LONG, SHORT
from tests.bench.speed.stage import SETTINGS, staged

PARTS = SHORT | LONG
PACKAGES = ("psycopg", "aiormq", "uvloop")
FAILURES = (RuntimeError, TimeoutError, AssertionError, OSError, psycopg.Error)
"""After these errors the other parts continue."""


async def measure(parts: list[str], rounds: int, file: Path) -> list[Figure]:
    """Measure everything asked for, on servers of its own; the file always has what is known so far."""
    figures, failed = list[Figure](), dict[str, str]()
    async with staged() as stage:
        facts = machine.described(stage.postgres.url, PACKAGES)
        facts |= {"rabbitmq": stage.rabbitmq.installation.version, "settings of postgresql": ", ".join(SETTINGS)}
        stage.say("; ".join(f"{name} {value}" for name, value in facts.items()))
        for name in parts:
            stage.say(f"{name}: {PARTS[name].about} (load {os.getloadavg()[0]:.1f})")
            try:
                figures += await PARTS[name].measure(stage, rounds)
            except FAILURES as error:
                failed[name] = f"{type(error).__name__}: {error}"
                stage.say(f"{name} failed: {failed[name]}")
            _write(file, {"facts": facts, "failed": failed, "figures": [one.as_json() for one in figures]})
    return [*figures, *(Figure(name, "", (math.nan,), words, met=False) for name, words in failed.items())]


def _write(file: Path, told: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(told, indent=2, ensure_ascii=False))


def main() -> int:
    """Measure, print, write."""
    given = _arguments()
    parts = given.parts or [*(LONG if given.long else SHORT)]
    for name, needed in _lacking(parts).items():
        print(f"{name} needs {needed >> 30} GiB of free disk: make room, or its largest part is left out.")  # noqa: T201 - as below
    figures = command.run(measure(parts, given.rounds, given.json), given.json)
    print(f"\n{table(figures)}\n\n{given.json} has the rounds")  # noqa: T201 - what this command is for
    return 1 if any(one.met is False for one in figures) else 0


def _lacking(parts: list[str]) -> dict[str, int]:
    """Bytes of those that have not enough room, looked at before anything begins."""
    return {name: PARTS[name].disk for name in parts if PARTS[name].disk > machine.free_bytes()}


def _arguments() -> argparse.Namespace:
    known = "\n".join(f"  {name:15} {part.about}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="tests.bench.speed", description=__doc__, epilog=f"parts:\n{known}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", type=command.one_of(PARTS), help=f"by default up to {[*SHORT][-1]}")
    parser.add_argument("--long", action="store_true", help="by default the parts that take longer")
    parser.add_argument("--rounds", type=command.positive, default=5, help="of each part that has rounds; 5 by default")
    parser.add_argument("--json", type=command.writable, default="build/bench/speed.json", help="the file for every round")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
