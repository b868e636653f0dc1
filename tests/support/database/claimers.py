"""Everything with which one relay claims, without its loop: its sources and its scrub, asked until nothing is left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from relay import events
from relay.claims.intake import Intake
from relay.claims.scrub import Scrub
from relay.message import CONFIRMED, SUCCESS, Batch, Outcome, Portion, Retry
from relay.ports import SettleRow
from tests.support.database.queue import PLENTY, MadeStore, Queue, ids_of


class Claimer:
    """The sources of a relay and its scrub, on a real store."""

    def __init__(self, store: MadeStore) -> None:
        self.store = store
        self.told: list[events.Event] = []
        self.intake = Intake(store=store, poll_interval=60.0)
        self.scrub = Scrub(store=store, intake=self.intake, emit=self.told.append, nudge=lambda: None, holds=lambda _: False)

    async def round(self) -> None:
        """Scan the whole queue once, up to the head, from the left."""
        self.scrub.hint()
        while await self.scrub.page():
            pass

    async def batches(self, limit: int = 100) -> AsyncIterator[Batch]:
        """Batches until every source has come to its end; each is looked at now."""
        self.intake.hint()
        self.intake.hint_waiting()
        while (batch := await self.intake.claim(limit, PLENTY)) or not self.intake.until_next_look():
            if batch:
                yield batch

    async def ids(self, limit: int = 100) -> list[str]:
        """Ids of what the sources have, in the order of their claims; they stay locked."""
        return [id_ async for batch in self.batches(limit) for id_ in ids_of(batch)]

    async def found(self, limit: int = 100) -> list[str]:
        """As `ids`, after a round of the scrub."""
        await self.round()
        return await self.ids(limit)

    async def settle(self, batch: Batch, outcome: Outcome = SUCCESS) -> None:
        """Write one outcome for all of a batch, as the engine does."""
        write = self.store.release if isinstance(outcome, Retry) else self.store.archive
        assert [] == await write(batch, [SettleRow(claim, outcome, None, None) for claim in batch.claims], again=False)
        count = len(batch.claims)
        self.intake.settled(Portion(batch.claims, [CONFIRMED] * count, [0.0] * count, [0.0] * count), [outcome] * count)


@pytest.fixture
async def claimer(store: MadeStore) -> Claimer:
    """What the only relay claims with; all lanes are its own."""
    claimer = Claimer(store)
    await claimer.intake.keep_lanes()
    return claimer


@asynccontextmanager
async def row_held(queue: Queue, id_: str) -> AsyncIterator[None]:
    """Keep a message's row locked in a transaction of an application's, which rolls back in the end."""
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [id_])
        yield
        await other.rollback()
