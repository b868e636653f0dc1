"""Messages that somebody names by their ids: claimed each once, and what keeps one from being claimed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from relay.claims.intake import Intake, IntakeStore
from relay.message import Batch, Result
from relay.ports import ById


class NamedStore(IntakeStore, Protocol):
    """What is asked of the database beside claims."""

    async def run(self, name: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a statement by its name. May raise StoreError."""


class NamedMessage(NamedTuple):
    """Where a message is, as `find_named` has it."""

    id: str
    queued: bool
    holder: str | None
    locked_until: str | None
    available_at: str | None
    ordered: bool
    result: str | None
    code: str | None

    @property
    def sentence(self) -> str:
        """Where it is, for people."""
        if self.locked_until:
            return f"Message {self.id} is locked by {self.holder or 'somebody'} until {self.locked_until}."
        if self.ordered and self.queued:
            return f"Message {self.id} has an ordering key, and those go in turn: start relay work without --id."
        if self.queued:
            return f"Message {self.id} is in the queue, due at {self.available_at or 'once'}."
        if self.result:
            return f"Message {self.id} is in the archive: {self.result}{f' ({self.code})' if self.code else ''}."
        return f"Message {self.id} is neither in the queue nor in the archive."


class ByIdIntake(Intake):
    """Claims the messages that were named, and nothing else.

    Args:
        store: where they are.
        ids: canonical text of each.

    """

    def __init__(self, *, store: NamedStore, ids: Sequence[str]) -> None:
        super().__init__(store=store, poll_interval=math.inf)
        self._asked = store
        self._ids = list(dict.fromkeys(ids))
        self._left = list(self._ids)
        self.refused: dict[str, str] = {}
        """Why messages were not claimed."""
        self.through = asyncio.Event()
        """There is nothing left to claim."""

    async def claim(self, room: int, room_bytes: int) -> Batch | None:
        """The next of them that are ready; see `relay.ports.Intake`."""
        batch = None
        if self._left:
            batch = (await self._asked.claim(ById(self._left), limit=room, limit_bytes=room_bytes)).batch
        if batch:
            claimed = {claim.id for claim in batch.claims}
            self._left = [id_ for id_ in self._left if id_ not in claimed]
        elif self._left:
            found = await self._find(self._left)
            self.refused = {each.id: each.sentence for each in found}
            self._left = []
        if not self._left:
            self.through.set()
        return batch

    def until_next_look(self) -> float:
        """Nothing becomes due that was not when it was named."""
        return 1.0

    async def unhandled(self) -> list[str]:
        """A sentence for each that was not handled here to its success, in the order in which they were named."""
        claimed = [id_ for id_ in self._ids if id_ not in self.refused]
        said = {each.id: each.sentence for each in await self._find(claimed) if each.result != Result.SUCCESS}
        return [sentence for id_ in self._ids if (sentence := self.refused.get(id_) or said.get(id_))]

    async def _find(self, ids: Sequence[str]) -> list[NamedMessage]:
        return [NamedMessage(*row) for row in await self._asked.run("find_named", ids=list(ids))]
