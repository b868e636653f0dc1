"""A message of a long transaction is the head before what began after its commit, however far the bound of its key has come meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from relay.claims.cursor import Snapshot
from relay.claims.key_bounds import NEAR, KeyBounds
from tests.support.database.queue import MadeStore, Queue


@pytest.fixture
async def writer(queue: Queue) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A session whose transaction stays open, and is far below what comes later."""
    async with await psycopg.AsyncConnection.connect(queue.url) as made:
        await made.execute("SELECT pg_current_xact_id()")
        for _ in range(NEAR + 1):
            await queue.sql("SELECT pg_current_xact_id()")
        yield made


async def look(store: MadeStore, bounds: KeyBounds, key: str) -> int | None:
    """Look for the head of a key by its bound, and learn from that; return the head's transaction."""
    snapshot, heads = await store.find_heads([key], bounds.of([key]), running=bounds.running, paused=[])
    bounds.learn([key], heads, Snapshot.parse(snapshot))
    return heads[key].position.xid if key in heads else None


@pytest.mark.ids("A8")
@pytest.mark.parametrize("seen", [False, True], ids=["its end was not seen", "its end was seen"])
async def test_what_a_long_transaction_has_inserted_is_the_head(
    queue: Queue, store: MadeStore, writer: psycopg.AsyncConnection[Any], seen: bool
) -> None:
    """Whether a look for another key has seen the end of the transaction meanwhile or not."""
    bounds = KeyBounds()
    assert [None, None] == [await look(store, bounds, key) for key in ("k", "other")]
    [(xid,)] = await (await writer.execute("SELECT pg_current_xact_id()::text::bigint")).fetchall()
    assert [xid] == bounds.running
    await writer.execute("INSERT INTO queue_message (exchange, ordering_key) VALUES ('orders', 'k')")
    await writer.commit()
    if seen:
        assert None is await look(store, bounds, "other")
        assert [] == bounds.running
    await queue.insert(ordering_key="k")

    assert xid == await look(store, bounds, "k")
