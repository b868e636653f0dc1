"""Random schedules of everything that can happen, each from a seed, and what holds after every step."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.schedule import MENUS, replay, run

STEPS = int(os.environ.get("SIMULATION_STEPS", "500"))
SEEDS = [int(os.environ["SIMULATION_SEED"])] if "SIMULATION_SEED" in os.environ else list(range(1, 7))
LONG = {
    "deaths", "relays that stand still", "lost claims", "floods", "messages that somebody holds", "messages that a trigger refuses",
    "exchanges that are held", "restores", "clocks that are set",
}  # fmt: skip
"""Menus of which a single thing takes many seconds."""
DIGEST = "from tests.simulation.schedule import run; print(run(5, 300).digest)"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_promises_hold_whatever_happens(seed: int) -> None:
    """Nothing is lost or comes of a rollback, and only a fault makes duplicates. Each key keeps its order, and all is out in time."""
    try:
        report = run(seed, STEPS)
    except AssertionError as error:
        error.add_note(replay(seed, STEPS, "everything"))
        raise
    assert report.counts.archived == report.counts.committed > 100


@pytest.mark.parametrize("menu", [menu for menu in MENUS if menu not in {"everything", "limits"}])
def test_what_somebody_sends_delays_nobody_else(menu: str) -> None:
    """Where little else goes wrong: each menu has promises of its own, such as that bad messages delay their own keys only."""
    steps = STEPS // (5 if menu in LONG else 2)
    for seed in range(1, 6):
        try:
            report = run(seed, steps, menu)
        except AssertionError as error:
            error.add_note(replay(seed, steps, menu))
            raise
        assert report.counts.archived == report.counts.committed > 50


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_limits_hold_at_every_step_and_keep_nobody_else(seed: int) -> None:
    """Two of three exchanges are limited, each now and then otherwise: never more of them than that; of the third one nothing waits."""
    try:
        report = run(seed, STEPS // 2, "limits")
    except AssertionError as error:
        error.add_note(replay(seed, STEPS // 2, "limits"))
        raise
    assert report.counts.archived == report.counts.committed > 100


def test_a_seed_replays_exactly() -> None:
    """The same digest of everything that happened, here and in processes that order their sets in other ways."""
    here = run(5, 300).digest
    assert here == run(5, 300).digest
    for order in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": order}
        told = subprocess.run([sys.executable, "-c", DIGEST], env=environment, check=True, capture_output=True, text=True)
        assert here == told.stdout.strip()


def test_another_seed_is_another_run() -> None:
    """Else a replay would prove nothing."""
    assert run(5, 50).digest != run(6, 50).digest


def test_a_step_stays_cheap() -> None:
    """Its callbacks and statements are counted, which no load changes: a step that costs more makes fewer of them in `make simulate`."""
    reports = [run(seed, 500) for seed in (1, 2, 3)]
    steps = sum(report.steps for report in reports)
    assert sum(report.turns for report in reports) / steps < 85
    assert sum(report.statements for report in reports) / steps < 11
