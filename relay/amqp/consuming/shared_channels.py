"""Channels that consumers share: a consumer has a channel to itself for a turn, and waiting consumers get channels in order. No I/O."""

from __future__ import annotations

import asyncio
from collections import deque


class SharedChannel:
    """A channel number, and whether the channel is open; it may stay open between two consumers."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_open = False


class SharedChannels:
    """As many channels as the broker grants.

    Args:
        count: how many channels.
        are_short: whether there are more consumers than channels.

    """

    def __init__(self, count: int, *, are_short: bool = False) -> None:
        self.count = count
        self.are_short = are_short
        self._free = deque(SharedChannel(number) for number in range(1, count + 1))
        self._waiting: deque[asyncio.Future[SharedChannel]] = deque()
        self._wanted = asyncio.Event()

    async def take(self) -> SharedChannel:
        """Wait for a channel; consumers get channels in the order in which they began to wait."""
        if self._free:
            return self._free.popleft()
        turn: asyncio.Future[SharedChannel] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._wanted.set()
        return await turn

    def give(self, channel: SharedChannel) -> None:
        """Let the next consumer have the channel."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(channel)
                break
        else:
            self._free.append(channel)
        if not self._waiting:
            self._wanted.clear()

    @property
    def are_wanted(self) -> bool:
        """Whether a consumer waits for a channel."""
        return self._wanted.is_set()

    async def wanted(self) -> None:
        """Return as soon as a consumer waits."""
        await self._wanted.wait()
