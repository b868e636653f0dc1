"""That no message is left which no relay will find, by the rules of `relay check --queue`."""

from __future__ import annotations

from relay.cli.check_walk import walk
from relay.console import Console


def assert_nothing_is_lost(url: str, schema: str = "public") -> None:
    """Look at every message of a queue once; what only a relay at work could tell is not judged."""
    with Console(url, schema=schema) as opened:
        found = walk(opened, lambda _walked: None)
    assert not found.lost, found.lost
