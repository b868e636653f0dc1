"""How an engine stops: what is in flight finishes within the drain time, the rest goes back or keeps its lock."""

from __future__ import annotations

import asyncio

import pytest

from relay.engine.in_flight import SETTLE_GRACE
from relay.engine.settler import RetryingSettler
from relay.message import SUCCESS, GiveBack, Keep
from tests.support.fakes.adapters import FakeSettles, a_batch, a_claim
from tests.support.fakes.engine_harness import Rig
from tests.support.fakes.virtual_time import timeless


@pytest.mark.ids("D9")
@timeless
async def test_a_stop_lets_what_is_in_flight_finish() -> None:
    """Confirms that come within the drain time are settled as successes; nothing more is claimed."""
    batch, never = a_batch(), a_batch()
    rig = Rig(batch)
    rig.publisher.held = {batch.claims[0].id}
    async with rig.running(drain=30) as task:
        await rig.until_idle()
        rig.engine.stop()
        rig.intake.script.append(never)
        await asyncio.sleep(10)
        assert not task.done()
        rig.publisher.let_go()
        await task

    assert {batch.claims[0].id: SUCCESS} == rig.settler.outcomes
    assert [batch] == rig.publisher.published


@pytest.mark.ids("D9")
@timeless
async def test_a_stop_gives_back_at_once_what_was_not_written() -> None:
    """Other relays need not wait for the drain: unwritten messages are released, and the drain continues for the written one."""
    written, *unwritten = claims = [a_claim() for _ in range(5)]
    rig = Rig(a_batch(*claims))
    rig.publisher.held, rig.publisher.unwritten = {written.id}, {claim.id for claim in unwritten}
    async with rig.running(drain=3600) as task:
        await rig.until_idle()
        before = asyncio.get_running_loop().time()
        rig.engine.stop()
        await rig.until(lambda: len(rig.settler.outcomes) == 4)
        assert asyncio.get_running_loop().time() - before < 1
        assert {claim.id: GiveBack("cut", "Held.") for claim in unwritten} == rig.settler.outcomes
        assert (1, False) == (rig.window.messages, task.done())
        rig.publisher.let_go()

    assert SUCCESS == rig.settler.outcomes[written.id]


@pytest.mark.ids("D9")
@timeless
async def test_a_drain_does_not_wait_for_what_the_archive_refuses() -> None:
    """Such a row is in flight for ever: the engine has the settler leave it to its lock, and the relay goes at once."""
    batch = a_batch(count=3)
    rig = Rig(batch)
    rig.engine._in_flight._settler = settlement = RetryingSettler(store=FakeSettles(guilty=batch.claims[1].id), emit=rig.told.append)
    async with rig.running(drain=3600):
        await rig.until(lambda: rig.window.messages == 1)
        before = asyncio.get_running_loop().time()

    assert settlement._leaving.is_set()
    assert asyncio.get_running_loop().time() - before < 1
    assert 1 == rig.window.messages


@pytest.mark.ids("D9")
@timeless
async def test_after_the_drain_time_unconfirmed_messages_keep_their_lock() -> None:
    """Written and not confirmed: neither released nor settled, and the relay leaves."""
    batch = a_batch()
    rig = Rig(batch)
    rig.publisher.held = {batch.claims[0].id}
    async with rig.running(drain=30):
        await rig.until_idle()

    assert {batch.claims[0].id: Keep()} == rig.settler.outcomes


@pytest.mark.ids("D9")
@timeless
async def test_a_second_signal_cuts() -> None:
    """No confirm is waited for any more, however long the drain may take."""
    batch = a_batch()
    rig = Rig(batch)
    rig.publisher.held = {batch.claims[0].id}
    before = asyncio.get_running_loop().time()
    async with rig.running(drain=3600) as task:
        await rig.until_idle()
        rig.engine.cut()
        await task

    assert asyncio.get_running_loop().time() - before < 60
    assert {batch.claims[0].id: Keep()} == rig.settler.outcomes


@timeless
async def test_a_database_that_stays_away_does_not_keep_a_relay_that_leaves() -> None:
    """Outcomes that cannot be written within the grace are given up; their locks expire."""
    rig = Rig(a_batch())
    rig.settler.gate.clear()
    before = asyncio.get_running_loop().time()
    async with rig.running(drain=30):
        await rig.until_idle()

    assert pytest.approx(30 + SETTLE_GRACE, abs=5) == asyncio.get_running_loop().time() - before
    assert ({}, 1) == (rig.settler.outcomes, rig.window.messages)
