"""The server side of a statement: when it is carried out, when it commits, and whether its answer is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from relay.errors import StoreError
from relay.postgres.settling import BRIEF
from relay.queries.statements import Statements, names
from tests.simulation.claims import CLAIMS, Found, Values, source_of
from tests.simulation.clock import SimulatedLoop
from tests.simulation.database import BlockedError, Database, Transaction
from tests.simulation.scans import SCANS
from tests.simulation.sweeps import SWEEPS
from tests.simulation.writes import WRITES

LOCK_TIMEOUT = 1.0
PATIENCE = {BRIEF: 0.1}
"""Seconds that a statement waits for a row where it says so."""
Run = Callable[[Database, Transaction, Values], Found]
CARRIED_OUT: dict[str, Run] = {
    **WRITES,
    **SWEEPS,
    **CLAIMS,
    **SCANS,
    "read_version": lambda _database, _tx, _values: [(10**6,)],
}
GROUPS = {
    "claim": tuple(CLAIMS),
    "settle": ("settle",),
    "release": ("release",),
    "ordered": ("ordered",),
    "late": ("late",),
    "renew": ("renew_locks",),
    "heartbeat": ("heartbeat",),
    "lanes": ("renew_lanes", "acquire_lanes", "yield_lanes"),
    "scan": ("scan_due", "scan_left", "free_expired"),
    "find": ("find_archived", "find_released", "find_heads", "list_keys", "look"),
}


class Fate(NamedTuple):
    """What becomes of one of the next statements of a group."""

    group: str
    kind: str
    """before: it never arrives; after: committed, and the answer lost; late: the answer is lost and it is carried out afterwards;
    undone: carried out, open for a while, rolled back; slow: open for a while, then committed and answered."""
    seconds: float


FATES = ("before", "after", "late", "undone", "slow")


def _names() -> dict[bytes, str]:
    """Statements as a relay sends them, by their text."""
    statements = Statements("public")
    found = {statements[name]: name for name in names()}
    for due in ("fresh", "at", "by_id"):
        found |= {statements.claim(due): due, statements.claim_one_by_one(due): f"{due} one by one"}
    return found | {statements.scan(name): f"scan_{name}" for name in ("due", "left")}


NAMES = _names()


class Client:
    """What one relay's connections have in common."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.away_until = 0.0
        self.fates: list[Fate] = []
        self.dead = False
        self.unheard: dict[object, None] = {}
        """Lock tokens of claims that were carried out, or may be later, and whose answer was lost."""
        self.note: Callable[[str], None] = lambda _name: None
        """Hears of a statement that did not get through as it should."""

    def forget(self, name: str, values: Values) -> None:
        """Lose the answer to a statement that is carried out, or may be."""
        if name in CLAIMS:
            self.unheard[values["token"]] = None

    def fate_of(self, name: str) -> Fate | None:
        """Take the first fate that waits for such a statement."""
        for place, fate in enumerate(self.fates):
            if name in GROUPS[fate.group]:
                return self.fates.pop(place)
        return None


class Server:
    """Carries out statements on a database; each takes some milliseconds."""

    def __init__(self, loop: SimulatedLoop, database: Database, chance: Random, trace: Callable[..., None]) -> None:
        self.loop = loop
        self.database = database
        self.chance = chance
        self.trace = trace
        self.statements = 0
        self._open: dict[Transaction, None] = {}

    def submit(self, client: Client, name: str, values: Values, answer: asyncio.Future[Found]) -> None:
        """Take a statement; the answer comes later, or never."""
        self.statements += 1
        delay = self.chance.random() * 0.004 + 0.0005
        fate = client.fate_of(name)
        if self.loop.time() < client.away_until:
            fate = Fate("", "before", 0.0)
        if fate is None:
            self.loop.world_later(delay, self._carry_out, client, name, values, answer)
            return
        client.note(name)
        self.trace("fate", client.name, name, fate.kind)
        if fate.kind in {"after", "late"}:
            client.forget(name, values)
        if fate.kind in {"before", "late"}:
            self.loop.world_later(delay, partial(self.fail, answer))
        if fate.kind == "late":
            self.loop.world_later(delay + fate.seconds, partial(self._carry_out, client, name, values, _nobody(self.loop)))
        if fate.kind in {"after", "undone", "slow"}:
            self.loop.world_later(delay, partial(self._carry_out, client, name, values, answer, fate))

    def fail(self, answer: asyncio.Future[Found]) -> None:
        """The connection is lost."""
        if not answer.done():
            answer.set_exception(StoreError("PostgreSQL does not answer."))

    def open_for(self, tx: Transaction, seconds: float) -> None:
        """A transaction that somebody forgets for a while."""
        self._open[tx] = None
        self.loop.world_later(seconds, partial(self._forget, tx))

    def _forget(self, tx: Transaction) -> None:
        self._open.pop(tx, None)
        if not tx.done:
            tx.rollback()

    def restart(self) -> None:
        """Every transaction that is open is rolled back."""
        for tx in [*self._open, *self.database.running.values()]:
            if not tx.done:
                tx.rollback()
        self._open.clear()

    def _carry_out(
        self, client: Client, name: str, values: Values, answer: asyncio.Future[Found], fate: Fate | None = None, waited: float = 0.0
    ) -> None:
        tx = self.database.begin()
        try:
            found = CARRIED_OUT[name](self.database, tx, values)
        except BlockedError:
            tx.rollback()
            self._wait(client, (name, values), answer, fate, waited)
            return
        except StoreError as error:
            tx.rollback()
            if not answer.done():
                answer.set_exception(error)
            return
        self.trace(client.name, name, len(found))
        if fate is None or fate.kind == "after":
            tx.commit()
            self._answer(answer, found, heard=fate is None)
        else:
            self._open[tx] = None
            self.loop.world_later(fate.seconds, partial(self._end, tx, found, answer, fate))

    def _wait(self, client: Client, what: tuple[str, Values], answer: asyncio.Future[Found], fate: Fate | None, waited: float) -> None:
        if waited < PATIENCE.get(what[1].get("patience", ""), LOCK_TIMEOUT):
            self.loop.world_later(0.05, partial(self._carry_out, client, *what, answer, fate, waited + 0.05))
            return
        client.note(what[0])
        if not answer.done():
            answer.set_exception(StoreError("Another session holds a lock.", in_passing=True))

    def _end(self, tx: Transaction, found: Found, answer: asyncio.Future[Found], fate: Fate) -> None:
        self._open.pop(tx, None)
        committed = fate.kind == "slow" and not tx.done
        if not tx.done:
            (tx.commit if committed else tx.rollback)()
        self._answer(answer, found, heard=committed)

    def _answer(self, answer: asyncio.Future[Found], found: Found, *, heard: bool) -> None:
        if not heard:
            self.fail(answer)
        elif not answer.done():
            answer.set_result(found)


def _nobody(loop: asyncio.AbstractEventLoop) -> asyncio.Future[Found]:
    """An answer that no client waits for."""
    answer: asyncio.Future[Found] = loop.create_future()
    answer.cancel()
    return answer


class FakeSession:
    """Replaces `relay.postgres.session.Session`: one connection, on which statements take turns."""

    def __init__(self, server: Server, client: Client) -> None:
        self._server = server
        self._client = client
        self._turn = asyncio.Lock()
        self.took = 0.0
        """Seconds of the last statement, from its turn on."""

    async def fetch(self, statement: bytes, values: Mapping[str, Any], *, by_position: bool = False) -> Found:
        """Run one statement; there is one server for ever.

        Raises:
            StoreError: it did not get through, or its outcome is unknown.
        """
        del by_position
        async with self._turn:
            began = self._server.loop.now
            answer: asyncio.Future[Found] = self._server.loop.create_future()
            name = source_of(NAMES[statement], values)
            if not self._client.dead:
                self._server.submit(self._client, name, values, answer)
            try:
                return await answer
            except asyncio.CancelledError:
                self._client.forget(name, values)
                raise
            finally:
                self.took = self._server.loop.now - began

    async def open(self) -> None:
        """Nothing is open between two statements."""

    async def aclose(self) -> None:
        """Nothing is open between two statements."""
