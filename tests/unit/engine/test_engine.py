"""The core loop with scripted neighbours: order, window, outages, drain and cut."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from relay import events
from relay.engine.loop import MIN_CLAIM_SHARE
from relay.errors import StoreError
from relay.message import SUCCESS, Archive, Batch, GiveBack, PublishResult, Result, Retry, Verdict
from tests.support.fakes.adapters import EMPTY, a_batch, a_claim
from tests.support.fakes.engine_harness import BATCH, Rig
from tests.support.fakes.virtual_time import timeless


@timeless
async def test_every_batch_goes_from_claim_to_settle() -> None:
    """Published once, decided, settled, and out of hand."""
    batches = [a_batch(count=3) for _ in range(5)]
    rig = Rig(*batches)
    async with rig.running():
        await rig.until_idle()

    assert batches == rig.publisher.published
    assert dict.fromkeys((claim.id for batch in batches for claim in batch.claims), SUCCESS) == rig.settler.outcomes
    assert 0 == rig.window.messages
    assert [3] * 5 == rig.wakeup.found
    assert (5, 5) == (len(rig.of(events.BatchClaimed)), len(rig.of(events.BatchSettled)))
    assert sorted(rig.settler.outcomes) == sorted(line.removeprefix("settled ") for line in rig.intake.told)


@timeless
async def test_each_result_is_decided_by_itself() -> None:
    """One bad message in a batch takes no neighbour with it."""
    good, bad, refused = a_claim(), a_claim(), a_claim()
    rig = Rig(a_batch(good, bad, refused))
    rig.publisher.results = {bad.id: PublishResult(Verdict.INVALID, "c", "d"), refused.id: PublishResult(Verdict.REFUSED, "c", "d")}
    async with rig.running():
        await rig.until_idle()

    assert (SUCCESS, Archive(Result.REJECTED, "c", "d")) == (rig.settler.outcomes[good.id], rig.settler.outcomes[bad.id])
    assert isinstance(rig.settler.outcomes[refused.id], Retry)
    assert [events.MessageDead(bad.id, "rejected", "c", "d", "orders")] == rig.of(events.MessageDead)


@timeless
async def test_until_a_claim_was_answered_it_may_bring_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is so up to the moment at which what it brought is in flight."""
    answer, claim = asyncio.Event(), a_claim()
    rig = Rig(a_batch(claim))
    rig.publisher.held, at_once = {claim.id}, rig.intake.claim

    async def later(room: int, room_bytes: int) -> Batch | None:
        await answer.wait()
        return await at_once(room, room_bytes)

    monkeypatch.setattr(rig.intake, "claim", later)
    async with rig.running():
        await asyncio.sleep(60)
        assert rig.engine.claiming
        answer.set()
        await rig.until(lambda: not rig.engine.claiming)
        assert 1 == rig.window.messages
        rig.publisher.let_go()


@timeless
async def test_a_claim_that_failed_found_out_nothing() -> None:
    """There may be something to move until the next one, however long the broker keeps that waiting."""
    rig = Rig(StoreError("Away."))
    async with rig.running():
        await rig.until(lambda: bool(rig.of(events.DatabaseDown)))
        rig.publisher.ready_event.clear()
        await rig.publisher.waited.wait()
        assert rig.engine.claiming
        rig.publisher.ready_event.set()
        await rig.until_idle()
        assert not rig.engine.claiming


@timeless
async def test_without_the_broker_nobody_knows_whether_anything_is_left() -> None:
    """From the start on, until a claim has come up empty."""
    rig = Rig()
    rig.publisher.ready_event.clear()
    assert rig.engine.claiming
    async with rig.running():
        for _ in range(2):
            await rig.publisher.waited.wait()
            assert rig.engine.claiming
            rig.publisher.ready_event.set()
            await rig.until(lambda: not rig.engine.claiming)
            rig.publisher.waited.clear()
            rig.publisher.ready_event.clear()
            rig.nudged.set()


@timeless
async def test_the_broker_does_not_wait_for_a_settle() -> None:
    """While one batch is being settled the next ones are claimed and published."""
    rig = Rig(a_batch(), a_batch(), a_batch())
    rig.settler.gate.clear()
    async with rig.running():
        await rig.until_idle()
        assert (3, {}) == (len(rig.publisher.published), rig.settler.outcomes)
        rig.settler.gate.set()

    assert 3 == len(rig.settler.outcomes)


@timeless
async def test_what_is_confirmed_is_settled_while_its_batch_waits() -> None:
    """A silent queue holds no neighbour of the same batch."""
    silent, quick = a_claim(), a_claim()
    rig = Rig(a_batch(silent, quick))
    rig.publisher.held = {silent.id}
    async with rig.running():
        await rig.until(lambda: bool(rig.settler.outcomes))
        assert {quick.id: SUCCESS} == rig.settler.outcomes
        assert 1 == rig.window.messages
        rig.publisher.let_go()

    assert {quick.id: SUCCESS, silent.id: SUCCESS} == rig.settler.outcomes


@timeless
async def test_the_window_bounds_what_is_in_hand() -> None:
    """Claims ask for the room that is left, and stop when it is less than half of a batch."""
    batches = [a_batch(count=BATCH), a_batch(count=BATCH), a_batch(count=3), a_batch(count=BATCH)]
    rig = Rig(*batches, window=25)
    rig.publisher.held = {claim.id for batch in batches for claim in batch.claims}
    async with rig.running():
        await rig.until(lambda: len(rig.publisher.published) == 3)
        await asyncio.sleep(10)
        assert (23, [10, 10, 5]) == (rig.window.messages, [room for room, _ in rig.intake.rooms])
        assert rig.window.room()[0] < BATCH * MIN_CLAIM_SHARE
        rig.publisher.let_go()
        await rig.until_idle()

    assert 4 == len(rig.publisher.published)


@timeless
async def test_a_window_smaller_than_a_batch_still_moves_messages() -> None:
    """Small windows mean small batches, not none."""
    batches = [a_batch() for _ in range(3)]
    rig = Rig(*batches, window=2)
    async with rig.running():
        await asyncio.wait_for(rig.until_idle(), 60)

    assert batches == rig.publisher.published


@timeless
async def test_bytes_bound_the_window_too() -> None:
    """A full window in bytes claims nothing until something is settled."""
    big, next_one = a_batch(a_claim(payload=bytes(600))), a_batch()
    rig = Rig(big, next_one, window_bytes=500)
    rig.publisher.held = {big.claims[0].id}
    async with rig.running():
        await rig.until(lambda: bool(rig.publisher.published))
        await asyncio.sleep(10)
        assert [big] == rig.publisher.published
        rig.publisher.let_go()
        await rig.until_idle()

    assert [big, next_one] == rig.publisher.published


@pytest.mark.parametrize(
    ("window", "window_bytes", "claims"), [(8, 100_000, 2), (7, 100_000, 1), (100, 6 * EMPTY + 600, 1), (100, 6 * EMPTY + 601, 2)]
)
@timeless
async def test_the_last_room_that_is_enough_is_used(window: int, window_bytes: int, claims: int) -> None:
    """Half of a batch is enough, of half of a smaller window too, and so is one byte; no byte is not."""
    rig = Rig(a_batch(a_claim(payload=bytes(600)), *(a_claim(payload=b"") for _ in range(5))), window=window, window_bytes=window_bytes)
    rig.engine._batch_size = 8
    async with rig.running():
        rig.settler.gate.clear()
        await asyncio.sleep(10)
        assert claims == len(rig.intake.rooms)
        rig.settler.gate.set()


@timeless
async def test_a_window_smaller_than_a_batch_goes_on_beside_a_stuck_exchange() -> None:
    """Half of it is left to the others, and half of that is enough for a claim."""
    rig = Rig(a_batch(a_claim()), window=8)
    rig.window.add(a_batch(*(a_claim(exchange="silent") for _ in range(4))))
    assert rig.window.note_silence(["silent"])
    rig.window.add(a_batch(a_claim()))
    async with rig.running():
        await rig.until(lambda: bool(rig.settler.outcomes))

    assert 3 == rig.intake.rooms[0][0]


@timeless
async def test_an_engine_says_whether_it_runs() -> None:
    """Until its end, however that comes."""
    rig, broken = Rig(), Rig(ZeroDivisionError())
    seen = [rig.engine.running]
    async with rig.running():
        await rig.until_idle()
        seen.append(rig.engine.running)
    with contextlib.suppress(BaseExceptionGroup):
        await broken.engine.run(drain_seconds=1)

    assert [True, True, False, False] == [*seen, rig.engine.running, broken.engine.running]


@timeless
async def test_nothing_is_claimed_while_the_broker_is_away() -> None:
    """An outage costs neither locks nor attempts; claiming begins when the broker is there."""
    rig = Rig(a_batch())
    rig.publisher.ready_event.clear()
    async with rig.running():
        await rig.publisher.waited.wait()
        await asyncio.sleep(10)
        assert [] == rig.intake.rooms
        rig.publisher.ready_event.set()
        await rig.until_idle()

    assert 1 == len(rig.settler.outcomes)


@timeless
async def test_a_relay_can_be_stopped_while_the_broker_is_away() -> None:
    """Waiting for it does not outlive a stop."""
    rig = Rig()
    rig.publisher.ready_event.clear()
    async with rig.running():
        await rig.publisher.waited.wait()

    assert [] == rig.intake.rooms


@timeless
async def test_a_database_that_is_away_is_waited_for_and_told_once_it_is_back() -> None:
    """The intake begins again on a new connection; no batch is lost and none comes twice."""
    batch = a_batch()
    rig = Rig(StoreError("Away."), StoreError("Away."), batch)
    async with rig.running():
        await rig.until_idle()

    assert [events.DatabaseDown("Away.", 1), events.DatabaseDown("Away.", 2)] == rig.of(events.DatabaseDown)
    assert [events.DatabaseUp()] == rig.of(events.DatabaseUp)
    assert (2, [batch]) == (rig.intake.told.count("reset"), rig.publisher.published)


@timeless
async def test_before_it_sleeps_the_engine_looks_once_more() -> None:
    """Writers notify only from then on, so what came in between is found by the look."""
    rig = Rig(looks=1)
    async with rig.running():
        await rig.until_idle()

    assert (1, 2) == (rig.intake.told.count("hint"), len(rig.intake.rooms))


@timeless
async def test_a_hint_ends_the_rest() -> None:
    """The next look is an hour away, and the message goes at once."""
    rig = Rig()
    async with rig.running():
        await rig.until_idle()
        rig.intake.script.append(a_batch())
        before = asyncio.get_running_loop().time()
        rig.nudged.set()
        await rig.until(lambda: bool(rig.settler.outcomes))
        assert asyncio.get_running_loop().time() - before < 60


@timeless
async def test_without_a_hint_the_poll_comes() -> None:
    """NOTIFY is a hint; the poll is the guarantee."""
    rig = Rig()
    async with rig.running():
        await rig.until_idle()
        rig.intake.script.append(a_batch())
        await asyncio.sleep(3700)
        await rig.until(lambda: bool(rig.settler.outcomes))

    assert 1 == len(rig.publisher.published)


@timeless
async def test_nothing_is_published_again_because_a_settle_was_slow() -> None:
    """The outcomes wait for the database; the messages are not sent a second time."""
    batch = a_batch(count=4)
    rig = Rig(batch)
    rig.settler.gate.clear()
    async with rig.running():
        await rig.until_idle()
        await asyncio.sleep(3600)
        rig.settler.gate.set()

    assert [batch] == rig.publisher.published
    assert 4 == len(rig.settler.outcomes)


@timeless
async def test_what_never_reached_the_broker_is_given_back() -> None:
    """Not an attempt, and claimable again at once."""
    claim = a_claim()
    rig = Rig(a_batch(claim))
    rig.publisher.results = {claim.id: PublishResult(Verdict.UNWRITTEN, "gone", "It went.")}
    async with rig.running():
        await rig.until_idle()

    assert {claim.id: GiveBack("gone", "It went.")} == rig.settler.outcomes
