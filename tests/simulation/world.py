"""One world: a loop, a database, a broker, relays, writers and operators, and everything that can happen to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from relay.claims.scrub import WHOLE
from tests.simulation.broker import FakeBroker
from tests.simulation.clock import SimulatedLoop, Time, standing_in
from tests.simulation.database import BAD, GOOD, KEYS, Database, Row
from tests.simulation.hearing import Hearing
from tests.simulation.ledger import BrokenError, Ledger
from tests.simulation.liveness import FOUND, WAY, Liveness
from tests.simulation.people import People
from tests.simulation.promises import Promises
from tests.simulation.relay import STAND_INS, SimulatedRelay
from tests.simulation.server import FATES, GROUPS, Fate, Server
from tests.simulation.sweeps import RENUMBERED

EXCHANGES = (*GOOD, BAD)
STATES = ("well", "full", "silent", "missing")
TROUBLE = 6.0
"""Seconds beyond the lock time for which what happened to a relay may still let its locks expire."""
MOST_RELAYS = 4
MOST_LINES = 1000
"""Lines that wait to be put into the digest together."""


class World(People):
    """Everything at one moment; each method is something that happens."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__()
        self.chance = Random(seed)
        self.loop = SimulatedLoop()
        self._hash = hashlib.blake2b(digest_size=16)
        self.lines: list[tuple[float, tuple[object, ...]]] = []
        """What has happened and when: all of it, or what is not in the digest yet."""
        self._keep_trace = keep_trace
        self.ledger = Ledger(self._excused)
        self.database = Database(self.loop.time, self.ledger, salt=seed % 2**32)
        self.ledger.database = self.database
        self.database.settle_in = self._settle_in
        self.server = Server(self.loop, self.database, self.chance, self.trace)
        self.broker = FakeBroker(self.loop, self.chance, self.ledger, self.trace)
        self.hearing = Hearing(self.loop, self.chance)
        self.relays: list[SimulatedRelay] = []
        self.loop.set_exception_handler(self._note_failure)
        self._failure: BaseException | None = None
        self.promises = Promises(self.database)
        self.liveness = Liveness(self.database, lambda: self.living, lambda: self._rough_at, self.ledger.claims)
        self._rough_at = 0.0
        """When a broker last was not as it should be."""
        self._started = 0

    @property
    def digest(self) -> str:
        """Of everything that has happened, in its order."""
        told = self._hash.copy()
        told.update(repr(self.lines).encode())
        return told.hexdigest()

    @property
    def lock_seconds(self) -> float:
        """By the database's policy."""
        return float(self.database.settings["lock_seconds"])

    def trace(self, *what: object) -> None:
        """Note what happens."""
        self.lines.append((self.loop.now, what))
        if not self._keep_trace and len(self.lines) == MOST_LINES:
            self._hash.update(repr(self.lines).encode())
            self.lines.clear()

    @contextmanager
    def running(self) -> Iterator[World]:
        """Time and chance of the relay's modules are the world's, until the end of the block."""
        with standing_in(Time(self.loop), self.chance, self._stand_ins()), self.loop.entered():
            try:
                yield self
            finally:
                for relay in self.relays:
                    relay.kill()
                self.loop.close()

    def _stand_ins(self) -> dict[str, object]:
        return {
            **STAND_INS,
            "relay.amqp.supervisor.connect": self.broker.connect,
            "relay.postgres.wakeup.NotificationListener": self.hearing.listener,
        }

    def step(self, seconds: float) -> None:
        """Let time pass, and check what was promised."""
        self.loop.advance(self.loop.now + seconds)
        if self._failure is not None:
            raise self._failure
        if self._rough or self.database.no_partition or self.database.refused:
            self._rough_at = self.loop.now
        for relay in self.relays:
            self._bury(relay)
            self._check_end(relay)
        self.relays = [relay for relay in self.relays if relay.alive or not relay.process.dead]
        self.ledger.check()
        self.promises.check()
        self.liveness.check()

    def start(self) -> None:
        """One more relay."""
        if len(self.living) < MOST_RELAYS:
            self._started += 1
            self.relays.append(SimulatedRelay(self._started, loop=self.loop, server=self.server, trouble=self.trouble))
            self.loop.advance(self.loop.now)

    def crash(self, which: int) -> None:
        """SIGKILL."""
        for relay in self.one(which):
            self.trouble(relay)
            self.broker.drop(relay.url)
            relay.kill()

    def freeze(self, which: int) -> None:
        """SIGSTOP."""
        for relay in self.one(which):
            if not relay.process.stopped:
                self.loop.stop_process(relay.process)
                relay.stopped_at = self.loop.now

    def thaw(self, which: int, lag: bool = False) -> None:
        """SIGCONT. With `lag` it is as after the sleep of a whole machine, whose clock was stopped meanwhile."""
        for relay in self.one(which):
            if relay.process.stopped:
                self.trouble(relay)
                relay.process.ahead -= self.chance.random() * (self.loop.now - relay.stopped_at) if lag else 0.0
                self.loop.resume(relay.process)

    def jump(self, which: int, seconds: float) -> None:
        """A relay's clock goes ahead."""
        for relay in self.one(which):
            self.trouble(relay)
            relay.process.ahead += seconds

    def drain(self, which: int) -> None:
        """SIGTERM, a second one for who has got one."""
        for relay in self.one(which):
            relay.stop()

    def lose_statement(self, which: int, group: str, kind: str, seconds: float) -> None:
        """The next statement of a group goes wrong."""
        for relay in self.one(which):
            relay.client.fates.append(Fate(group, kind, seconds))

    def lose_database(self, which: int, seconds: float) -> None:
        """A relay cannot reach the database."""
        for relay in self.one(which):
            relay.client.away_until = self.loop.now + seconds
            self.trouble(relay)

    def restart_database(self, seconds: float) -> None:
        """PostgreSQL goes and comes back: what was open is rolled back."""
        for place in range(len(self.writers)):
            self.roll_back(place)
        self.server.restart()
        self.hearing.cut_all()
        for place in range(len(self.living)):
            self.lose_database(place, seconds)

    def drop(self, which: int) -> None:
        """A connection to the broker is lost."""
        for relay in self.one(which):
            self._rough_at = self.loop.now
            self.broker.drop(relay.url)

    def restart_broker(self, away: bool) -> None:
        """The broker goes, or comes back."""
        self.broker.away = away
        for url in list(self.broker.connections) if away else ():
            self.broker.drop(url)

    def one(self, which: int) -> list[SimulatedRelay]:
        """One of the living relays, if there are any."""
        living = self.living
        return [living[which % len(living)]] if living else []

    def trouble(self, relay: SimulatedRelay, statement: str = "") -> None:
        """Note that something has happened to a relay, which may cost it its locks."""
        relay.upset_at = self.loop.now
        # A relay survives a single statement that is lost.
        if not statement or self.loop.now < relay.client.away_until:
            relay.trouble_at = self.loop.now

    def _settle_in(self, row: Row) -> None:
        """From then on a message of another cluster goes before what is inserted: when it is renumbered, or a scrub has seen it."""
        self.loop.world_later(WAY if row.at[0] == RENUMBERED else FOUND + WHOLE, lambda: setattr(row, "visible", self.database.commits))

    def _note_failure(self, loop: object, context: dict[str, Any]) -> None:
        """A promise that breaks inside the loop ends the run at the next step."""
        del loop
        self._failure = self._failure or context.get("exception") or BrokenError(context["message"])

    def _excused(self, row: Row) -> bool:
        """Its relay is gone, is stopped, was in trouble lately or has never heard of this lock, or an application held the message."""
        if self.loop.now - row.held_until < self.lock_seconds + TROUBLE:
            return True
        for relay in self.living:
            if relay.id == row.locked_by:
                troubled = self.loop.now - relay.trouble_at < self.lock_seconds + TROUBLE
                return relay.process.stopped or row.lock_token in relay.client.unheard or troubled or self._lost_to_a_clock(relay)
        return True

    def _lost_to_a_clock(self, relay: SimulatedRelay) -> bool:
        """The server's clock was set not long ago, which costs a relay what it had in flight at the most."""
        if self.loop.now - relay.clock_set_at > self.lock_seconds + TROUBLE:
            return False
        relay.may_lose -= 1
        return relay.may_lose >= 0

    def _bury(self, relay: SimulatedRelay) -> None:
        """What a relay has sent has ended it; another one takes its place."""
        if relay.process.doomed and relay.alive:
            self.crash(self.living.index(relay))
            self.start()

    def _check_end(self, relay: SimulatedRelay) -> None:
        """A relay ends in order: without an error, in time, and with no lock but those that it says it keeps."""
        if relay.process.dead or not relay.task.done():
            if relay.stopping_at is not None and not relay.process.dead:
                self._check_patience(relay)
            return
        relay.process.dead = True
        if relay.failure is not None:
            raise BrokenError(f"{relay.name} ended by an error.") from relay.failure
        if self.loop.now - relay.upset_at < TROUBLE + self.lock_seconds:
            return
        locked = [row for row in self.database.locked() if row.locked_by == relay.id]
        if any(row.held_until > (relay.stopping_at or 0.0) for row in locked):
            return
        known = [row for row in locked if not (relay.unheard and row.lock_token in relay.client.unheard)]
        if not len(known) <= relay.kept <= len(locked):
            raise BrokenError(f"{relay.name} left {locked} locked, and kept {relay.kept}.")
        if known and self._drained(relay):
            raise BrokenError(f"{relay.name} left {known} locked although the broker confirms at once.")

    def _drained(self, relay: SimulatedRelay) -> bool:
        """It got SIGTERM once, and from then on nothing kept the broker from confirming."""
        return relay.stops == 1 and self._rough_at < (relay.stopping_at or 0.0) and not self._rough

    @property
    def _rough(self) -> bool:
        broker = self.broker
        return bool(broker.away or broker.blocked or broker.slow or broker.late or "silent" in broker.state.values())

    def _check_patience(self, relay: SimulatedRelay) -> None:
        if relay.process.stopped:
            relay.stopping_at = self.loop.now
        elif self.loop.now - (relay.stopping_at or 0.0) > relay.longest_stop + 1:
            raise BrokenError(f"{relay.name} was told to stop and is still there.")


__all__ = ["BAD", "EXCHANGES", "FATES", "GOOD", "GROUPS", "KEYS", "STATES", "World"]
