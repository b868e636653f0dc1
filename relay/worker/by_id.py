"""Claims messages by id, each once, and reports why a message was not claimed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from relay.claims.intake import Intake, IntakeStore
from relay.message import Batch, Result
from relay.ports import ById


class NamedStore(IntakeStore, Protocol):
    """A store that claims messages and runs statements by name."""

    async def run(self, name: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a statement by its name. May raise StoreError."""


class NamedMessage(NamedTuple):
    """Where a message is: a row of `find_named`."""

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
        """A sentence for operators that says where the message is."""
        if self.locked_until:
            return f"Message {self.id} is locked by {self.holder or 'somebody'} until {self.locked_until}."
        if self.ordered and self.queued:
            return f"Message {self.id} has an ordering key, and such messages are handled in turn: start relay work without --id."
        if self.queued:
            return f"Message {self.id} is in the queue, due at {self.available_at or 'once'}."
        if self.result:
            return f"Message {self.id} is in the archive: {self.result}{f' ({self.code})' if self.code else ''}."
        return f"Message {self.id} is neither in the queue nor in the archive."


class ByIdIntake(Intake):
    """Claims the messages with these ids, and no others.

    Args:
        store: claims and finds the messages.
        ids: the messages' ids, in canonical text.

    """

    def __init__(self, *, store: NamedStore, ids: Sequence[str]) -> None:
        super().__init__(store=store, poll_interval=math.inf)
        self._named_store = store
        self._ids = list(dict.fromkeys(ids))
        self._unclaimed = list(self._ids)
        self.not_claimed: dict[str, str] = {}
        """Why a message was not claimed, by id."""
        self.exhausted = asyncio.Event()
        """Set when no message is left to claim."""

    async def claim(self, room: int, room_bytes: int) -> Batch | None:
        """The next messages that are ready; see `relay.ports.Intake`."""
        batch = None
        if self._unclaimed:
            batch = (await self._named_store.claim(ById(self._unclaimed), limit=room, limit_bytes=room_bytes)).batch
        if batch:
            claimed = {claim.id for claim in batch.claims}
            self._unclaimed = [id_ for id_ in self._unclaimed if id_ not in claimed]
        elif self._unclaimed:
            found = await self._find(self._unclaimed)
            self.not_claimed = {each.id: each.sentence for each in found}
            self._unclaimed = []
        if not self._unclaimed:
            self.exhausted.set()
        return batch

    def until_next_look(self) -> float:
        """Any value: the worker does not wait for messages that were not due at the start."""
        return 1.0

    async def unhandled(self) -> list[str]:
        """One sentence for each message that was not handled successfully, in the order of the ids."""
        claimed = [id_ for id_ in self._ids if id_ not in self.not_claimed]
        elsewhere = {each.id: each.sentence for each in await self._find(claimed) if each.result != Result.SUCCESS}
        return [sentence for id_ in self._ids if (sentence := self.not_claimed.get(id_) or elsewhere.get(id_))]

    async def _find(self, ids: Sequence[str]) -> list[NamedMessage]:
        return [NamedMessage(*row) for row in await self._named_store.run("find_named", ids=list(ids))]
