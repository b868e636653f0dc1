"""Connections for the pages: a few, which stay open between two requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relay.errors import StoreError
from relay.postgres.operator_session import BusyError, OperatorSession

AT_ONCE = 4
"""The most pages that are read from the database at the same time."""
PATIENCE = 5.0
"""Seconds that a page waits until another one has been read."""


class Sessions:
    """Hands out connections, each to one page at a time.

    Args:
        connect: returns a session that is not connected yet.
    """

    def __init__(self, connect: Callable[[], OperatorSession]) -> None:
        self._connect = connect
        self._idle: list[OperatorSession] = []
        self._permits = threading.BoundedSemaphore(AT_ONCE)

    @contextmanager
    def session(self) -> Iterator[OperatorSession]:
        """A connection for the block. A connection that breaks is closed, and so are all idle ones.

        Raises:
            StoreError: PostgreSQL cannot be reached.
            BusyError: other pages took all connections for too long.
        """
        if not self._permits.acquire(timeout=PATIENCE):
            raise BusyError(f"{AT_ONCE} other pages are still being read: try again.")
        try:
            opened = self._idle.pop() if self._idle else self._connect().__enter__()
            try:
                yield opened
            except StoreError:
                opened.connection.close()
                self.close()
                raise
            finally:
                if not opened.connection.closed:
                    self._idle.append(opened)
        finally:
            self._permits.release()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().connection.close()
