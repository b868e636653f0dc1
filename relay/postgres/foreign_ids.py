"""Gives messages of another cluster ids of this one, on the connection of `relay migrate`."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg import errors


def renumber(connection: psycopg.Connection, unlimited: bytes, statement: bytes, say: Callable[[str], None]) -> None:
    """Run `statement` until nothing is left, or leave the rest to the relays: one may be at it, and an application may hold a message.

    Each step is a transaction of its own that `unlimited` frees from the role's timeouts.
    """
    total, more = 0, True
    try:
        while more:
            with connection.transaction():
                connection.execute(unlimited)
                [(renumbered, more, looked)] = connection.execute(statement).fetchall()
            total += renumbered
            more = more and looked is not None
    except errors.LockNotAvailable:
        say("Another session holds a message of another cluster: the relays renumber it, and what stands behind it, when it is let go.")
    if total:
        say(f"{total} messages of another cluster got transaction ids of this one; they go out before what was inserted here.")
