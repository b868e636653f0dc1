"""The claim statement: of many messages at once, and one by one where a trigger of the application's refuses one of them."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from relay.errors import StoreError
from relay.events import MessageRefused, Sink
from relay.message import Claim, Position
from relay.postgres.database import Session
from relay.postgres.errors import veiled
from relay.postgres.parameters import bounds_of
from relay.postgres.statements import Statements

WIDTH = len(Claim._fields)
TOLD_AGAIN = 60.0
"""Seconds after which a message that is still refused is told of again; it is tried every few seconds."""
MAX_TOLD = 1000
"""Messages that are told of in that time; a trigger may refuse any number."""
SKIPPED = "A trigger of queue_message skips the UPDATE without an error."


class Refusal(NamedTuple):
    """A message that could not be claimed."""

    xid: int
    seq: int
    id: str
    exchange: str
    state: str
    """The SQLSTATE; empty where a trigger skipped the row."""
    words: str | None


class Answer(NamedTuple):
    """What one claim statement returned."""

    claims: list[Claim]
    snapshot: str
    found: int
    """Messages that were due and not refused, also those that a limit on bytes left out."""
    clock: float
    """The database's, seconds since the epoch."""
    refused: list[Position]
    bounds: list[Position | None]

    @property
    def last(self) -> Position | None:
        """The highest position that was claimed or refused."""
        return max([*(claim.position for claim in self.claims[-1:]), *self.refused], default=None)


class Claiming:
    """Claims past messages that cannot be updated, and tells of them.

    Args:
        session: runs the statements.
        statements: the relay's SQL.
        emit: takes what is refused.
        clock: monotonic seconds.

    """

    def __init__(self, *, session: Session, statements: Statements, emit: Sink, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._statements = statements
        self._emit = emit
        self._clock = clock
        self._told: OrderedDict[str, float] = OrderedDict()

    async def claim(self, due: str, values: Mapping[str, Any]) -> Answer:
        """Claim what `queries/due_<due>.sql` selects.

        Raises:
            StoreError: nothing may be assumed.

        """
        try:
            rows = await self._session.fetch(self._statements.claim(due), values, by_position=True)
        except StoreError as error:
            if not error.refused or error.unprintable:
                raise
            rows = []
        answer = self._read(rows) if rows else None
        # Of what is due at least one message is claimed, unless a trigger skips it.
        if answer is None or (answer.found and not answer.claims):
            answer = self._read(await self._session.fetch(self._statements.claim_one_by_one(due), values, by_position=True))
        return answer

    def _read(self, rows: Sequence[tuple[Any, ...]]) -> Answer:
        claims = [Claim._make(row[:WIDTH]) for row in rows] if rows[0][0] is not None else []
        snapshot, found, clock, refusals, *bounds = rows[0][WIDTH:]
        refused = [Refusal._make(one) for one in json.loads(refusals)] if refusals else []
        for one in refused:
            self._tell(one)
        places = [Position(one.xid, one.seq) for one in refused]
        return Answer(claims, snapshot, found - len(refused), clock, places, bounds_of(bounds))

    def _tell(self, refused: Refusal) -> None:
        now = self._clock()
        while self._told and next(iter(self._told.values())) <= now - TOLD_AGAIN:
            self._told.popitem(last=False)
        if refused.id in self._told or len(self._told) >= MAX_TOLD:
            return
        self._emit(MessageRefused(refused.id, refused.exchange, veiled(refused.words or "", refused.state) if refused.state else SKIPPED))
        self._told[refused.id] = now
