"""That no message is left which no relay will find, by the rules of `relay check --queue`."""

from __future__ import annotations

from relay.cli.commands.check import A_FEW, check_queue
from relay.postgres.operator_session import OperatorSession

GLANCE = 1.0
"""Seconds between two looks in which a relay that has time touches what can be claimed; where it does not it is given the promised ones."""


def assert_nothing_is_lost(url: str, schema: str = "public", *, watched: bool = False) -> None:
    """Look at every message of a queue; with `watched` twice, for what relays at work leave alone, in which case they are judged."""
    with OperatorSession(url, schema=schema) as opened:
        found, _ = check_queue(opened, GLANCE if watched else 0.0)
        if watched and found.lost:
            found, _ = check_queue(opened, A_FEW)
    assert not found.lost, found.lost
