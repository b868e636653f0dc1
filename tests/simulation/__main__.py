"""`python -m tests.simulation`: SIMULATION_SEEDS seeds from SIMULATION_SEED on, SIMULATION_STEPS steps of SIMULATION_MENU each."""

from __future__ import annotations

import gc
import os
import sys
import time

from tests.simulation.ledger import BrokenError
from tests.simulation.schedule import Report, replay, run


def main() -> int:
    """Run them all; say what broke and how to see it again, and in the end how much was done."""
    first, steps = int(os.environ.get("SIMULATION_SEED", "1")), int(os.environ.get("SIMULATION_STEPS", "1000"))
    menu = os.environ.get("SIMULATION_MENU", "everything")
    reports, broken = [], 0
    # Nothing is left of a world but circles: one collection for each is cheaper than many within.
    gc.freeze()
    gc.disable()
    began = time.process_time()
    for seed in range(first, first + int(os.environ.get("SIMULATION_SEEDS", "1"))):
        gc.collect()
        try:
            reports.append(run(seed, steps, menu))
        except BrokenError as error:
            broken += 1
            print(f"seed {seed}: {error}\n  {replay(seed, steps, menu)}", flush=True)  # noqa: T201 - what this command is for
    print(summary(reports, broken, time.process_time() - began))  # noqa: T201 - as above
    return min(broken, 1)


def summary(reports: list[Report], broken: int, cpu: float) -> str:
    """One line over all runs, which took so many seconds of CPU."""
    steps = sum(report.steps for report in reports)
    counts = {name: sum(getattr(report.counts, name) for report in reports) for name in ("committed", "delivered", "duplicates", "expired")}
    told = ", ".join(f"{number} {name}" for name, number in counts.items())
    rate = f"{steps / max(cpu, 0.001) * 60:.0f} steps a CPU minute"
    return f"{len(reports)} runs kept their promises, {broken} did not; {steps} steps, {told}; {rate}"


if __name__ == "__main__":
    sys.exit(main())
