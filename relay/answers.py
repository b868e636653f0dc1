"""How long an answer of PostgreSQL is waited for: a server that says nothing is left, one whose answer is on its way is heard out."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready

RV = TypeVar("RV")

SHORTEST, SILENCE, LONGEST = 5.0, 30.0, 600.0
"""Seconds in which claims and settles are answered at the least; in which something must have come of them; and that chores over the whole
queue may take. TCP notices a dead peer earlier, but not one behind a proxy that still answers it."""


class Patience(NamedTuple):
    """How long to wait for the answer to one statement."""

    silence: float
    """Seconds without anything from the server."""
    longest: float
    """Seconds until all of it is there."""


HEARING = Patience(SHORTEST, SHORTEST)
"""For what is answered at once."""
CHORE = Patience(LONGEST, LONGEST)
"""For statements whose answer is small and may take long."""


def soon(lock_seconds: float) -> Patience:
    """For claims and settles: past its lock time a claim is worth nothing, and until then it may be on its way over a slow network."""
    longest = min(max(lock_seconds, SHORTEST), LONGEST)
    return Patience(min(longest, SILENCE), longest)


class Connection(psycopg.AsyncConnection[Any]):
    """One that knows when it heard of its server last."""

    heard_at = 0.0
    """Monotonic seconds."""

    async def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """As of any connection; see `heard_at`."""
        return await super().wait(self._heard(gen), *args, **kwargs)

    def _heard(self, gen: PQGen[RV]) -> PQGen[RV]:
        try:
            asked = next(gen)
            while True:
                ready = yield asked
                # None is what an interrupted wait goes on with.
                if ready and ready & Ready.R:
                    self.heard_at = time.monotonic()
                asked = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result


class _Watch:
    """Looks at a connection when its patience may be over."""

    def __init__(self, connection: Connection, patience: Patience) -> None:
        self._connection = connection
        self._patience = patience
        self._began = time.monotonic()
        self.expired: float | None = None
        """Seconds of the patience that is over; None while it is not."""
        self._timer = asyncio.get_running_loop().call_later(patience.silence, self._look)

    def cancel(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        """Hang up, or look again when it may be time."""
        silence, longest = self._patience
        by_silence, by_length = max(self._began, self._connection.heard_at) + silence, self._began + longest
        left = min(by_silence, by_length) - time.monotonic()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._look)
            return
        self.expired = silence if by_silence <= by_length else longest
        _hang_up(self._connection)


@contextmanager
def answered(connection: Connection, patience: Patience) -> Iterator[None]:
    """Hang up on a server that does not answer a statement within this patience.

    A cancelled statement would make the driver ask that same silent server to end it, and wait twice as long for that.

    Raises:
        TimeoutError: it did not answer; the connection is lost. Its argument is the seconds waited.
    """
    watch = _Watch(connection, patience)
    try:
        yield
    except psycopg.OperationalError as error:
        if watch.expired is None:
            raise
        raise TimeoutError(watch.expired) from error
    finally:
        watch.cancel()


def _hang_up(connection: Connection) -> None:
    """End the connection under the driver, which waits for the socket and reads its end."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)
