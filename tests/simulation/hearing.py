"""LISTEN and NOTIFY in memory, with the gate that says whether anybody sleeps.

As in `sql/0006_notify.sql` and `relay.postgres.notification_listener.NotificationListener`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from relay.postgres.notification_listener import ListenVerificationError
from tests.simulation.clock import PROCESS, Process, SimulatedLoop
from tests.simulation.database import Transaction

UNHEARD = 5.0
"""Seconds after which a proof that does not come counts as lost."""


class Hearing:
    """The server's side: who listens, who holds the gate, and which transactions keep it from being taken."""

    def __init__(self, loop: SimulatedLoop, chance: Random) -> None:
        self.loop = loop
        self.chance = chance
        self.ears: list[FakeEar] = []
        self.holder: FakeEar | None = None
        self.held_since = 0.0
        self.loss = 0.0
        """Share of notifications that are lost."""
        self.lost_at = 0.0
        """When one was last lost."""
        self._away = 0
        """Sessions that were lost and are not back."""
        self._sharers: dict[Transaction, None] = {}
        self._notifiers: dict[Transaction, None] = {}

    def listener(self, *, on_hint: Callable[[], None], **_: object) -> FakeEar:
        """Stand for `relay.postgres.notification_listener.NotificationListener`."""
        process = PROCESS.get()
        assert process is not None
        return FakeEar(self, process, on_hint)

    def inserted(self, tx: Transaction) -> None:
        """The trigger: who gets the gate, shared and until its end, need not notify."""
        (self._sharers if self.holder is None else self._notifiers)[tx] = None

    def ended(self, tx: Transaction, *, committed: bool) -> None:
        """The end of a transaction: its notification goes out with the commit."""
        self._sharers.pop(tx, None)
        if tx in self._notifiers:
            del self._notifiers[tx]
            if committed:
                self._notify()

    def take(self, listener: FakeEar) -> bool:
        """`pg_try_advisory_lock`."""
        if self.holder is None and not self._sharers:
            self.holder, self.held_since = listener, self.loop.now
        return self.holder is listener

    def let_go(self, listener: FakeEar) -> None:
        """`pg_advisory_unlock`, or the end of a session."""
        if self.holder is listener:
            self.holder = None

    def joined(self, listener: FakeEar) -> None:
        """A session LISTENs."""
        self.ears.append(listener)
        self._away = max(self._away - 1, 0)

    def left(self, listener: FakeEar) -> None:
        """A session has ended: what it held is free."""
        self.let_go(listener)
        if listener in self.ears:
            self.ears.remove(listener)
            self._away += 1

    def deafen(self, which: int) -> None:
        """A session continues but hears nothing any more, as behind a pool or a dead network."""
        for listener in self._one(which):
            listener.deaf = True

    def cut(self, which: int) -> None:
        """A session is ended."""
        for listener in self._one(which):
            listener.lose()

    def cut_all(self) -> None:
        """The server has gone."""
        for listener in list(self.ears):
            listener.lose()

    def _one(self, which: int) -> list[FakeEar]:
        return [self.ears[which % len(self.ears)]] if self.ears else []

    def _notify(self) -> None:
        lost = self.chance.random() < self.loss
        if lost or self._away:
            self.lost_at = self.loop.now
        if lost:
            return
        for listener in self.ears:
            if listener.deaf:
                self.lost_at = self.loop.now
            else:
                self.loop.call_at(self.loop.now + self.chance.random() * 0.003, listener.hear, context=listener.process.context)


class FakeEar:
    """One LISTEN connection."""

    def __init__(self, hearing: Hearing, process: Process, on_hint: Callable[[], None]) -> None:
        self._hearing = hearing
        self.process = process
        self._on_hint = on_hint
        self._signal = asyncio.Event()
        self._lost = False
        self.deaf = False

    async def open(self) -> None:
        """Connect and LISTEN.

        Raises:
            OSError: the server is not there.
        """
        await self._ask()
        self._hearing.joined(self)

    async def aclose(self) -> None:
        """End the session."""
        self.lose()

    async def run(self, name: str) -> Any:
        """Run a statement about the gate.

        Raises:
            OSError: the session is lost.
        """
        await self._ask()
        if name == "take_gate":
            return self._hearing.take(self)
        self._hearing.let_go(self)
        return True

    async def prove(self) -> None:
        """Notify itself.

        Raises:
            NotHeardError: it did not come.
            OSError: the session is lost.
        """
        await self._ask()
        if self.deaf:
            await asyncio.sleep(UNHEARD)
            raise ListenVerificationError

    async def wait(self, seconds: float) -> None:
        """Hear until `wake` is called or the time is over.

        Raises:
            OSError: the session was ended.
        """
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._signal.wait()
        except TimeoutError:
            pass
        self._signal.clear()
        if self._lost:
            raise OSError("The session was ended.")

    def wake(self) -> None:
        """End a `wait`, now or the next one."""
        self._signal.set()

    def hear(self) -> None:
        """A notification has come."""
        if not self._lost:
            self._on_hint()
            self._signal.set()

    def lose(self) -> None:
        """The session ends: what it held is free."""
        self._lost = True
        self._signal.set()
        self._hearing.left(self)

    async def _ask(self) -> None:
        await asyncio.sleep(self._hearing.chance.random() * 0.004 + 0.0005)
        if self._lost or self._hearing.loop.now < self.process.away_until():
            self._lost = True
            raise OSError("The server does not answer.")
