"""A run drawn from a seed: what happens, to whom, and how long it takes until the next thing happens."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.simulation.broker import DEADLY, NOWHERE
from tests.simulation.database import LIMITED
from tests.simulation.ending import finish
from tests.simulation.ledger import Counts
from tests.simulation.liveness import FREED
from tests.simulation.troubles import HOUR, hold_exchange, hold_messages, refuse_messages, restore, set_clock
from tests.simulation.world import BAD, EXCHANGES, FATES, GOOD, GROUPS, KEYS, STATES, World

Act = Callable[[World, Random], object]
STEP = 0.05
"""Mean seconds of simulated time between two steps."""
POLLED = 1.5
"""Seconds in which a message without a notification goes out: the poll interval, and the time on its way."""
OVERTAKEN = 2.0
"""Seconds in which a message overtakes a flood where the broker takes nearly half a second for each."""
SETTLED = 12.0
"""Seconds until relays that start share the lanes."""


class Report(NamedTuple):
    """What a run came to."""

    seed: int
    steps: int
    """Events of the schedule; what the end of the run costs is not counted as any."""
    digest: str
    counts: Counts
    seconds: float
    """Simulated."""
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


def _stall(world: World, chance: Random) -> None:
    """A claim of ordered messages arrives so late that their lanes have another owner."""
    which = chance.randrange(9)
    world.lose_statement(which, "ordered", "late", chance.uniform(6.5, 8.0))
    world.insert(chance.choice(GOOD), chance.choice(KEYS))
    world.step(0.1)
    world.lose_database(which, 8.0)


def _lose_claim(world: World, chance: Random) -> None:
    """The answer to a claim of what has committed late is lost, and no relay claims anything until its locks should be free."""
    world.begin()
    world.insert(chance.choice(GOOD))
    world.flood(chance.choice(GOOD), 30)
    world.step(FREED + 1.0)
    for place in range(len(world.living)):
        world.lose_statement(place, "late", "after", 0.0)
    world.commit(-1)
    while all(relay.client.fates for relay in world.living):
        world.step(0.005)
    world.broker.block(True)
    for _ in range(20):
        world.step(1.0)
    for relay in world.living:
        relay.client.fates.clear()
    world.broker.block(False)


def _sleep(world: World, chance: Random) -> None:
    """A relay is frozen with messages that it has claimed and not written, until other relays have claimed them."""
    world.flood(chance.choice(GOOD), 40)
    world.step(chance.uniform(0.0, 0.03))
    world.broker.block(True)
    world.step(0.5)
    which = chance.randrange(9)
    world.freeze(which)
    world.step(world.lock_seconds + 6.0)
    world.broker.block(False)
    world.step(chance.uniform(0.0, 3.0))
    world.thaw(which)


def _die(world: World, chance: Random) -> None:
    """Relays are killed soon after a claim of what an operator had held, far below where they had come to."""
    held = chance.choice(GOOD)
    world.pause(held, True)
    world.step(FREED)
    for _ in range(20):
        world.insert(held)
    for exchange in GOOD:
        world.flood(exchange, 10)
    world.step(FREED)
    world.broker.become(held, "silent")
    world.pause(held, False)
    while not any(row.exchange == held for row in world.database.locks.values()):
        world.step(0.02)
    world.step(chance.choice((0.0, 3.0)))
    for _ in range(len(world.living)):
        world.crash(0)
    for _ in range(2):
        world.start()
    world.broker.become(held, "well")


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
    "insert ordered": lambda world, chance: world.insert(chance.choice(GOOD), chance.choice(KEYS)),
    "flood audit": lambda world, chance: world.flood("audit", chance.randrange(400, 800)),
    "hold long": lambda world, chance: world.hold(chance.randrange(1, 4), chance.random() * 20, locked=True),
    "restore": lambda world, chance: world.restore(chance.randrange(1, 10), higher=_flip(chance)),
    "renumber": lambda world, chance: world.renumber(),
    "clock": lambda world, chance: world.set_clock(chance.choice((0.0, HOUR, -HOUR, 30.0, -30.0))),
    "restore and renumber": restore,
    "set clock": set_clock,
    "hold exchange": hold_exchange,
    "hold messages": hold_messages,
    "refuse messages": refuse_messages,
    "stall": _stall,
    "die": _die,
    "sleep": _sleep,
    "lose claim": _lose_claim,
    "lose hints": lambda world, chance: setattr(world.hearing, "loss", chance.choice([0.0, 0.0, 0.5, 1.0])),
    "deafen": lambda world, chance: world.hearing.deafen(chance.randrange(9)),
    "cut ear": lambda world, chance: world.hearing.cut(chance.randrange(9)),
}
MENUS: dict[str, dict[str, float]] = {
    "everything": {
        "insert": 40, "insert refused": 0.5, "flood": 0.2,
        "pass": 8, "begin": 4, "commit": 5, "roll back": 1, "savepoint": 1, "start": 1, "crash": 0.5,
        "freeze": 0.3, "thaw": 0.6, "jump": 0.1, "drain": 0.3, "statement": 4, "database": 0.4, "restart": 0.1, "partition": 0.3,
        "accept": 0.3, "hold": 0.5, "policy": 0.5, "drop": 1, "broker": 0.5, "block": 0.5, "slow": 0.3, "exchange": 2, "well": 3,
        "pause": 0.7, "park": 0.7, "skip": 0.3, "sweep": 0.2, "deafen": 0.1, "cut ear": 0.2,
        "hold long": 0.3, "restore": 0.2, "renumber": 0.3, "clock": 0.1,
    },
    "bad messages": {
        "insert": 40, "insert refused": 1, "pass": 6, "begin": 3, "commit": 4, "roll back": 1, "savepoint": 1, "partition": 0.5,
        "accept": 0.1, "bad exchange": 1,
    },
    "limits": {
        "insert": 40, "flood": 1, "pass": 10, "begin": 3, "commit": 4, "roll back": 1, "limit": 0.5, "pause limited": 0.3, "policy": 0.2,
    },
    "deadly messages": {"insert": 40, "insert deadly": 0.5, "pass": 20},
    "lanes": {"insert ordered": 30, "pass": 10, "begin": 2, "commit": 3, "stall": 1},
    "deaths": {"insert": 30, "pass": 10, "die": 0.7},
    "held messages": {"insert": 30, "pass": 10, "hold": 3},
    "messages that somebody holds": {"insert": 30, "pass": 10, "hold messages": 0.5},
    "messages that a trigger refuses": {"insert": 30, "pass": 10, "refuse messages": 0.5},
    "exchanges that are held": {"insert": 30, "pass": 10, "hold exchange": 0.5},
    "restores": {"insert": 30, "pass": 10, "restore and renumber": 0.5},
    "clocks that are set": {"insert": 30, "pass": 10, "set clock": 0.4},
    "relays that stand still": {"insert": 30, "pass": 15, "sleep": 1},
    "lost claims": {"insert": 30, "pass": 10, "lose claim": 0.5},
    "floods": {"insert": 30, "pass": 10, "flood audit": 0.3},
    "hints": {
        "insert": 30, "pass": 30, "begin": 3, "commit": 4, "roll back": 1, "lose hints": 0.5, "deafen": 0.5, "cut ear": 0.5,
    },
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
        world.hearing.loss = 0.5
        return
    world.step(SETTLED)
    if menu == "deadly messages":
        settings |= {"on_lock_expired": "retry", "max_attempts": "4"}
        world.ledger.deadly_only = True
    if menu in {"bad messages", "limits"}:
        world.promises.patience = 4.0
    if menu == "floods":
        world.broker.late = 0.4
        world.promises.patience, world.promises.flooding = OVERTAKEN, "audit"
    if menu == "hints":
        world.promises.patience, world.promises.hearing = POLLED, world.hearing
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
    with World(seed).running() as world:
        prepare(world, menu)
        play(world, steps, menu)
        finish(world)
    return Report(seed, steps, world.digest, world.ledger.counts, world.loop.now, world.server.statements, world.loop.turns)
