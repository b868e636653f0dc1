"""A schedule with a tick each second: exactly one message for each tick."""

from __future__ import annotations

import shlex
from typing import Final

from relay.demo.scenes.audience import EXCHANGE
from relay.demo.scenes.stage import Check, Stage

_KEY: Final = "beat"
_TICKS: Final = 3


async def prepare(stage: Stage) -> None:
    """Add the schedule."""
    words = ("schedule", "add", "heart", "EVERY 1 second", EXCHANGE, _KEY, "{}")
    await stage.sidecars.command(*words)
    stage.say(f"relay {shlex.join(words)}")


async def play(stage: Stage) -> list[Check]:
    """Wait for some ticks, remove the schedule, and compare the delivered messages with the inserted messages."""
    await stage.audience.seen(_KEY, least=_TICKS)
    await stage.sidecars.command("schedule", "remove", "heart")
    ticks = await stage.count("scene_count", routing_key=_KEY)
    return [Check(f"schedule: delivered, of {ticks} ticks", len(await stage.audience.seen(_KEY, least=ticks)), ticks)]
