"""What simulations have found, each reduced to the behaviour that was wrong."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from relay.claims.intake import Intake
from relay.claims.suspects import ALONE_PATIENCE
from relay.message import SUCCESS, Batch
from relay.ports import At
from tests.simulation.connection import Connection
from tests.simulation.ledger import BrokenError
from tests.simulation.world import GOOD, KEYS, TROUBLE, World
from tests.support.fakes.adapters import FakeClaims, a_batch, a_claim, a_finding, a_portion, at_once


class Clock:
    """Seconds that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


def test_a_suspect_that_a_silent_queue_keeps_holds_no_other_suspect() -> None:
    """One that goes alone was waited for without an end: those of other exchanges now follow first, then those of its own."""
    store, clock = FakeClaims(), Clock()
    intake = Intake(store=store, poll_interval=1.0, clock=clock)
    silent, own, other = (_suspect(intake, store, name) for name in ("silent", "silent", "other"))
    assert silent in _claims(intake)
    assert _claims(intake) == [None] * 9

    clock.now += ALONE_PATIENCE
    store.script["suspect"] = [other]
    assert other in _claims(intake)

    assert [silent.claims[0].position, other.claims[0].position] == [at for one in _asked_at(store) for at in one.positions]
    assert own.claims[0].position not in [at for one in _asked_at(store) for at in one.positions]


def test_a_suspect_that_is_through_lets_the_next_one_go_although_one_is_kept() -> None:
    """While a silent queue kept one, the others followed each other every two seconds only, however soon each was through."""
    store, clock = FakeClaims(), Clock()
    intake = Intake(store=store, poll_interval=1.0, clock=clock)
    silent, *others = (_suspect(intake, store, name) for name in ("silent", "orders", "audit"))
    assert silent in _claims(intake)
    clock.now += ALONE_PATIENCE
    assert others[0] in _claims(intake)
    assert _claims(intake) == [None] * 9

    intake.settled(a_portion(others[0].claims), [SUCCESS])
    assert others[1] in _claims(intake)


def test_a_relay_that_stumbles_over_the_simulation_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection in memory lacked a new attribute of a real one. The relay tried again for ever, and only leftover messages showed it."""
    monkeypatch.delattr(Connection, "risk")
    with World(1).running() as world:
        world.start()
        with pytest.raises(BrokenError, match="report this as a bug"):
            world.step(1.0)


def _claims(intake: Intake) -> list[Batch | None]:
    return [at_once(intake.claim(10, 1000)) for _ in range(9)]


def _suspect(intake: Intake, store: FakeClaims, exchange: str) -> Batch:
    """One that has lost two locks, which a scan finds; its batch is the next of its kind."""
    batch = a_batch(a_claim(exchange=exchange, attempts=3))
    store.script.setdefault("suspect", []).append(batch)
    intake.found([a_finding("suspect", position=batch.claims[0].position, exchange=exchange, trusted=False)])
    return batch


def _asked_at(store: FakeClaims) -> list[At]:
    return [one for one in store.wanted if isinstance(one, At)]


def test_a_message_that_is_due_and_cannot_be_claimed_is_not_looked_for_without_a_pause() -> None:
    """Each scan found it again as long as scans overlap, and each find made the next scan due at once."""
    with World(1, keep_trace=True).running() as world:
        world.start()
        world.step(30.0)
        world.park(KEYS[0], True)
        world.insert(GOOD[0], KEYS[0], wait=0.1)
        world.lines.clear()
        world.step(3.0)
        assert 1 <= sum("scan_due" in what for _, what in world.lines) < 15


def test_the_clock_of_a_relay_that_stood_still_does_not_go_back() -> None:
    """It lagged by more than the time for which the relay was frozen, so that its periodic work came too late."""
    with World(1).running() as world:
        world.start()
        world.step(10.0)
        world.freeze(0)
        world.step(1.0)
        world.thaw(0, lag=True)
        assert -1.0 <= world.living[0].process.ahead < 0.0


def test_what_a_lost_claim_locked_is_freed_although_the_relays_clock_steps_ahead() -> None:
    """By that clock its locks had been looked for long enough before they expired; sweeps are counted now, and no seconds."""
    with World(1).running() as world:
        world.start()
        world.step(30.0)
        world.lose_statement(0, "ordered", "after", 0.0)
        world.insert(GOOD[0], KEYS[0])
        while world.living[0].client.fates:
            world.step(0.01)
        world.jump(0, 40.0)
        for _ in range(20):
            world.step(1.0)
        assert {} == world.database.rows


@pytest.mark.parametrize("left", [0, 1])
def test_a_claim_whose_answer_was_lost_excuses_no_other_lock_that_a_relay_leaves(left: int) -> None:
    """Once a claim was lost, whatever a relay left behind when it ended in order was taken for what that had locked."""
    with World(1).running() as world:
        world.start()
        world.step(30.0)
        world.lose_statement(0, "claim", "after", 0.0)
        world.insert(GOOD[0])
        while world.living[0].client.fates:
            world.step(0.001)
        world.step(0.01)
        world.broker.block(True)
        world.step(1.0)  # The relay has heard of it, and claims no more.
        for _ in range(left):
            world.insert(GOOD[0])
        world.step(world.lock_seconds + TROUBLE)
        for row in [row for row in world.database.rows.values() if not row.attempts]:
            world.database.lock(row, world.database.now() + 60.0, "left", world.living[0].id)
        assert world.living[0].unheard
        world.drain(0)
        with pytest.raises(BrokenError, match="left") if left else nullcontext():
            world.step(1.0)
        assert left or not world.living
