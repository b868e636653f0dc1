"""Gives messages of another cluster transaction ids of this cluster, on the connection of `relay migrate`."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg import errors


def renumber(connection: psycopg.Connection, unlimited: bytes, statement: bytes, say: Callable[[str], None]) -> None:
    """Run `statement` until nothing is left. If a lock or a trigger prevents that, leave the rest to the relays.

    Each step is a separate transaction, in which `unlimited` removes the role's timeouts.
    """
    total, more, stays = 0, True, None
    try:
        while more:
            with connection.transaction():
                connection.execute(unlimited)
                [(renumbered, more, looked, stays)] = connection.execute(statement).fetchall()
            total += renumbered
            more = more and looked is not None
    except errors.LockNotAvailable:
        stays = "another session holds the table"
    if stays:
        say(f"Not all messages of another cluster could be renumbered ({stays}); the relays try again.")
    if total:
        say(f"{total} messages of another cluster got transaction ids of this one; they go out before what was inserted here.")
