"""Limits how long the relay waits for an answer of PostgreSQL, whether the server is silent or its answer is still on its way."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

Connection = psycopg.AsyncConnection[Any]

HEARING, CHORE = 5.0, 600.0
"""Seconds for statements that are answered at once, and seconds for statements over the whole queue. TCP notices a dead peer before the
longer time ends, unless a proxy in between still answers."""
SHORTEST, LONGEST = 5.0, 30.0
"""The shortest and the longest limit for claims and settles, in seconds."""


def soon(lock_seconds: float) -> float:
    """Seconds for claims and settles: half of the lock time, because a connection that waits for an answer renews no lock.

    After a claim that needs longer over a slow network, claims become smaller; see `relay.postgres.payload_fetcher`.
    """
    return min(max(lock_seconds / 2, SHORTEST), LONGEST)


@contextmanager
def answered(connection: Connection, seconds: float) -> Iterator[None]:
    """Shut down the connection to a server that does not answer a statement in time.

    A cancellation would not help: the driver would ask the same silent server to end the statement, and wait twice as long.

    Raises:
        TimeoutError: the server did not answer; the connection is lost. Its argument is the seconds waited.
    """
    expired: list[float] = []

    def expire() -> None:
        expired.append(seconds)
        _hang_up(connection)

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        yield
    except psycopg.OperationalError as error:
        if not expired:
            raise
        raise TimeoutError(*expired) from error
    finally:
        timer.cancel()


def _hang_up(connection: Connection) -> None:
    """Shut down the socket while the driver waits for it; the driver then reads the end of the stream."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)
