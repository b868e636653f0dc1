"""`python -m tests.bench.speed [PART …]`, or `make bench`: measure, print a table, write JSON; 1 where a goal is missed."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from tests.bench import machine
from tests.bench.figures import Figure, table
from tests.bench.speed.plan import PARTS
from tests.bench.speed.stage import SETTINGS, staged

PACKAGES = ("psycopg", "aiormq", "uvloop")


async def measure(parts: list[str], rounds: int) -> tuple[dict[str, str], list[Figure]]:
    """Everything asked for, on servers of its own."""
    figures = list[Figure]()
    async with staged() as stage:
        facts = machine.described(stage.postgres.url, PACKAGES)
        facts |= {"rabbitmq": stage.rabbitmq.installation.version, "settings of postgresql": ", ".join(SETTINGS)}
        stage.say("; ".join(f"{name} {value}" for name, value in facts.items()))
        for name in parts:
            stage.say(f"{name}: {PARTS[name].about}")
            figures += await PARTS[name].measure(stage, rounds)
    return {**facts, "load at the end": f"{os.getloadavg()[0]:.1f}"}, figures


def main() -> int:
    """Measure, print, write."""
    given = _arguments()
    facts, figures = asyncio.run(measure(given.parts or [*PARTS], given.rounds))
    print(f"\n{table(figures)}\n")  # noqa: T201 - what this command is for
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps({"facts": facts, "figures": [one.as_json() for one in figures]}, indent=2, ensure_ascii=False))
    print(f"{given.json} has the rounds")  # noqa: T201 - as above
    return 1 if any(one.met is False for one in figures) else 0


def _arguments() -> argparse.Namespace:
    known = "\n".join(f"  {name:12} {part.about}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="tests.bench.speed", description=__doc__, epilog=f"parts:\n{known}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[[], *PARTS], help="all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("build/bench/speed.json"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
