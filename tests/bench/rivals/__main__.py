"""`python -m tests.bench.rivals [NAME …]`: measure this relay and others on the same private servers, print tables, write JSON."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench import command, machine
from tests.bench.figures import table
from tests.bench.rivals.plan import PARTS, RIVALS, Effort, Report, measure
from tests.bench.speed.stage import SETTINGS, staged

PACKAGES = ("psycopg", "aiormq", "uvloop")


async def run(names: Sequence[str], effort: Effort, file: Path) -> list[Report]:
    """Run everything asked for, on servers of its own; the file always has what is known so far."""
    reports = list[Report]()
    async with staged() as stage:
        facts = machine.described(stage.postgres.url, PACKAGES)
        facts |= {"rabbitmq": stage.rabbitmq.installation.version, "settings of postgresql": ", ".join(SETTINGS)}
        stage.say("; ".join(f"{name} {value}" for name, value in facts.items()))
        for name in names:
            reports.append(await measure(stage, RIVALS[name], effort, lambda known: _write(file, facts, [*reports, known])))
    _write(file, {**facts, "load at the end": f"{os.getloadavg()[0]:.1f}"}, reports)
    return reports


def _write(file: Path, facts: Mapping[str, str], reports: Sequence[Report]) -> None:
    told = {"facts": facts, "rivals": [one.as_json() for one in reports]}
    file.write_text(json.dumps(told, indent=2, ensure_ascii=False))


def shown(report: Report) -> str:
    """A rival's part of the page."""
    lines = [
        f"## {report.name} {report.version}",
        "",
        f"{report.settings}; {report.rows:,} messages; load {report.load:.1f} when it began",
        "",
    ]
    if report.figures:
        lines += [table(report.figures), ""]
    return "\n".join([*lines, *(f"- {one}" for one in report.findings)])


def summary(reports: Sequence[Report]) -> str:
    """A line for each rival, with the median of each figure."""
    if not (names := [*dict.fromkeys(one.name for report in reports for one in report.figures)]):
        return ""
    lines = [("", *names), ("---",) * (len(names) + 1)]
    for report in reports:
        found = {one.name: one.cells()[1] for one in report.figures}
        lines.append((report.name, *(found.get(name, "") for name in names)))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Measure, print, write."""
    given = _arguments()
    effort = Effort(given.parts or [*PARTS], given.rounds, given.kills, given.seconds, given.rows)
    reports = command.run(run(given.names or [*RIVALS], effort, given.json), given.json)
    print("", *map(shown, reports), summary(reports), sep="\n\n")  # noqa: T201 - what this command is for
    print(f"\n{given.json} has the rounds")  # noqa: T201 - as above


def _arguments() -> argparse.Namespace:
    known = "\n".join(f"  {name:12} {about}" for name, about in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="tests.bench.rivals", description=__doc__, epilog=f"parts:\n{known}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", type=command.one_of(RIVALS), help=f"of {', '.join(RIVALS)}; all by default")
    parser.add_argument("--part", dest="parts", action="append", choices=PARTS, help="all by default; more than once for several")
    parser.add_argument("--rounds", type=command.positive, default=3, help="of a drain")
    parser.add_argument("--kills", type=command.positive, default=1, help="of a relay amid a drain")
    parser.add_argument("--seconds", type=command.seconds, default=20.0, help="of the latency")
    parser.add_argument("--rows", type=command.positive, help="messages of a drain at the most")
    parser.add_argument("--json", type=command.writable, default="build/bench/rivals.json", help="the file for every round")
    return parser.parse_args()


if __name__ == "__main__":
    main()
