"""Without faults: what a graceful stop and a steady stream promise, on the simulated clock."""

from __future__ import annotations

from tests.simulation.world import KEYS, World


def test_a_drain_leaves_nothing_locked_and_repeats_nothing() -> None:
    """SIGTERM in the middle of a stream, ten times: what the broker confirms within the drain time is settled by the relay that sent it."""
    with World(1).running() as world:
        world.start()
        for turn in range(10):
            world.start()
            world.broker.become("orders", "silent")
            for number in range(30):
                world.insert("orders", KEYS[number % len(KEYS)] if number % 3 == 0 else None)
            world.step(0.1 + turn / 100)
            place = next(place for place, relay in enumerate(world.living) if relay.kept)
            leaving = world.living[place]
            world.drain(place)
            world.step(0.5)
            world.broker.become("orders", "well")
            world.step(3)
            assert not leaving.alive
            assert [] == [row.id for row in world.database.locked() if row.locked_by == leaving.id]
        world.step(30)
        counts = world.ledger.counts
    assert (300, 300, 0, 0) == (counts.archived, counts.delivered, counts.duplicates, counts.expired)
