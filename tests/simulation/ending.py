"""The end of a run: the faults stop, and everything goes out within the promised time."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tests.simulation.checked import expect_none_lost
from tests.simulation.database import Row
from tests.simulation.ledger import BrokenError
from tests.simulation.rows import At
from tests.simulation.world import BAD, GOOD, World

PROMISED = 5.0
"""Seconds beyond the lock time in which everything goes out after the last fault."""
LONGEST = 66.0
"""Seconds in which what had a reason of its own is out as well."""
LOOK = 0.25
SOME = 10
"""Messages of a limited exchange that must go while its limit holds, if there are as many."""
KINDS = 3
"""Fresh, waiting and ordered messages take turns under a limit, and those that are tried again count each time."""


def calm_down(world: World) -> None:
    """The faults stop: servers and relays come back, and operators end their pauses but not their limits. What is missing stays missing."""
    while world.writers:
        world.commit(0)
    world.set_clock(world.latest)
    world.server.restart()
    world.refuse_none()
    expect_none_lost(world.database, restored=True)
    world.renumber()
    expect_none_lost(world.database)
    world.restart_broker(False)
    world.broker.slow, world.broker.late, world.broker.harmless = 0.0, 0.0, True
    world.broker.block(False)
    for exchange in GOOD:
        world.broker.become(exchange, "well")
        world.pause(exchange, False)
    world.pause(BAD, False)
    world.database.refused.clear()
    world.promises.patience = world.promises.hearing = None
    world.hearing.loss = 0.0
    for place, relay in enumerate(world.living):
        relay.client.fates.clear()
        relay.client.away_until = 0.0
        world.thaw(place)
    if not any(relay.stopping_at is None for relay in world.living):
        world.start()


def finish(world: World) -> None:
    """What is good is out within the promised time after the last fault and the last limit, and at last everything is.

    Raises:
        BrokenError: it is not.
    """
    calm_down(world)
    promised = world.lock_seconds + PROMISED
    _let_go_by_limits(world, promised)
    begun = world.database.now()
    # What was behind a bad head may have had to wait until that head died.
    behind = {row.id for row in world.database.rows.values() if _may_wait(world, row, begun)}
    late = [row for row in _left(world, begun, promised) if row.id not in behind]
    _expect_none("Not out within the promised time", late)
    world.broker.become(BAD, "well")
    world.broker.bound = True
    _left(world, begun, promised)
    if world.database.rows:
        _left(world, begun, LONGEST)
    _expect_none("Left in the queue", list(world.database.rows.values()))
    world.ledger.check_each()


def _let_go_by_limits(world: World, promised: float) -> None:
    """Some of each limited exchange go within the promised time and what their limit lets one relay wait; then the limits are lifted."""
    begun, rows, rates = world.database.now(), world.database.rows, world.database.limited
    free = [row for row in rows.values() if not (_may_wait(world, row, begun) or _behind_other_limits(world, row))]
    waiting = {name: {row.at for row in free if row.exchange == name} for name in rates}
    until = world.loop.now + promised + SOME * KINDS * len(world.living) / min(rates.values(), default=math.inf)
    while (stuck := [at for places in waiting.values() for at in _too_many(places, rows)]) and world.loop.now < until:
        _resume_keys(world)
        world.step(LOOK)
    _expect_none("Not let go by their limits", [rows[at] for at in stuck])
    for name in [*rates]:
        world.limit(name, None)


def _behind_other_limits(world: World, row: Row) -> bool:
    """An earlier message of its key has to wait for another exchange's limit."""
    before = [world.database.rows[at] for at in world.database.by_key.get(row.key or "", ()) if at < row.at]
    return any(one.exchange != row.exchange and one.exchange in world.database.limited for one in before)


def _too_many(places: set[At], rows: Mapping[At, Row]) -> set[At]:
    """What is left of these messages, if fewer than some of them went."""
    left = places & rows.keys()
    return left if len(places) - len(left) < min(SOME, len(places)) else set()


def _left(world: World, begun: float, seconds: float) -> list[Row]:
    """What is left after so many seconds, or as soon as that is nothing, of what need not wait."""
    until = world.loop.now + seconds
    while world.loop.now < until and world.database.rows:
        _resume_keys(world)
        world.step(LOOK)
    return [row for row in world.database.rows.values() if not _may_wait(world, row, begun)]


def _resume_keys(world: World) -> None:
    """An operator resumes what dead messages have parked."""
    for key in list(world.database.parked):
        world.park(key, False)


def _may_wait(world: World, row: Row, begun: float) -> bool:
    """It has a reason to wait, is behind a message that has one, or committed late and waits for one that overtook it."""
    if row.key is None or _has_reason(world, row, begun):
        return _has_reason(world, row, begun)
    others = map(world.database.rows.__getitem__, world.database.by_key[row.key])
    return any((one.at < row.at or one.lock_expires_at) and _has_reason(world, one, begun) for one in others)


def _has_reason(world: World, row: Row, begun: float) -> bool:
    """Bad, refused by the archive not long ago, or delayed by its application."""
    odd = row.id in world.database.odd or row.exchange == BAD or row.routing_key != "new"
    return odd or (row.available_at or 0.0) > begun + world.lock_seconds


def _expect_none(words: str, rows: list[Row]) -> None:
    if rows:
        raise BrokenError(f"{words}: {len(rows)} messages, first {min(rows, key=lambda row: row.at)}.")
