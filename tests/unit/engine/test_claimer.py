"""Claims for the engine: what each failure of the database means, how long it is waited for, and a claim that is cut."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from relay import events
from relay.engine.claimer import Claimer
from relay.errors import NewConnectionError, StoreError
from relay.message import Batch
from tests.support.fakes.adapters import FakeIntake, a_batch, a_claim
from tests.support.fakes.virtual_time import timeless

BUSY = StoreError("Busy.", in_passing=True)
UNPRINTABLE = StoreError("Too large.", unprintable=True)
AWAY = StoreError("Away.")


class Silent(FakeIntake):
    """An intake whose database does not answer."""

    async def claim(self, room: int, room_bytes: int) -> Batch | None:
        """Wait for ever."""
        await super().claim(room, room_bytes)
        await asyncio.Event().wait()
        return None


class Rig:
    """A claimer, its intake and what it tells."""

    def __init__(self, *script: Batch | Exception | None, intake: FakeIntake | None = None) -> None:
        self.intake = intake or FakeIntake(*script)
        self.stopping = asyncio.Event()
        self.told: list[events.Event] = []
        self.claimer = Claimer(intake=self.intake, stopping=self.stopping, emit=self.told.append)

    async def claim(self) -> tuple[Batch | None, float]:
        """What a claim gives, and the seconds that it takes."""
        began = asyncio.get_running_loop().time()
        batch = await self.claimer.claim(7, 900)
        return batch, round(asyncio.get_running_loop().time() - began, 3)


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses at their longest."""
    monkeypatch.setattr("relay.aio.random", SimpleNamespace(random=lambda: 0.0))


@timeless
async def test_a_claim_asks_for_the_room_and_tells_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source, messages, bytes and seconds."""
    monkeypatch.setattr("relay.engine.claimer.time", SimpleNamespace(monotonic=iter([100.0, 100.5]).__next__))
    batch = a_batch(a_claim(payload=b"12345"), a_claim(payload=b"12345"))
    rig = Rig(batch)

    assert (batch, 0.0) == await rig.claim()
    assert [(7, 900)] == rig.intake.rooms
    assert [events.BatchClaimed("fresh", 2, batch.size, 0.5)] == rig.told
    assert not rig.claimer.failed


@timeless
async def test_what_is_in_somebody_s_way_is_tried_again_soon() -> None:
    """A deadlock says nothing about the connection: heads and lanes are kept, and neither an outage nor its end is reported."""
    rig = Rig(BUSY, BUSY, None)

    seen = [(*await rig.claim(), rig.claimer.failed) for _ in range(3)]

    assert [(None, 0.1, True), (None, 0.1, True), (None, 0.0, False)] == seen
    assert [events.MaintenanceFailed("claim", "Busy.")] * 2 == rig.told
    assert [] == rig.intake.told


@timeless
async def test_on_a_new_connection_claims_begin_again_at_once() -> None:
    """Positions are forgotten; that is no outage, and nothing is waited for."""
    rig = Rig(NewConnectionError("New."), None)

    seen = [(*await rig.claim(), rig.claimer.failed) for _ in range(2)]

    assert [(None, 0.0, True), (None, 0.0, False)] == seen
    assert ([], ["reset"]) == (rig.told, rig.intake.told)


@timeless
async def test_what_cannot_be_handed_out_is_rejected_by_the_database() -> None:
    """Else each claim would meet it again."""
    rig = Rig(UNPRINTABLE)

    assert (None, 0.1) == await rig.claim()
    assert ["reject_unprintable"] == rig.intake.told
    assert [events.MaintenanceFailed("claim", "Too large.")] == rig.told


@timeless
async def test_a_rejection_that_fails_is_left_to_the_next_claim() -> None:
    """The database may be away by then; the engine does not end over it."""
    rig = Rig(UNPRINTABLE)

    async def fails() -> None:
        raise AWAY

    rig.intake.reject_unprintable = fails  # type: ignore[method-assign]

    assert (None, 0.1) == await rig.claim()
    assert rig.claimer.failed


@timeless
async def test_pauses_grow_while_the_database_is_away_and_begin_anew_when_it_is_back() -> None:
    """Each failure is reported with its number, and the end of the outage once. Heads and lanes are found again."""
    rig = Rig(AWAY, AWAY, AWAY, None, None, AWAY, None)

    seconds = [(await rig.claim())[1] for _ in range(7)]

    assert [0.1, 0.2, 0.4, 0, 0, 0.1, 0] == seconds
    down = [events.DatabaseDown("Away.", number) for number in (1, 2, 3)]
    assert [*down, events.DatabaseUp(), down[0], events.DatabaseUp()] == rig.told
    assert ["reset"] * 4 == rig.intake.told


@pytest.mark.parametrize("error", [BUSY, AWAY])
@timeless
async def test_a_relay_that_is_told_to_stop_waits_for_no_database(error: StoreError) -> None:
    """The pause ends with the signal."""
    rig = Rig(error)
    rig.stopping.set()

    assert (None, 0.0) == await rig.claim()


@timeless
async def test_a_claim_can_be_cut() -> None:
    """A database that does not answer keeps no relay that leaves; that is no failure of the database."""
    rig = Rig(intake=Silent())
    claim = asyncio.ensure_future(rig.claim())
    await rig.intake.looked.wait()

    rig.claimer.cut()

    assert (None, 0.0) == await claim
    assert [] == rig.told


@timeless
async def test_without_a_claim_there_is_nothing_to_cut() -> None:
    """A relay may be asked to leave before its first claim, and after its last."""
    rig = Rig(None)
    rig.claimer.cut()
    await rig.claim()
    rig.claimer.cut()

    assert [] == rig.told


@timeless
async def test_a_claim_ends_with_who_asked_for_it() -> None:
    """No claim continues to ask the database in the name of an engine that was cancelled."""
    rig = Rig(intake=Silent())
    claim = asyncio.ensure_future(rig.claim())
    await rig.intake.looked.wait()

    claim.cancel()
    await asyncio.gather(claim, return_exceptions=True)
    await asyncio.sleep(1)

    assert rig.claimer._claiming is not None
    assert rig.claimer._claiming.cancelled()
