"""How long locks last, on the simulated clock: as long as somebody lives who holds them, and not much longer."""

from __future__ import annotations

from tests.simulation.world import TROUBLE, World


def test_what_a_dead_relay_held_is_out_within_the_lock_time() -> None:
    """Another relay frees it as soon as the locks have expired, and does not wait for the minute's sweep."""
    with World(3).running() as world:
        world.start()
        world.start()
        world.step(10)
        world.broker.become("orders", "silent")
        for _ in range(20):
            world.insert("orders")
        world.step(2)
        assert 20 == len(world.database.locked())
        world.crash(0)
        world.crash(0)
        world.broker.become("orders", "well")
        world.start()
        world.step(world.lock_seconds + TROUBLE)
        assert 20 == world.ledger.counts.archived


def test_locks_last_as_long_as_the_broker_takes() -> None:
    """A confirm that comes after three lock times finds its message still locked, and settles it, however often locks are swept."""
    with World(4).running() as world:
        world.start()
        world.start()
        world.broker.become("orders", "silent")
        world.insert("orders")
        for _ in range(30):
            world.step(world.lock_seconds / 10)
            world.sweep()
        world.broker.become("orders", "well")
        world.step(5)
        counts = world.ledger.counts
    assert (1, 1, 0, 0) == (counts.archived, counts.delivered, counts.duplicates, counts.expired)
