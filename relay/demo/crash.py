"""Kills a relay at a moment when it has messages in flight."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple

from relay.demo.errors import DemoError
from relay.demo.observer import Holder, Observer
from relay.demo.polling import until
from relay.demo.sidecars import Sidecars

_LOOK: Final = 0.005
_MANY: Final = 50
_LIMIT: Final = 5.0
"""Seconds within which a relay with enough messages in flight must be found."""
_QUIET: Final = 1.0
"""Seconds within which the statements of a frozen relay must end."""


class Crash(NamedTuple):
    """A relay that was killed, and the messages that it had in flight."""

    name: str
    at: float
    """Seconds since 1970 by the database's clock."""
    in_flight: list[str]


async def crash_a_holder(observer: Observer, sidecars: Sidecars) -> Crash:
    """Kill the relay with the most messages in flight; return when the database has noticed the lost connections.

    The function first searches for a relay with many messages in flight. If there is no such relay, a relay with one message is enough.

    Raises:
        DemoError: no relay was found with messages in flight.
    """
    for least in (_MANY, 1):
        with suppress(TimeoutError):
            async with asyncio.timeout(_LIMIT):
                holder = await _frozen_holder(observer, sidecars, least)
                break
    else:
        raise DemoError("No relay was seen with messages in flight; run the demo again with more of them (--messages).")
    sidecars.kill(holder.name)
    at = observer.clock()
    await until(lambda: observer.has_left(holder.name), every=_LOOK)
    # The relay has no connection any more, so its locks stay until they expire.
    return Crash(holder.name, at, await observer.held_by(holder.relay_id))


async def _frozen_holder(observer: Observer, sidecars: Sidecars, least: int) -> Holder:
    """Return a frozen relay that has locked at least `least` messages."""
    while True:
        for holder in (await observer.holders())[:1]:
            if holder.held >= least and await _stands_still(observer, sidecars, holder, least):
                return holder
        await asyncio.sleep(_LOOK)


async def _stands_still(observer: Observer, sidecars: Sidecars, holder: Holder, least: int) -> bool:
    """Freeze a relay; return whether it still has at least `least` messages in flight. If not, let it continue."""
    caught = False
    sidecars.pause(holder.name)
    try:
        caught = await _is_quiet(observer, holder.name) and len(await observer.held_by(holder.relay_id)) >= least
    finally:
        if not caught:
            sidecars.go_on(holder.name)
    return caught


async def _is_quiet(observer: Observer, name: str) -> bool:
    """Whether the statements of a frozen relay end.

    A statement with a large result does not end, because the frozen relay does not read the result.
    """
    try:
        async with asyncio.timeout(_QUIET):
            await until(lambda: observer.is_quiet(name), every=_LOOK)
    except TimeoutError:
        return False
    return True
