"""Writes outcomes of claims. If an answer was lost, finds out which rows the statement has written nevertheless."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relay.engine.policy import Policy
from relay.errors import StoreError
from relay.message import Archive, Batch, Result
from relay.ports import SUSPECT, RowLeft, SettleRow
from relay.postgres.parameters import ids_of, left_of, positions_of, returns_of, settle_of
from relay.postgres.session import Session
from relay.queries.statements import Statements

BRIEF, LONG = "100ms", "1s"
"""How long a settle waits for another session's lock: `BRIEF` if it also waits for locked rows, `LONG` if it skips locked rows."""
WARY = 5.0
"""Seconds for which settles skip locked rows, after a settle found a row that another session has locked."""


class Settling:
    """The statements behind settle and release.

    Args:
        session: runs these statements.
        control: creates a missing partition of the archive.
        statements: the relay's SQL.
        name: this relay's name, for the archive.
        policy: says what is archived.

    """

    def __init__(self, *, session: Session, control: Session, statements: Statements, name: str, policy: Callable[[], Policy]) -> None:
        self._session = session
        self._control = control
        self._statements = statements
        self._name = name
        self._policy = policy
        self._wary_until = 0.0

    async def archive(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """See `relay.ports.SettleStore`."""
        values = settle_of(batch, rows, name=self._name, policy=self._policy())
        try:
            left = left_of(rows, await self._settle(values))
        except StoreError as error:
            if error.no_partition:
                await self._control.fetch(self._statements["ensure_partitions"], {})
            raise
        return await self._not_archived(batch, rows, left) if again and left else left

    async def release(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """See `relay.ports.SettleStore`."""
        suspect = batch.source == SUSPECT
        values = {**positions_of(rows), **returns_of(rows), "suspect": suspect, "token": batch.token, "now": None}
        left = left_of(rows, await self._session.fetch(self._statements["release"], values))
        return await self._not_released(batch, rows, left) if again and left else left

    async def _settle(self, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Settle all rows in one pass; while another session has locked some rows, only the others (docs/decisions/0036)."""
        statement = self._statements["settle"]
        if time.monotonic() >= self._wary_until:
            try:
                return await self._session.fetch(statement, {**values, "patience": BRIEF})
            except StoreError as error:
                if not error.in_passing:
                    raise
        left = await self._session.fetch(statement, {**values, "skip": True, "patience": LONG})
        if any(busy for *_, busy in left):
            self._wary_until = time.monotonic() + WARY
        return left

    async def _not_archived(self, batch: Batch, rows: Sequence[SettleRow], left: Sequence[RowLeft]) -> list[RowLeft]:
        """The rows in `left` that no earlier settle archived. Such a settle may have been committed although its answer was lost."""
        unclear = _lost_of(rows, left)
        successes = [row.claim.id for row in unclear if isinstance(row.outcome, Archive) and row.outcome.result is Result.SUCCESS]
        ids = [row.claim.id for row in unclear]
        values = {"ids": ids, "successes": successes, "handled_by": self._name, "claimed_at": batch.claimed_at}
        ours = {id_ for (id_,) in await self._session.fetch(self._statements["find_archived"], values)} if unclear else ()
        return [one for one in left if one.id not in ours]

    async def _not_released(self, batch: Batch, rows: Sequence[SettleRow], left: Sequence[RowLeft]) -> list[RowLeft]:
        """Like `_not_archived`, for an earlier release."""
        unclear = _lost_of(rows, left)
        back = returns_of(unclear)
        values = {
            **positions_of(unclear), "ids": [row.claim.id for row in unclear], "errors": back["errors"],
            "token": batch.token, "claimed_at": batch.claimed_at,
            "attempts": [row.claim.attempts - given_back for row, given_back in zip(unclear, back["given_back"], strict=True)],
        }  # fmt: skip
        ours = ids_of(unclear, await self._session.fetch(self._statements["find_released"], values)) if unclear else ()
        return [one for one in left if one.id not in ours]


def _lost_of(rows: Sequence[SettleRow], left: Sequence[RowLeft]) -> list[SettleRow]:
    """Rows whose lock this relay has lost."""
    lost = {one.id for one in left if not one.busy}
    return [row for row in rows if row.claim.id in lost]
