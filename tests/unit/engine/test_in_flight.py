"""Batches in flight: each result is decided and settled, what is kept is counted, and how batches end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from relay import events
from relay.engine.in_flight import InFlight
from relay.engine.retry import RetryPolicy
from relay.message import SUCCESS, Batch, Keep, PublishResult, Verdict
from relay.ports import SettleResult
from tests.support.fakes.adapters import FakePublisher, FakeSettler, a_batch, a_claim, a_portion
from tests.support.fakes.virtual_time import timeless

UNKNOWN = PublishResult(Verdict.UNKNOWN, "lost", "It is unknown.")


class Rig:
    """A flight between fakes, and what it tells."""

    def __init__(self) -> None:
        self.publisher = FakePublisher()
        self.settler = FakeSettler()
        self.told: list[events.Event] = []
        self.landed: list[tuple[Batch, SettleResult]] = []
        self.flight = InFlight(
            publisher=self.publisher,
            settler=self.settler,
            policy=RetryPolicy,
            settled=lambda batch, written: self.landed.append((batch, written)),
            emit=self.told.append,
        )

    async def fly(self, *batches: Batch, seconds: float = 10.0) -> float:
        """Launch the batches and land; return the seconds that it took."""
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            for batch in batches:
                self.flight.start(batch, tasks)
            await asyncio.sleep(0)
            await self.flight.drain(seconds)
        return round(asyncio.get_running_loop().time() - began, 3)


@timeless
async def test_what_is_kept_is_counted_over_all_batches() -> None:
    """A relay that leaves says how many messages keep their locks: those that were written and not confirmed, and no others."""
    kept, fine, more = [a_claim(), a_claim()], a_claim(), a_claim()
    rig = Rig()
    rig.publisher.held = {claim.id for claim in (*kept, more)}

    await rig.fly(a_batch(*kept, fine), a_batch(more))

    assert 3 == rig.flight.kept
    assert {fine.id: SUCCESS, **dict.fromkeys((claim.id for claim in (*kept, more)), Keep())} == rig.settler.outcomes


@timeless
async def test_nothing_is_kept_by_a_relay_that_stays() -> None:
    """The count is for a relay that leaves. Here an unknown result is released, and confirmed messages leave nothing."""
    good, lost = a_claim(), a_claim()
    rig = Rig()
    rig.publisher.results = {lost.id: UNKNOWN}

    assert 0.0 == await rig.fly(a_batch(good, lost))
    assert 0 == rig.flight.kept
    assert rig.settler.left


@timeless
async def test_a_settle_is_told_with_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the results to what was written."""
    monkeypatch.setattr("relay.engine.in_flight.time", SimpleNamespace(monotonic=iter([100.0, 100.25]).__next__))
    rig, batch = Rig(), a_batch()

    await rig.fly(batch)

    [settled] = rig.told
    assert isinstance(settled, events.BatchSettled)
    assert (1, 0.25) == (settled.messages, settled.seconds)
    assert [batch] == [landed for landed, _ in rig.landed]


@timeless
async def test_chance_is_drawn_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that failed together do not return together."""
    draws = iter([0.0, 0.5])
    monkeypatch.setattr("relay.engine.in_flight.random", SimpleNamespace(random=lambda: next(draws)))
    rig, batch = Rig(), a_batch(count=2)
    rig.publisher.results = {claim.id: PublishResult(Verdict.REFUSED, "nack", "No.") for claim in batch.claims}

    await rig.fly(batch)

    assert [0.8, 1.0] == [getattr(rig.settler.outcomes[claim.id], "delay", None) for claim in batch.claims]


@timeless
async def test_results_that_do_not_match_their_messages_end_the_relay() -> None:
    """A message without a result would be forgotten, so the relay does not continue, whatever the settler would say."""
    rig, batch = Rig(), a_batch(count=2)
    rig.settler.gate.clear()
    short = a_portion(batch.claims)._replace(results=[UNKNOWN])
    rig.publisher._portion = lambda claims: short  # type: ignore[method-assign]

    with pytest.raises(BaseExceptionGroup) as caught:
        await rig.fly(batch)

    assert caught.group_contains(ValueError, match="zip")
    assert {} == rig.settler.outcomes
