"""What the store writes of results, and how it reads again what was committed unheard."""

from __future__ import annotations

from typing import Any

import pytest

from relay.engine.policy import Policy
from relay.errors import StoreError
from relay.message import SUCCESS, Archive, Batch, GiveBack, Outcome, Result, Retry
from relay.ports import SettleRow
from tests.support.database.queue import busy, lost
from tests.support.fakes.adapters import a_claim
from tests.support.fakes.scripted_store import Played, clock_of
from tests.support.fakes.virtual_time import timeless

REJECTED = Archive(Result.REJECTED, "too_large", "No.")
NACKED, GONE = Retry(2.5, "nacked", "Full."), GiveBack("gone", "It went.")
BRIEFLY = {"skip": False, "patience": "100ms"}
PLACES: dict[str, Any] = {"xids": "{1,1,1}", "seqs": "{1,2,3}"}


def rows(*outcomes: Outcome) -> list[SettleRow]:
    """Messages `a`, `b` and so on, at (1, 1), (1, 2)."""
    claims = [a_claim(seq=number, id=chr(96 + number), attempts=number) for number in range(1, len(outcomes) + 1)]
    return [SettleRow(claim, outcome, 10 * claim.seq, None) for claim, outcome in zip(claims, outcomes, strict=True)]


def batch(source: str = "fresh") -> Batch:
    """A batch under the token that the statements must carry."""
    return Batch("token", [], 5000.0, 10.0, 30.0, source)


@pytest.mark.parametrize(("keep", "park"), [(True, False), (False, True)])
@timeless
async def test_a_settle_writes_results_by_policy(keep: bool, park: bool) -> None:
    """Who handled it, when it was claimed, published and confirmed, and what came of it."""
    played = Played(Policy(keep_successes=keep, park_dead_keys=park))
    assert [] == await played.store.archive(batch(), rows(SUCCESS, REJECTED, SUCCESS), again=True)
    results = {"results": ["success", "rejected", "success"], "codes": [None, "too_large", None], "details": [None, "No.", None]}
    times = {"claimed_at": 5000.0, "published": "{10,20,30}", "confirmed": "{NULL,NULL,NULL}"}
    policy = {"keep_successes": keep, "park_dead_keys": park}
    assert [{**PLACES, **results, **times, **policy, **BRIEFLY, "token": "token", "handled_by": "one"}] == played.values
    assert [("settle", "settle")] == played.asked


@timeless
async def test_a_settle_that_was_lost_is_read_again_only_if_it_was_written_before() -> None:
    """The first time a lock that is gone is simply lost."""
    played = Played()
    played.answers["settle"].append([(1, 2, False)])

    assert lost("b") == await played.store.archive(batch(), rows(SUCCESS, SUCCESS), again=False)
    assert [("settle", "settle")] == played.asked


@timeless
async def test_what_an_earlier_settle_archived_was_not_lost() -> None:
    """By what this relay would have written; successes apart, since they need not be kept."""
    played = Played()
    played.answers["settle"].append([(1, 1, False), (1, 2, False), (1, 3, False)])
    played.answers["find_archived"].append([("a",), ("c",)])

    assert lost("b") == await played.store.archive(batch(), rows(SUCCESS, REJECTED, SUCCESS, SUCCESS), again=True)
    assert [("settle", "settle"), ("settle", "find_archived")] == played.asked
    assert {"ids": ["a", "b", "c"], "successes": ["a", "c"], "handled_by": "one", "claimed_at": 5000.0} == played.values[-1]


@pytest.mark.parametrize(("no_partition", "asked"), [(True, [("control", "ensure_partitions")]), (False, [])])
@timeless
async def test_a_missing_day_is_made_for_the_next_settle(no_partition: bool, asked: list[tuple[str, str]]) -> None:
    """This one has failed; it is tried again anyway."""
    played = Played()
    error = StoreError("No.", no_partition=no_partition)
    played.answers["settle"].append(error)
    with pytest.raises(StoreError) as told:
        await played.store.archive(batch(), rows(SUCCESS), again=False)
    assert error is told.value
    assert [("settle", "settle"), *asked] == played.asked


@pytest.mark.parametrize(("source", "suspect"), [("suspect", True), ("fresh", False)])
@timeless
async def test_a_release_says_when_it_goes_again_and_why(source: str, suspect: bool) -> None:
    """A suspect stays one if it is returned."""
    played = Played()
    assert [] == await played.store.release(batch(source), rows(NACKED, GONE, NACKED), again=True)
    back = {"delays": [2.5, 0.0, 2.5], "given_back": [0, 1, 0], "errors": ["nacked: Full.", "gone: It went.", "nacked: Full."]}
    assert [{**PLACES, **back, "suspect": suspect, "token": "token", "now": None}] == played.values
    assert [("settle", "release")] == played.asked


@timeless
async def test_a_release_that_was_lost_is_read_again_only_if_it_was_written_before() -> None:
    """As a settle."""
    played = Played()
    played.answers["release"].append([(1, 2, False)])

    assert lost("b") == await played.store.release(batch(), rows(NACKED, GONE), again=False)
    assert [("settle", "release")] == played.asked


@timeless
async def test_what_an_earlier_release_put_back_was_not_lost() -> None:
    """The attempts and the error that it must have left show that. A claim that was returned does not count."""
    played = Played()
    played.answers["release"].append([(1, 1, False), (1, 2, False), (1, 3, False)])
    played.answers["find_released"].append([(1, 3)])

    assert lost("a", "b") == await played.store.release(batch(), rows(NACKED, GONE, NACKED, NACKED), again=True)
    assert [("settle", "release"), ("settle", "find_released")] == played.asked
    told = {"ids": ["a", "b", "c"], "errors": ["nacked: Full.", "gone: It went.", "nacked: Full."], "attempts": [1, 1, 3]}
    assert {**PLACES, **told, "token": "token", "claimed_at": 5000.0} == played.values[-1]


HELD = StoreError("Another session holds a lock.", in_passing=True)


def ways(played: Played) -> list[tuple[bool, str]]:
    """How each settle was asked for."""
    return [(values["skip"], values["patience"]) for values in played.values]


@timeless
async def test_settles_step_over_held_rows_for_as_long_as_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one waits for a moment; afterwards none does before some seconds have passed without such a row."""
    clock = clock_of(monkeypatch, "settling")
    played = Played()
    played.answers["settle"] += [HELD, [(1, 1, True)], [(1, 1, True)], []]

    assert busy("a") == await played.store.archive(batch(), rows(SUCCESS), again=False)
    clock.now += 4.9
    assert busy("a") == await played.store.archive(batch(), rows(SUCCESS), again=False)
    clock.now += 4.9
    assert [] == await played.store.archive(batch(), rows(SUCCESS), again=False)
    clock.now += 0.2
    assert [] == await played.store.archive(batch(), rows(SUCCESS), again=False)

    assert [(False, "100ms"), (True, "1s"), (True, "1s"), (True, "1s"), (False, "100ms")] == ways(played)


@timeless
async def test_a_settle_that_met_no_held_row_makes_no_other_more_careful() -> None:
    """It waited for something else, or the row was unlocked at once."""
    played = Played()
    played.answers["settle"] += [HELD, [(1, 1, False)], []]

    assert lost("a") == await played.store.archive(batch(), rows(SUCCESS), again=False)
    assert [] == await played.store.archive(batch(), rows(SUCCESS), again=False)

    assert [(False, "100ms"), (True, "1s"), (False, "100ms")] == ways(played)


@timeless
async def test_a_settle_that_fails_for_another_reason_is_not_tried_by_stepping_over_rows() -> None:
    """The caller tries again."""
    played = Played()
    played.answers["settle"].append(StoreError("Away."))

    with pytest.raises(StoreError, match="Away"):
        await played.store.archive(batch(), rows(SUCCESS), again=False)

    assert [(False, "100ms")] == ways(played)


@timeless
async def test_a_held_row_is_not_looked_for_among_what_was_written_unheard() -> None:
    """It is in the queue under our token, so no earlier settle or release has moved it."""
    played = Played()
    played.answers["settle"].append([(1, 1, True)])
    played.answers["release"].append([(1, 1, True)])

    assert busy("a") == await played.store.archive(batch(), rows(SUCCESS), again=True)
    assert busy("a") == await played.store.release(batch(), rows(NACKED), again=True)
    assert [("settle", "settle"), ("settle", "release")] == played.asked


@timeless
async def test_held_rows_and_lost_ones_are_told_apart_when_they_are_read_again() -> None:
    """Only what is not ours any more is asked for; what an earlier try had written is left out."""
    played = Played()
    played.answers["settle"].append([(1, 1, False), (1, 2, True), (1, 3, False)])
    played.answers["find_archived"].append([("a",)])

    assert busy("b") + lost("c") == await played.store.archive(batch(), rows(SUCCESS, SUCCESS, SUCCESS), again=True)
    assert ["a", "c"] == played.values[-1]["ids"]
