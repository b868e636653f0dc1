"""A run drawn from a seed: what happens, to whom, and how long it takes until the next thing happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.simulation.broker import DEADLY, NOWHERE
from tests.simulation.database import LIMITED
from tests.simulation.ending import finish
from tests.simulation.ledger import Counts
from tests.simulation.world import BAD, EXCHANGES, FATES, GOOD, GROUPS, KEYS, STATES, World

Act = Callable[[World, Random], object]
STEP = 0.05
"""Mean seconds of simulated time between two steps."""
SETTLED = 12.0
"""Seconds until relays that start share the lanes."""


class Report(NamedTuple):
    """What a run came to."""

    seed: int
    steps: int
    """Events of the schedule; what the end of the run costs counts in `cpu` all the same."""
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


POLICIES = [
    *(("on_lock_expired", word) for word in ("archive", "retry", "retry")),
    *(("on_dead_key", word) for word in ("park", "continue")),
    *(("max_attempts", number) for number in ("3", "12")),
]
ACTS: dict[str, Act] = {
    "insert": _insert,
    "insert refused": lambda world, chance: world.insert(chance.choice(GOOD), chance.choice((None, *KEYS)), refused=True),
    "insert deadly": lambda world, chance: world.insert(chance.choice(GOOD), chance.choice((None, None, *KEYS)), key_of=DEADLY),
    "flood": lambda world, chance: world.flood(chance.choice(GOOD), chance.randrange(60)),
    "pass": lambda world, chance: world.step(chance.expovariate(2.0)),
    "begin": lambda world, chance: world.begin() if len(world.writers) < 4 else None,
    "commit": lambda world, chance: world.commit(chance.randrange(9)),
    "roll back": lambda world, chance: world.roll_back(chance.randrange(9)),
    "savepoint": lambda world, chance: world.roll_back_to_savepoint(chance.randrange(9)),
    "start": lambda world, chance: world.start(),
    "crash": lambda world, chance: world.crash(chance.randrange(9)),
    "freeze": lambda world, chance: world.freeze(chance.randrange(9)),
    "thaw": lambda world, chance: world.thaw(chance.randrange(9), _flip(chance)),
    "jump": lambda world, chance: world.jump(chance.randrange(9), chance.random() * 40),
    "drain": lambda world, chance: world.drain(chance.randrange(9)),
    "statement": lambda world, chance: world.lose_statement(
        chance.randrange(9), chance.choice(sorted(GROUPS)), chance.choice(FATES), chance.random() * 2
    ),
    "database": lambda world, chance: world.lose_database(chance.randrange(9), chance.expovariate(0.3)),
    "restart": lambda world, chance: world.restart_database(chance.expovariate(0.3)),
    "partition": lambda world, chance: world.lose_partition(),
    "accept": lambda world, chance: world.database.refused.clear(),
    "hold": lambda world, chance: world.hold(chance.randrange(1, 4), chance.random()),
    "policy": lambda world, chance: world.decide(*chance.choice(POLICIES)),
    "drop": lambda world, chance: world.drop(chance.randrange(9)),
    "broker": lambda world, chance: world.restart_broker(_flip(chance, 0.3)),
    "block": lambda world, chance: world.broker.block(_flip(chance, 0.3)),
    "slow": lambda world, chance: setattr(world.broker, "slow", chance.choice([0.0, 0.0, 0.2, 3.0])),
    "exchange": lambda world, chance: world.broker.become(chance.choice(EXCHANGES), chance.choice(STATES)),
    "bad exchange": lambda world, chance: world.broker.become(BAD, chance.choice(STATES[1:])),
    "well": lambda world, chance: world.broker.become(chance.choice(GOOD), "well"),
    "pause": lambda world, chance: world.pause(chance.choice(EXCHANGES), _flip(chance, 0.4)),
    "limit": lambda world, chance: world.limit(chance.choice(LIMITED), chance.choice((None, 0.5, 3.0, 20.0))),
    "park": lambda world, chance: world.park(chance.choice(KEYS), _flip(chance, 0.4)),
    "skip": lambda world, chance: world.skip(chance.choice(KEYS)),
    "pause limited": lambda world, chance: world.pause(chance.choice(LIMITED), _flip(chance, 0.4)),
    "sweep": lambda world, chance: world.sweep(),
}
MENUS: dict[str, dict[str, float]] = {
    "everything": {
        "insert": 40, "insert refused": 0.5, "flood": 0.2,
        "pass": 8, "begin": 4, "commit": 5, "roll back": 1, "savepoint": 1, "start": 1, "crash": 0.5,
        "freeze": 0.3, "thaw": 0.6, "jump": 0.1, "drain": 0.3, "statement": 4, "database": 0.4, "restart": 0.1, "partition": 0.3,
        "accept": 0.3, "hold": 0.5, "policy": 0.5, "drop": 1, "broker": 0.5, "block": 0.5, "slow": 0.3, "exchange": 2, "well": 3,
        "pause": 0.7, "park": 0.7, "skip": 0.3, "sweep": 0.2,
    },
    "bad messages": {
        "insert": 40, "insert refused": 1, "pass": 6, "begin": 3, "commit": 4, "roll back": 1, "savepoint": 1, "partition": 0.5,
        "accept": 0.1, "bad exchange": 1,
    },
    "limits": {
        "insert": 40, "flood": 1, "pass": 10, "begin": 3, "commit": 4, "roll back": 1, "limit": 0.5, "pause limited": 0.3, "policy": 0.2,
    },
    "deadly messages": {"insert": 40, "insert deadly": 0.5, "pass": 20},
}  # fmt: skip
"""What can happen, by the promise that is looked at, and how often."""


def prepare(world: World, menu: str) -> None:
    """Policies by chance, two relays, and what is promised where this is all that happens."""
    chance, settings = world.chance, world.database.settings
    settings |= {
        "on_lock_expired": "archive" if _flip(chance, 0.2) else "retry",
        "on_dead_key": "park" if _flip(chance, 0.2) else "continue",
        "max_attempts": chance.choice(["3", "12", "12"]),
    }
    world.broker.become(BAD, "missing")
    for _ in range(2):
        world.start()
    if menu == "everything":
        return
    world.step(SETTLED)
    if menu == "deadly messages":
        settings |= {"on_lock_expired": "retry", "max_attempts": "4"}
        world.ledger.deadly_only = True
    if menu in {"bad messages", "limits"}:
        world.promises.patience = 4.0
    if menu == "limits":
        world.promises.limits = True
        for exchange in LIMITED:
            world.limit(exchange, 3.0)
        world.step(SETTLED)


def play(world: World, steps: int, menu: str) -> None:
    """A step is one thing that happens, what everybody makes of it until the next one, and all checks."""
    chance = world.chance
    names, weights = list(MENUS[menu]), list(MENUS[menu].values())
    for _ in range(steps):
        [name] = chance.choices(names, weights)
        world.trace(name)
        ACTS[name](world, chance)
        world.step(chance.expovariate(1 / STEP))


def replay(seed: int, steps: int, menu: str) -> str:
    """The command that runs a seed again."""
    return f"SIMULATION_MENU='{menu}' SIMULATION_SEED={seed} SIMULATION_STEPS={steps} python -m tests.simulation"


def run(seed: int, steps: int, menu: str = "everything") -> Report:
    """Run a seed's schedule to its end.

    Raises:
        BrokenError: a promise was broken.
    """
    began = time.process_time()
    with World(seed).running() as world:
        prepare(world, menu)
        play(world, steps, menu)
        finish(world)
    cpu = time.process_time() - began
    turns = world.loop.turns
    return Report(seed, steps, world.digest, world.ledger.counts, world.loop.now, cpu, world.server.statements, turns)
