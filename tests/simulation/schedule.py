"""A run drawn from a seed: what happens, to whom, and how long it takes until the next thing happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.simulation.broker import NOWHERE
from tests.simulation.ending import finish
from tests.simulation.ledger import Counts
from tests.simulation.world import BAD, EXCHANGES, FATES, GOOD, GROUPS, KEYS, STATES, World

Act = Callable[[World, Random], object]
STEP = 0.05
"""Mean seconds of simulated time between two steps."""


class Report(NamedTuple):
    """What a run came to."""

    seed: int
    steps: int
    digest: str
    counts: Counts
    seconds: float
    """Simulated."""
    cpu: float
    statements: int
    turns: int


def _insert(world: World, chance: Random) -> None:
    for _ in range(chance.randrange(1, 4)):
        key = chance.choice(KEYS) if chance.random() < 0.4 else None
        exchange = BAD if chance.random() < (0.02 if key else 0.1) else chance.choice(GOOD)
        kind = chance.random() * (0.98 if key else 1.0)
        wait = chance.random() * 5 if kind < 0.1 else 0.0
        expires = chance.random() * 20 if 0.1 < kind < 0.15 else 0.0
        world.insert(exchange, key, wait=wait, expires=expires, key_of=NOWHERE if kind > 0.97 else "new")


def _flip(chance: Random, share: float = 0.5) -> bool:
    return chance.random() < share


MENU: dict[str, tuple[float, Act]] = {
    "insert": (40, _insert),
    "pass": (8, lambda world, chance: world.step(chance.expovariate(2.0))),
    "begin": (4, lambda world, chance: world.begin() if len(world.writers) < 4 else None),
    "commit": (5, lambda world, chance: world.commit(chance.randrange(9))),
    "roll back": (1, lambda world, chance: world.roll_back(chance.randrange(9))),
    "start": (1, lambda world, chance: world.start()),
    "crash": (0.5, lambda world, chance: world.crash(chance.randrange(9))),
    "freeze": (0.3, lambda world, chance: world.freeze(chance.randrange(9))),
    "thaw": (0.6, lambda world, chance: world.thaw(chance.randrange(9), _flip(chance))),
    "jump": (0.1, lambda world, chance: world.jump(chance.randrange(9), chance.random() * 40)),
    "drain": (0.3, lambda world, chance: world.drain(chance.randrange(9))),
    "statement": (
        4,
        lambda world, chance: world.lose_statement(
            chance.randrange(9), chance.choice(sorted(GROUPS)), chance.choice(FATES), chance.random() * 2
        ),
    ),
    "database": (0.4, lambda world, chance: world.lose_database(chance.randrange(9), chance.expovariate(0.3))),
    "restart": (0.1, lambda world, chance: world.restart_database(chance.expovariate(0.3))),
    "drop": (1, lambda world, chance: world.drop(chance.randrange(9))),
    "broker": (0.5, lambda world, chance: world.restart_broker(_flip(chance, 0.3))),
    "block": (0.5, lambda world, chance: world.broker.block(_flip(chance, 0.3))),
    "slow": (0.3, lambda world, chance: setattr(world.broker, "slow", chance.choice([0.0, 0.0, 0.2, 3.0]))),
    "exchange": (2, lambda world, chance: world.broker.become(chance.choice(EXCHANGES), chance.choice(STATES))),
    "well": (3, lambda world, chance: world.broker.become(chance.choice(GOOD), "well")),
    "pause": (0.7, lambda world, chance: world.pause(chance.choice(EXCHANGES), _flip(chance, 0.4))),
    "park": (0.7, lambda world, chance: world.park(chance.choice(KEYS), _flip(chance, 0.4))),
    "skip": (0.3, lambda world, chance: world.skip(chance.choice(KEYS))),
    "sweep": (0.2, lambda world, chance: world.sweep()),
}
NAMES, WEIGHTS = list(MENU), [weight for weight, _ in MENU.values()]


def prepare(world: World) -> None:
    """Policies by chance, and two relays."""
    chance = world.chance
    world.database.settings |= {
        "on_lock_expired": "archive" if _flip(chance, 0.2) else "retry",
        "on_dead_key": "park" if _flip(chance, 0.2) else "continue",
        "max_attempts": chance.choice(["3", "12", "12"]),
    }
    world.broker.become(BAD, "missing")
    for _ in range(2):
        world.start()


def play(world: World, steps: int) -> None:
    """A step is one thing that happens, what everybody makes of it until the next one, and all checks."""
    chance = world.chance
    for _ in range(steps):
        [name] = chance.choices(NAMES, WEIGHTS)
        world.trace(name)
        MENU[name][1](world, chance)
        world.step(chance.expovariate(1 / STEP))


def replay(seed: int, steps: int) -> str:
    """The command that runs a seed again."""
    return f"SIMULATION_SEED={seed} SIMULATION_STEPS={steps} python -m tests.simulation"


def run(seed: int, steps: int) -> Report:
    """Run a seed's schedule to its end.

    Raises:
        BrokenError: a promise was broken.
    """
    began = time.process_time()
    with World(seed).running() as world:
        prepare(world)
        play(world, steps)
        finish(world)
    cpu = time.process_time() - began
    turns = world.loop.turns
    return Report(seed, world.steps, world.digest, world.ledger.counts, world.loop.now, cpu, world.server.statements, turns)
