"""What happens to a queue for long: restores, clocks that are set, exchanges that are held, and messages that others have locked."""

from __future__ import annotations

from random import Random

from tests.simulation.database import GOOD, LIMITED
from tests.simulation.liveness import FOUND, FREED, NOTED, RECOVERED, RENUMBERED
from tests.simulation.world import KEYS, World

HOUR = 3600.0
MOMENT = 0.3
"""Mean seconds between two messages of those that have nothing to do with it."""


def live_on(world: World, chance: Random, seconds: float) -> None:
    """Time passes while applications continue to insert."""
    until = world.loop.now + seconds
    while world.loop.now < until:
        world.insert(chance.choice(GOOD), chance.choice((None, *KEYS)), wait=chance.choice((0.0, 0.0, 1.0)))
        world.step(chance.expovariate(1 / MOMENT))


def restore(world: World, chance: Random) -> None:
    """A dump comes back, of a cluster with higher ids or with lower ones; only later its messages get ids of this cluster.

    A relay does that in its time, or somebody starts one.
    """
    world.restore(chance.randrange(1, 30), higher=chance.random() < 0.7)
    if chance.random() < 0.3:
        live_on(world, chance, RENUMBERED + FOUND)
    else:
        live_on(world, chance, chance.uniform(0.0, 20.0))
        world.renumber()
    live_on(world, chance, RECOVERED)


def set_clock(world: World, chance: Random) -> None:
    """The server's clock is set, while a relay holds messages that may be its last."""
    kept = chance.choice(GOOD)
    world.broker.become(kept, "silent")
    for _ in range(5):
        world.insert(kept, chance.choice((None, *KEYS)))
    live_on(world, chance, 3.0)
    world.set_clock(chance.choice((-HOUR, HOUR, -30.0, 30.0)))
    if chance.random() < 0.5:
        world.crash(chance.randrange(9))
        world.start()
    world.broker.become(kept, "well")
    live_on(world, chance, RECOVERED + NOTED + 2 * world.lock_seconds + 2 * FREED)


def hold_exchange(world: World, chance: Random) -> None:
    """An exchange is paused or limited for long, and its messages of every kind pile up."""
    held, limited = chance.choice(LIMITED), chance.random() < 0.4
    world.limit(held, 0.5) if limited else world.pause(held, True)
    for _ in range(chance.randrange(20, 80)):
        world.insert(held, chance.choice((None, None, *KEYS)), wait=chance.choice((0.0, 0.0, 0.3, 3.0)))
        if chance.random() < 0.05 and len(world.writers) < 4:
            world.begin()
    live_on(world, chance, chance.uniform(5.0, 20.0))
    while world.writers:
        world.commit(0)
        live_on(world, chance, chance.choice((0.0, 3.0)))
    world.limit(held, None) if limited else world.pause(held, False)
    live_on(world, chance, RECOVERED)


def refuse_messages(world: World, chance: Random) -> None:
    """A trigger refuses the UPDATE of some messages that wait, among them heads of keys and such as no fast path finds again."""
    world.insert(chance.choice(GOOD), chance.choice(KEYS), wait=chance.choice((0.0, 2.0)))
    world.insert(chance.choice(GOOD), wait=chance.choice((0.0, 2.0)))
    waiting = [row for row in world.database.rows.values() if row.lock_expires_at is None and row.tx is None]
    for row in waiting:
        row.kept = True
    live_on(world, chance, chance.uniform(0.0, 10.0))
    for row in waiting:
        row.kept = False
    live_on(world, chance, RECOVERED)


def hold_messages(world: World, chance: Random) -> None:
    """Somebody has messages locked for long, also such as relays hold; a cancel that is rolled back is one of those."""
    for _ in range(3):
        world.flood(chance.choice(GOOD), chance.randrange(20))
        world.insert(chance.choice(GOOD), chance.choice(KEYS), wait=0.01)
        world.hold(chance.randrange(1, 8), chance.uniform(0.0, 15.0), locked=True)
        live_on(world, chance, chance.uniform(0.0, 5.0))
    live_on(world, chance, RECOVERED)
