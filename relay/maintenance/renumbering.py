"""Gives messages of another cluster (a restored dump) transaction ids of this cluster: all at the start, later messages each minute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from relay import events
from relay.errors import StoreError

TASK = "messages of another cluster"
"""The name in logs and metrics."""
OTHER_RELAY_POLL = 0.2
"""Seconds between two checks whether another relay has finished."""
PROGRESS_MESSAGES = 500_000
"""Messages searched between two progress reports; this takes some seconds."""
PAUSE = 10
"""Rest after a scan that left messages behind, as a multiple of the scan's duration."""


class Renumbered(NamedTuple):
    """The result of a step."""

    messages: int
    """How many messages got ids of this cluster."""
    more: bool
    """Whether more messages are left to search."""
    searched: int | None
    """How many messages were searched; None while another session is renumbering."""
    left_behind: str | None = None
    """At the end of a scan that left messages behind: the first such message, and the reason."""


class ForeignStore(Protocol):
    """The statement that renumbers; it may raise StoreError."""

    async def renumber(self) -> Renumbered:
        """Search some messages, and give ids of this cluster to messages of another cluster."""


class Renumbering:
    """Renumbers step by step, and reports the progress.

    Args:
        store: renumbers messages.
        emit: sink of progress and failures.
        renumbered: called after a step that renumbered messages, because the claims' heads may be above them.

    """

    def __init__(self, store: ForeignStore, emit: events.Sink, renumbered: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._emit = emit
        self._renumbered = renumbered
        self._other_relay_runs = False
        self._searched = 0
        self._left_behind = False
        self._rests_until = 0.0

    async def run(self) -> bool:
        """Renumber everything, unless another relay is doing this work. Returns False, because no work is left."""
        clock = asyncio.get_running_loop().time
        began = clock()
        if began < self._rests_until:
            return False
        while await self.step() and not self._other_relay_runs:
            pass
        if self._left_behind:
            self._rests_until = (now := clock()) + PAUSE * (now - began)
        return False

    async def step(self) -> bool:
        """Renumber some messages; return whether more are left."""
        done = await self._store.renumber()
        self._other_relay_runs = done.more and done.searched is None
        before, self._searched = self._searched, self._searched + (done.searched or 0)
        if self._searched // PROGRESS_MESSAGES > before // PROGRESS_MESSAGES:
            self._emit(events.ForeignIdsSought(self._searched))
        if not done.more:
            self._searched = 0
        if done.messages:
            self._emit(events.MessagesRenumbered(done.messages, done.more))
            self._renumbered()
        self._left_behind = done.left_behind is not None
        if done.left_behind:
            self._emit(events.MaintenanceFailed(TASK, done.left_behind))
        return done.more

    async def finish(self) -> None:
        """Renumber everything that can be renumbered.

        Raises:
            StoreError: the database did not answer, or refused.
        """
        while True:
            try:
                if not await self.step():
                    return
            except StoreError as error:
                if not (error.in_passing or error.refused):
                    raise
                # A table lock of an application, or a deferred trigger that refuses, must not stop the relay from starting.
                self._emit(events.MaintenanceFailed(TASK, str(error)))
                return
            if self._other_relay_runs:
                await asyncio.sleep(OTHER_RELAY_POLL)
