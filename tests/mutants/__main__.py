"""`python -m tests.mutants`: switches safeguards off, one at a time, and sees whether their tests turn red."""

from __future__ import annotations

import argparse
import sys
import time

from relay import devservers
from tests.mutants.page import write
from tests.mutants.runner import Verdict, load, try_all


def main() -> int:
    """Run them; 1 if one survives, or if its test says nothing without it."""
    words = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    words.add_argument(
        "words", nargs="*", metavar="WORD", help="run the mutants whose names hold one of these words; without any, all of them"
    )
    words.add_argument("--write", action="store_true", help="write their rows into docs/mutants.md, if none survives")
    wanted = words.parse_args()
    every = load()
    mutants = [mutant for mutant in every if not wanted.words or any(word in mutant.name for word in wanted.words)]
    began = time.monotonic()
    with devservers.postgres(say=_say) as server:
        verdicts = try_all(mutants, servers={"TEST_DATABASE_URL": server.url}, told=_tell)
    seconds = time.monotonic() - began
    survivors = [verdict for verdict in verdicts if not verdict.killed]
    _say(f"{len(verdicts) - len(survivors)} of {len(verdicts)} mutants were noticed, in {seconds:.0f} s")
    for verdict in survivors:
        _say(f"NOT NOTICED: {verdict.mutant.name}: {verdict.note}")
    if wanted.write and not survivors:
        write(verdicts, every)
    return min(len(survivors), 1)


def _tell(verdict: Verdict) -> None:
    mutant = verdict.mutant
    seen = f"red after {verdict.seconds:.1f} s" if verdict.killed else verdict.note
    _say(f"{mutant.name} | {mutant.test} | {seen}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what this command is for


if __name__ == "__main__":
    sys.exit(main())
