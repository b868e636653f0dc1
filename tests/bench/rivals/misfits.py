"""One message that cannot go out, in the middle of 500 that can: what becomes of it, and of its neighbours."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import psycopg

from tests.bench.rivals import backlog
from tests.bench.rivals.process import RelayProcess, running
from tests.bench.rivals.rival import FIRST, Rival
from tests.bench.speed.kinds import QUEUE, ROUTING_KEY, SHORT
from tests.bench.speed.stage import Stage

GOOD = 500
BAD = FIRST + GOOD // 2
WAIT = 20.0
"""Seconds after which is counted."""
CASES = {"missing exchange": ("nowhere", ROUTING_KEY), "no route": (QUEUE, "nowhere")}
"""Exchange and routing key of the one."""
_WORDS = 300
"""The most characters of a reason that are reported."""


@dataclass(frozen=True)
class Outcome:
    """Of the good ones, in messages, and of the bad one, in words."""

    delivered: int
    doubled: int
    waiting: int
    dead: int
    dead_but_delivered: int
    lost: int
    bad: str
    why: str

    def __str__(self) -> str:
        parts = [f"{self.delivered} of {GOOD} good ones delivered", f"{self.doubled} of them more than once"]
        parts += [
            f"{self.waiting} still waiting",
            f"{self.dead} given up ({self.dead_but_delivered} of them delivered)",
            f"{self.lost} lost",
        ]
        return f"{', '.join(parts)}; the bad one {self.bad}; {self.why}"


async def measure(stage: Stage, rival: Rival) -> list[str]:
    """Both cases, each in a database of its own."""
    return [f"{case}, after {WAIT:g} s: {await _outcome(stage, rival, *where)}" for case, where in CASES.items()]


async def _outcome(stage: Stage, rival: Rival, exchange: str, routing_key: str) -> Outcome:
    database = stage.database()
    rival.prepare(database)
    await stage.lay(SHORT)
    async with running(stage, rival, database) as relay:
        relay.freeze()
        try:
            with psycopg.connect(database) as connection:
                backlog.insert(connection, rival, GOOD // 2)
                backlog.insert(connection, rival, 1, first=BAD, exchange=exchange, routing_key=routing_key)
                backlog.insert(connection, rival, GOOD - GOOD // 2, first=BAD + 1)
        finally:
            relay.thaw()
        await asyncio.sleep(WAIT)
        relay.freeze()
        found = await _counted(stage, rival, relay, database)
    stage.say(f"{rival.name}: {found}")
    return found


async def _counted(stage: Stage, rival: Rival, relay: RelayProcess, database: str) -> Outcome:
    waiting, dead = (backlog.numbers(database, one) for one in (rival.statements.waiting, rival.statements.dead))
    came = await backlog.received(stage.rabbitmq.url)
    good = {*range(FIRST, FIRST + GOOD + 1)} - {BAD}
    bad = "still waits" if BAD in waiting else "was given up" if BAD in dead else "counts as done"
    return Outcome(
        delivered=len(good & came.keys()),
        doubled=sum(came[number] > 1 for number in good),
        waiting=len(good & waiting),
        dead=len(good & dead),
        dead_but_delivered=len(good & dead & came.keys()),
        lost=len(good - came.keys() - waiting - dead),
        bad=bad,
        why=_why(rival, relay, database),
    )


def _why(rival: Rival, relay: RelayProcess, database: str) -> str:
    """What the database says of the bad one, else what the relay printed."""
    with psycopg.connect(database) as connection:
        row = connection.execute(rival.statements.why, {"value": BAD}).fetchone()
    if row and row[0]:
        return f'the database says "{str(row[0])[:_WORDS]}"'
    told = [line for line in relay.lines if "nowhere" in line or "NO_ROUTE" in line or "no route" in line.lower()]
    return f"the database says nothing, the log has {len(told)} lines about it" if told else "neither the database nor the log says why"
