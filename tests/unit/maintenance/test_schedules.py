"""A relay has schedules carried out at their ticks, and asks for nothing before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from relay import events
from relay.errors import StoreError
from relay.events.schedules import ScheduleFails, ScheduleRecovered
from relay.maintenance import schedules
from relay.maintenance.schedules import FailureReports, Schedules

SOON = 0.001
Answer = tuple[int, float | None] | StoreError


class Database:
    """Answers one call after the other, and is then done."""

    def __init__(self, *answers: Answer) -> None:
        self.calls = 0
        self.done = asyncio.Event()
        self.told: list[events.Event] = []
        self.inserts = 0
        self._answers = list(answers)
        self.schedules = Schedules(carry_out=self._carry_out, inserted=self._inserted, emit=self.told.append)

    async def _carry_out(self) -> tuple[int, float | None]:
        self.calls += 1
        answer = self._answers.pop(0)
        if not self._answers:
            self.done.set()
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def _inserted(self) -> None:
        self.inserts += 1


async def run(database: Database) -> None:
    """Let the schedules run until every answer was given, and what follows at once has happened."""
    task = asyncio.create_task(database.schedules.run())
    async with asyncio.timeout(20):
        await database.done.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@contextmanager
def pause(seconds: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """How long after a failure the next look is."""
    with monkeypatch.context() as patch:
        patch.setattr(schedules, "PAUSE", seconds)
        yield


async def test_nothing_is_asked_before_a_tick_is_due() -> None:
    """Neither without a schedule, nor with one for later."""
    database = Database((0, None))
    task = asyncio.create_task(database.schedules.run())
    for seconds in (None, 3600.0, None):
        database.schedules.set_next(seconds)
        for _ in range(10):
            await asyncio.sleep(0)
    assert 0 == database.calls
    task.cancel()


async def test_a_tick_is_carried_out_and_the_next_one_waited_for() -> None:
    """Each answer names the next tick, and each insert of messages is announced."""
    database = Database((1, SOON), (0, SOON), (2, 3600.0))
    database.schedules.set_next(SOON)

    await run(database)

    assert (3, 2) == (database.calls, database.inserts)


async def test_an_earlier_tick_that_is_named_later_is_not_slept_past() -> None:
    """A schedule was added meanwhile."""
    database = Database((1, None))
    database.schedules.set_next(3600.0)
    task = asyncio.create_task(run(database))
    for _ in range(10):
        await asyncio.sleep(0)
    database.schedules.set_next(SOON)
    await task

    assert 1 == database.calls


async def test_what_stays_due_with_messages_goes_on_at_once() -> None:
    """The ticks of a long outage come in portions."""
    database = Database((1000, -60.0), (1000, -50.0), (5, None))
    database.schedules.set_next(0.0)

    await run(database)

    assert 3 == database.inserts


@pytest.mark.parametrize("answer", [StoreError("Away."), (0, -1.0)])
async def test_what_cannot_be_carried_out_is_looked_at_again_after_a_pause(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is away, or another relay is at it; whatever the policy's next reading names."""
    database = Database(answer, (1, None))
    database.schedules.set_next(0.0)
    with pause(3600, monkeypatch):
        task = asyncio.create_task(database.schedules.run())
        for _ in range(10):
            await asyncio.sleep(0)
            database.schedules.set_next(0.0)
        assert 1 == database.calls
        task.cancel()
    assert ([events.MaintenanceFailed("schedules", "Away.")] if isinstance(answer, StoreError) else []) == database.told


async def test_a_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tick is still due when the pause is over, without anybody naming it again."""
    database = Database(StoreError("Away."), (1, None))
    database.schedules.set_next(0.0)
    with pause(SOON, monkeypatch):
        await run(database)

    assert 1 == database.inserts


def test_a_schedule_that_fails_is_told_of_once() -> None:
    """Again where the reason is another one, and that it does no more."""
    told: list[events.Event] = []
    failing = FailureReports(told.append)
    for reasons in ({}, {"b": "no", "a": "why"}, {"a": "why", "b": "no"}, {"a": "other"}, {"a": "other"}, {}, {}):
        failing.report(reasons)

    assert [
        ScheduleFails("a", "why"), ScheduleFails("b", "no"), ScheduleFails("a", "other"), ScheduleRecovered("b"), ScheduleRecovered("a"),
    ] == told  # fmt: skip
