"""Folds take what is due, tell what became of it, and look at everything again only as often as that is cheap."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from relay import events
from relay.events import NOBODY
from relay.events.schedules import KeyFails, KeyRecovered, KeysFolded
from relay.maintenance.folds import Folded, Folds, NextFold


class Database:
    """Answers looks and folds in turn, and keeps from which time on each was asked."""

    def __init__(self, *, looks: list[NextFold] | None = None, folds: list[Folded] | None = None, failing: bool = False) -> None:
        self.looked: list[float] = []
        self.folded: list[float] = []
        self.meanwhile = asyncio.Event()
        self.meanwhile.set()
        self._looks = looks or []
        self._folds = folds or []
        self._failing = failing

    async def fold_in(self, since: float) -> NextFold:
        """The next look's answer."""
        self.looked.append(since)
        return self._looks.pop(0)

    async def fold_keys(self, since: float) -> Folded:
        """The next fold's answer, once nothing is to happen meanwhile any more."""
        self.folded.append(since)
        await self.meanwhile.wait()
        return self._folds.pop(0)

    async def failing_keys(self) -> Mapping[str, str]:
        """One key fails until the last fold."""
        return {"k": "no"} if self._failing and self._folds else {}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the relay reads; its only element."""
    now = [1000.0]
    monkeypatch.setattr("relay.maintenance.folds.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


async def test_a_fold_reports_what_became_of_its_messages() -> None:
    """An empty fold reports nothing; a key that could not be sent is named until it can."""
    told: list[events.Event] = []
    work = Folds(Database(folds=[Folded(5, 2, 1, None, 0), Folded(0, 0, 0, 7.0, 0)], failing=True), told.append)

    assert [(5, None), (0, 7.0)] == [await work.carry_out() for _ in range(2)]
    assert [KeysFolded(5, 2, 1), KeyFails("k", "no"), KeyRecovered("k")] == told


async def test_a_fold_begins_where_the_last_look_or_fold_ended() -> None:
    """The first one begins at the beginning."""
    database = Database(looks=[NextFold(3.0, 50.0, 0.0)], folds=[Folded(1, 0, 0, None, since) for since in (40.0, 60.0, 70.0)])
    work = Folds(database, NOBODY)
    await work.carry_out()
    await work.carry_out()
    assert 3.0 == await work.due_in()
    await work.carry_out()

    assert [-math.inf, 40.0, 50.0] == database.folded


async def test_each_look_sees_everything_while_that_takes_no_time(clock: list[float]) -> None:
    """A message of a transaction that was open until now may have been due before all others."""
    database = Database(looks=[NextFold(None, 50.0, 0.1), NextFold(None, 60.0, 0.1)])
    work = Folds(database, NOBODY)
    await work.due_in()
    clock[0] += 2.0
    await work.due_in()

    assert [-math.inf, -math.inf] == database.looked


async def test_after_a_slow_look_the_next_ones_begin_later_for_ten_times_as_long(clock: list[float]) -> None:
    """Quick looks in between extend no pause."""
    database = Database(looks=[NextFold(None, since, took) for since, took in ((50.0, 1.0), (60.0, 0.5), (70.0, 0.5), (80.0, 0.0))])
    work = Folds(database, NOBODY)
    for _ in range(3):
        await work.due_in()
        clock[0] += 5.0

    assert [-math.inf, 50.0, -math.inf] == database.looked


async def test_a_fold_under_way_forgets_nothing_that_a_look_finds() -> None:
    """The fold began later in time than the message that the look has found was due."""
    database = Database(looks=[NextFold(0.0, 20.0, 0.0)], folds=[Folded(1, 0, 0, None, 60.0)] * 3)
    work = Folds(database, NOBODY)
    await work.carry_out()
    database.meanwhile.clear()
    under_way = asyncio.create_task(work.carry_out())
    await asyncio.sleep(0)
    await work.due_in()
    database.meanwhile.set()
    await under_way
    await work.carry_out()

    assert [-math.inf, 60.0, 20.0] == database.folded
