"""Plays the scenes after the shop has closed: one for each further feature that the relay has for applications."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from relay.demo.errors import DemoError
from relay.demo.scenes import contract, dead, inbox, keys, request, schedule, trace
from relay.demo.scenes.audience import Audience
from relay.demo.scenes.stage import Check, Stage
from relay.demo.sidecars import Sidecars

_SCENES: Final = (contract, schedule, keys, trace, inbox, request)
_SECONDS: Final = 45.0
"""A generous time limit for all scenes, in seconds."""


async def play(database_url: str, amqp_url: str, sidecars: Sidecars, say: Callable[[str], None]) -> list[Check]:
    """Play all scenes in parallel; return their findings.

    Raises:
        DemoError: a command failed, or a scene waited in vain for a message or a result.
    """
    async with Audience(amqp_url) as audience:
        stage = Stage(database_url, sidecars, audience, say)
        for scene in (contract, schedule, inbox, request):
            await scene.prepare(stage)
        await sidecars.start("relay-3")
        say("desk: inserts messages under a contract, keys and a trace, sends invoices to its own inbox, and requests two pages")
        try:
            async with asyncio.timeout(_SECONDS):
                found = await asyncio.gather(*(scene.play(stage) for scene in _SCENES))
        except TimeoutError:
            raise DemoError(f"What the desk waits for did not come within {_SECONDS:g} s.") from None
        answered = await dead.play(stage)
        say(f"relay {' '.join(dead.WORDS)}: every dead message of this demo is reported and answered")
        await sidecars.stop()
    return [check for checks in (*found, answered) for check in checks]
