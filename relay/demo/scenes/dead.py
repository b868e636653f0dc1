"""Answers to dead messages: a watch reports each and acknowledges it."""

from __future__ import annotations

from typing import Final

from relay.demo.scenes.stage import Check, Stage

WORDS: Final = ("dead", "watch", "--command", "cat", "--ack", "--once")
"""The command gets each message as a line of JSON, and here prints it again."""


async def play(stage: Stage) -> list[Check]:
    """Report every message that died in this demo; none is left unanswered."""
    dead = await stage.count("scene_count_unanswered")
    told = await stage.sidecars.command(*WORDS)
    return [
        Check("relay dead watch: dead messages reported", len(told.splitlines()), dead),
        Check("relay dead watch: left unanswered", await stage.count("scene_count_unanswered"), 0),
    ]
