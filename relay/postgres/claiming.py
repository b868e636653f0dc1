"""The claim statement: for many messages at once, or for one message at a time if an application's trigger refuses one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from relay.errors import StoreError
from relay.message import Claim, Position
from relay.postgres.parameters import bounds_of
from relay.postgres.refusals import Refusals
from relay.postgres.session import Session
from relay.queries.statements import Statements

WIDTH = len(Claim._fields)


class ClaimAnswer(NamedTuple):
    """The result of one claim statement."""

    claims: list[Claim]
    snapshot: str
    found: int
    """Messages that were due and not refused, including those that the limit on bytes left out."""
    clock: float
    """The database's time, seconds since the epoch."""
    refused: list[Position]
    bounds: list[Position | None]

    @property
    def last(self) -> Position | None:
        """The highest position that was claimed or refused."""
        return max([*(claim.position for claim in self.claims[-1:]), *self.refused], default=None)


class Claiming:
    """Claims due messages, and passes over messages that cannot be updated.

    Args:
        session: runs the statements.
        statements: the relay's SQL.
        refusals: reports the messages that are refused.

    """

    def __init__(self, *, session: Session, statements: Statements, refusals: Refusals) -> None:
        self._session = session
        self._statements = statements
        self._refusals = refusals

    async def claim(self, due: str, values: Mapping[str, Any]) -> ClaimAnswer:
        """Claim the messages that `queries/fragments/due_<due>.sql` selects.

        Raises:
            StoreError: the outcome is unknown.

        """
        try:
            rows = await self._session.fetch(self._statements.claim(due), values, by_position=True)
        except StoreError as error:
            # A character that UTF-8 lacks may be only in a trigger's error message; the SQLSTATE then blames a row.
            if not error.refused or (error.unprintable and not error.row_is_guilty):
                raise
            rows = []
        answer = self._read(rows) if rows else None
        # At least one due message is claimed, unless a trigger skips it.
        if answer is None or (answer.found and not answer.claims):
            answer = self._read(await self._session.fetch(self._statements.claim_one_by_one(due), values, by_position=True))
        return answer

    def _read(self, rows: Sequence[tuple[Any, ...]]) -> ClaimAnswer:
        claims = [Claim._make(row[:WIDTH]) for row in rows] if rows[0][0] is not None else []
        snapshot, found, clock, refusals, *bounds = rows[0][WIDTH:]
        places = self._refusals.report(refusals)
        return ClaimAnswer(claims, snapshot, found - len(places), clock, places, bounds_of(bounds))
