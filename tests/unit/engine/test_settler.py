"""A settle is tried again as a settle, and one refused row holds up no other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from relay import events
from relay.engine.settler import RetryingSettler
from relay.errors import StoreError
from relay.message import SUCCESS, Archive, Batch, GiveBack, Keep, Outcome, Portion, PublishResult, Result, Retry, Verdict
from relay.ports import RowLeft, SettleResult, SettleRow
from tests.support.fakes.adapters import FakeSettles, a_batch, a_claim, a_portion
from tests.support.fakes.virtual_time import timeless

AWAY = StoreError("Away.")
RETRY = Retry(1.0, "nack", "No.")
BACK = GiveBack("gone", "It went.")


def settlement(store: FakeSettles) -> tuple[RetryingSettler, list[events.Event]]:
    """A settlement and what it tells."""
    told: list[events.Event] = []
    return RetryingSettler(store=store, emit=told.append), told


async def written(store: FakeSettles, batch: Batch, outcomes: Sequence[Outcome]) -> list[SettleResult]:
    """Everything that a settle yields."""
    return [part async for part in settlement(store)[0].settle(batch, a_portion(batch.claims), outcomes)]


@timeless
async def test_a_portion_is_yielded_as_it_was_given() -> None:
    """The common case: one statement, no copies."""
    store, batch = FakeSettles(), a_batch(count=3)

    [part] = await written(store, batch, [SUCCESS] * 3)

    assert (batch.claims, [SUCCESS] * 3, []) == (part.portion.claims, part.outcomes, part.lost)
    assert [(500_000, 1_000_000)] * 3 == [(row.published, row.confirmed) for row in store.archived]


@timeless
async def test_each_outcome_goes_its_way() -> None:
    """Archive and release are two statements; what is kept is written by none."""
    store, batch = FakeSettles(), a_batch(count=5)
    outcomes: list[Outcome] = [SUCCESS, RETRY, Keep(), BACK, Archive(Result.REJECTED, "x")]

    [part] = await written(store, batch, outcomes)

    assert outcomes == part.outcomes
    assert [batch.claims[n] for n in (0, 4)] == [row.claim for row in store.archived]
    assert [batch.claims[n] for n in (1, 3)] == [row.claim for row in store.released]


@timeless
async def test_a_row_that_is_refused_for_good_does_not_keep_a_relay_that_leaves() -> None:
    """It is tried once more, also if that had been half a minute away, and left to its lock; its neighbours are written."""
    store, batch = FakeSettles(guilty="bad"), a_batch(a_claim(), a_claim(id="bad"))
    settle, _ = settlement(store)
    parts = settle.settle(batch, a_portion(batch.claims), [SUCCESS] * 2)
    assert [batch.claims[0]] == (await anext(parts)).portion.claims
    last = asyncio.ensure_future(anext(parts, None))
    await asyncio.sleep(1000)
    tries, before = len(store.again), asyncio.get_running_loop().time()

    settle.leave()

    assert await last is None
    assert tries + 1 == len(store.again)
    assert asyncio.get_running_loop().time() - before < 1


@timeless
async def test_a_database_that_is_away_is_waited_for_also_by_a_relay_that_leaves() -> None:
    """Only what the archive refuses is given up."""
    store, batch = FakeSettles(AWAY, AWAY), a_batch(count=2)
    settle, _ = settlement(store)
    settle.leave()

    [part] = [part async for part in settle.settle(batch, a_portion(batch.claims), [SUCCESS] * 2)]

    assert batch.claims == part.portion.claims


@timeless
async def test_what_is_kept_is_yielded_without_a_statement() -> None:
    """The relay leaves; its lock expires by itself."""
    store = FakeSettles()

    [part] = await written(store, a_batch(count=2), [Keep(), Keep()])

    assert (2, []) == (len(part.portion.claims), store.again)


@timeless
async def test_moments_that_never_were_are_written_as_none() -> None:
    """Zero means never."""
    store, batch = FakeSettles(), a_batch()
    portion = a_portion(batch.claims)._replace(published=[0.0], confirmed=[0.0])

    [_] = [part async for part in settlement(store)[0].settle(batch, portion, [SUCCESS])]

    assert [(None, None)] == [(row.published, row.confirmed) for row in store.archived]


@timeless
async def test_a_database_that_is_away_is_waited_for() -> None:
    """Each try is reported, and every later one asks what the first may have written. Nothing goes out twice."""
    store, batch = FakeSettles(AWAY, AWAY, AWAY), a_batch(count=2)
    settles, told = settlement(store)

    parts = [part async for part in settles.settle(batch, a_portion(batch.claims), [SUCCESS] * 2)]

    assert 1 == len(parts)
    assert [False, True, True, True] == store.again
    assert batch.claims == [row.claim for row in store.archived]
    assert [events.SettleFailed(2, "Away.", attempt) for attempt in (1, 2, 3)] == told


@timeless
async def test_lost_locks_of_both_statements_are_named() -> None:
    """What others took over while we settled or released."""
    batch = a_batch(a_claim(id="lost-1"), a_claim(), a_claim(id="lost-2"))

    [part] = await written(FakeSettles(), batch, [SUCCESS, SUCCESS, RETRY])

    assert ["lost-1", "lost-2"] == part.lost


@pytest.mark.parametrize("count", [1, 2, 7, 64])
@pytest.mark.parametrize("place", [0, -1])
@timeless
async def test_a_refused_row_stands_alone_in_the_end(count: int, place: int) -> None:
    """Wherever it is, its neighbours are written first. It follows when the cause is gone."""
    batch = a_batch(count=count)
    guilty = batch.claims[place]
    store = FakeSettles(guilty=guilty.id)
    settles, told = settlement(store)

    def forgive_the_third_time(event: events.Event) -> None:
        told.append(event)
        if len(told) == 3:
            store.forgive()

    settles._emit = forgive_the_third_time
    seen = [[claim.id for claim in part.portion.claims] async for part in settles.settle(batch, a_portion(batch.claims), [SUCCESS] * count)]

    neighbours = [claim.id for claim in batch.claims if claim is not guilty]
    assert [ids for ids in (neighbours, [guilty.id]) if ids] == seen
    assert [1, 1, 1] == [event.messages for event in told if isinstance(event, events.SettleFailed)]
    assert sorted(claim.id for claim in batch.claims) == sorted(row.claim.id for row in store.archived)


@timeless
async def test_a_refused_row_does_not_hold_what_is_released() -> None:
    """A retry of the same portion is written meanwhile."""
    batch = a_batch(count=2)
    store = FakeSettles(guilty=batch.claims[0].id)
    settles, _ = settlement(store)

    parts = settles.settle(batch, a_portion(batch.claims), [SUCCESS, RETRY])

    part = await anext(aiter(parts))
    assert ([batch.claims[1]], [RETRY]) == (part.portion.claims, part.outcomes)


class Noting(FakeSettles):
    """Keeps under which batch each statement was written."""

    def __init__(self, *, guilty: str = "") -> None:
        super().__init__(guilty=guilty)
        self.batches: list[Batch] = []

    async def archive(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """Note the batch, and write."""
        self.batches.append(batch)
        return await super().archive(batch, rows, again=again)

    async def release(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """Note the batch, and write."""
        self.batches.append(batch)
        return await super().release(batch, rows, again=again)


@pytest.mark.parametrize("outcome", [SUCCESS, RETRY])
@timeless
async def test_a_row_s_neighbours_are_written_with_all_that_is_theirs(outcome: Outcome) -> None:
    """Halved or not, each statement is under the batch's token, lost locks are named, and results and moments stay with their messages."""
    claims = [a_claim(id=id_) for id_ in ("lost-1", "a", "b", "lost-2", "bad", "lost-3")]
    batch, store = a_batch(*claims), Noting(guilty="bad")
    results = [PublishResult(Verdict.REFUSED, claim.id, "") for claim in claims]
    moments = [11.0 + number for number in range(6)]
    portion = Portion(claims, results, moments, [moment + 100 for moment in moments])
    settle, _ = settlement(store)

    part = await anext(aiter(settle.settle(batch, portion, [outcome] * 6)))

    through = [0, 1, 2, 3, 5]
    assert ["lost-1", "lost-2", "lost-3"] == part.lost
    assert [[column[n] for n in through] for column in portion] == list(part.portion)
    assert all(seen is batch for seen in store.batches)
    assert [(1_000_000 * (n + 1), 1_000_000 * (n + 101)) for n in through] == [
        (row.published, row.confirmed) for row in store.archived + store.released
    ]


@timeless
async def test_a_portion_without_all_of_its_outcomes_is_not_written() -> None:
    """A message without an outcome would be forgotten."""
    store, batch = FakeSettles(), a_batch(count=2)

    with pytest.raises(ValueError, match="zip"):
        await written(store, batch, [SUCCESS])

    assert [] == store.archived


@pytest.mark.parametrize(("error", "longest"), [(AWAY, 5.0), (StoreError("Refused.", refused=True), 30.0)])
@timeless
async def test_pauses_between_tries_grow_to_their_longest(error: StoreError, longest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is away is asked every five seconds in the end, a row that is refused for good every thirty."""
    monkeypatch.setattr("relay.aio.random", SimpleNamespace(random=lambda: 0.0))
    loop, batch, moments = asyncio.get_running_loop(), a_batch(), list[float]()
    settles = RetryingSettler(store=FakeSettles(*[error] * 11), emit=lambda event: moments.append(loop.time()))

    [_] = [part async for part in settles.settle(batch, a_portion(batch.claims), [SUCCESS])]

    waits = [round(later - earlier, 3) for earlier, later in itertools.pairwise([*moments, loop.time()])]
    assert [min(0.1 * 2**tries, longest) for tries in range(11)] == waits


@pytest.mark.parametrize("outcome", [SUCCESS, RETRY])
@timeless
async def test_rows_that_another_session_holds_are_written_when_it_lets_go(outcome: Outcome) -> None:
    """Their neighbours are yielded at once. Each try is reported as one that can pass, so that readiness does not go by it."""
    batch, store = a_batch(count=4), FakeSettles()
    store.busy = {batch.claims[1].id, batch.claims[3].id}
    settle, told = settlement(store)
    parts = settle.settle(batch, a_portion(batch.claims), [outcome] * 4)

    assert [batch.claims[0], batch.claims[2]] == (await anext(parts)).portion.claims
    rest = asyncio.ensure_future(anext(parts))
    await asyncio.sleep(100)
    assert not rest.done()
    assert {(2, 1)} == {(event.messages, event.attempt) for event in told if isinstance(event, events.SettleFailed)}
    store.busy = {batch.claims[3].id}
    assert [batch.claims[1]] == (await rest).portion.claims
    store.busy = set()
    assert [[batch.claims[3]]] == [part.portion.claims async for part in parts]
    assert 4 == len(store.archived + store.released)


@timeless
async def test_a_row_that_another_session_holds_is_tried_every_second() -> None:
    """Once it is unlocked, its settle comes before a sweep of its expired lock, which runs once a minute."""
    loop, batch, store, moments = asyncio.get_running_loop(), a_batch(), FakeSettles(), list[float]()
    store.busy = {batch.claims[0].id}
    settles = RetryingSettler(store=store, emit=lambda event: moments.append(loop.time()))
    task = asyncio.ensure_future(anext(settles.settle(batch, a_portion(batch.claims), [SUCCESS])))

    await asyncio.sleep(1000)
    store.busy = set()
    await task

    assert max(later - earlier for earlier, later in itertools.pairwise(moments)) <= 1.0
    assert 1000 <= len(moments) < 2100


@timeless
async def test_a_relay_that_leaves_still_settles_what_another_session_holds() -> None:
    """It continues to try at the same pace, as long as it may. What the archive refuses it leaves to its lock."""
    claims = [a_claim(), a_claim(id="held"), a_claim(id="bad")]
    batch, store = a_batch(*claims), FakeSettles(guilty="bad")
    store.busy = {"held"}
    settle, told = settlement(store)
    parts = settle.settle(batch, a_portion(claims), [SUCCESS] * 3)
    assert claims[:1] == (await anext(parts)).portion.claims
    rest = asyncio.ensure_future(anext(parts))

    settle.leave()
    await asyncio.sleep(10)
    assert not rest.done()
    assert len(told) < 100
    store.busy = set()

    assert claims[1:2] == (await rest).portion.claims
    assert [] == [part async for part in parts]
