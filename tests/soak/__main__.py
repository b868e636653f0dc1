"""`python -m tests.soak --hours 2`: exit code 0 if the ledger adds up and every line is flat; Ctrl-C ends it with a verdict so far."""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from pathlib import Path

from relay import devservers
from tests.soak.run import Plan, soak

OUT = Path("build/soak.jsonl")


def main() -> int:
    """Play a soak, or write its page."""
    words = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    words.add_argument("--hours", type=float, default=2.0, help="how long, 2 by default")
    words.add_argument("--seed", type=int, default=random.getrandbits(32), help="plays the same faults in the same order again")
    words.add_argument("--out", type=Path, default=OUT, help=f"what is seen, {OUT} by default")
    words.add_argument("--page", type=Path, metavar="FILE", help="write docs/soak.md and docs/soak.svg from such a file, and play nothing")
    given = words.parse_args()
    if given.page:
        from tests.soak.page import write  # noqa: PLC0415 - a run needs no page

        write(given.page)
        return 0
    return asyncio.run(_play(Plan(seconds=given.hours * 3600, seed=given.seed), given.out))


async def _play(plan: Plan, out: Path) -> int:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stopped, stop)
    with devservers.postgres(say=_say, private=True) as postgres, devservers.rabbitmq(say=_say, private=True) as broker:
        lines = await soak(plan, postgres=postgres, broker=broker, out=out, say=_say, stop=stop)
    for sentence in (found := lines[-1]["mismatches"]):
        _say(f"soak: {sentence}")
    _say(f"soak: {'not passed' if found else 'passed'}; python -m tests.soak --page {out} writes docs/soak.md")
    return 1 if found else 0


def _stopped(stop: asyncio.Event) -> None:
    """End the run; a second Ctrl-C ends it without a verdict."""
    _say("soak: stopping; the verdict comes when all has arrived (again: without one)")
    stop.set()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().remove_signal_handler(number)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what this command is for


if __name__ == "__main__":
    sys.exit(main())
