"""Accepts connections and hands them on at a bounded rate, so that HTTP takes a bounded part of the relay's event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from relay.observability.http_turns import Turns

_PAUSE = 0.01
"""Seconds between two rounds."""
_ACCEPTED = 50
"""Connections that are accepted in a round. Accepting one takes 0.04 ms."""
SERVED = 800
"""Connections that are served in a second, one request each. A request takes up to 0.6 ms."""
_TOGETHER = 40
"""Connections that are served one after the other if a round comes late."""
_CLOSED = 0.1
"""Turns that a connection takes which its client has closed already."""
WAITING = 2048
"""Connections that may wait for their turn."""
_RETRY = 1.0
"""Seconds until it accepts again after an error, such as too many open files."""


class Acceptor:
    """Accepts on a listening socket.

    Args:
        listening: a non-blocking socket; it stays open.
        serve: takes a connection and owns it from then on.
    """

    def __init__(self, listening: socket.socket, serve: Callable[[socket.socket], Awaitable[object]]) -> None:
        self._listening = listening
        self._serve = serve
        self._turns: Turns[socket.socket] = Turns(WAITING)
        self._some = asyncio.Event()

    async def run(self) -> None:
        """Accept and serve until this is cancelled; connections that wait are closed then."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._accept())
                tasks.create_task(self._hand_on())
        finally:
            while (connection := self._turns.next()) is not None:
                connection.close()

    async def _accept(self) -> None:
        while True:
            try:
                for _ in range(_ACCEPTED):
                    await self._accept_one()
            except OSError:
                await asyncio.sleep(_RETRY)
            await asyncio.sleep(_PAUSE)

    async def _accept_one(self) -> None:
        with suppress(ConnectionError):
            connection, address = await asyncio.get_running_loop().sock_accept(self._listening)
            if (dropped := self._turns.add(address[0], connection)) is not None:
                dropped.close()
            self._some.set()

    async def _hand_on(self) -> None:
        loop = asyncio.get_running_loop()
        allowed, at = float(_TOGETHER), loop.time()
        while True:
            await self._some.wait()
            now = loop.time()
            allowed, at = min(allowed + (now - at) * SERVED, _TOGETHER), now
            while allowed >= 1 and (connection := self._turns.next()) is not None:
                allowed -= await self._serve_one(connection)
            if not self._turns:
                self._some.clear()
            await asyncio.sleep(_PAUSE)

    async def _serve_one(self, connection: socket.socket) -> float:
        """Serve a connection; return how much of a turn that took. A connection that its client has closed without a word takes little."""
        try:
            if not connection.recv(1, socket.MSG_PEEK):
                connection.close()
                return _CLOSED
        except BlockingIOError:
            pass
        except OSError:
            connection.close()
            return _CLOSED
        try:
            await self._serve(connection)
        except OSError:
            connection.close()
        return 1
