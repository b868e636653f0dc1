"""A watch over dead messages, which reports and acknowledges each of them."""

from __future__ import annotations

from typing import Final

from relay.demo.scenes.stage import Check, Stage

WORDS: Final = ("dead", "watch", "--command", "cat", "--ack", "--once")
"""The watch's arguments. Its command gets each message as a line of JSON; here the command is `cat`, which prints the line."""


async def play(stage: Stage) -> list[Check]:
    """Report every dead message of this demo, and check that no dead message is left unacknowledged."""
    dead = await stage.count("scene_count_unanswered")
    told = await stage.sidecars.command(*WORDS)
    return [
        Check("relay dead watch: dead messages reported", len(told.splitlines()), dead),
        Check("relay dead watch: left unanswered", await stage.count("scene_count_unanswered"), 0),
    ]
