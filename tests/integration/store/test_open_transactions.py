"""What an open transaction has inserted costs no look anything, however much it is: nothing of it is visible."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from relay.claims.cursor import LAST_XID, Cursor, Snapshot
from relay.claims.key_bounds import NOWHERE, KeyBound
from relay.claims.stream import WALK
from relay.message import START, Position, Range
from relay.ports import Fresh
from relay.postgres.array_literal import literal
from relay.postgres.parameters import at, heads_of, probe, ranges_of, wanted_of
from relay.postgres.payload_fetcher import LARGE
from relay.postgres.session import ALWAYS, BY_INDEX, IN_ORDER
from relay.postgres.store import LOOK, MAX_FINDINGS, PAGE
from tests.support.database.claimers import Claimer
from tests.support.database.plans import explain
from tests.support.database.queue import END, PLENTY, MadeStore, Queue

MANY = 50_000
MOST_PAGES = 120
"""Measured: 5 to 80; 900 and more where a statement walks what is not committed."""


@pytest.fixture
async def writer(queue: Queue) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A session of an application's that inserts very much, and does not commit."""
    async with await psycopg.AsyncConnection.connect(queue.url) as made:
        yield made
        await made.rollback()


async def insert(writer: psycopg.AsyncConnection[Any], key: str | None = None) -> int:
    """Insert very many messages; return the transaction."""
    many = "INSERT INTO queue_message (exchange, ordering_key) SELECT 'flood', %s FROM generate_series(1, %s)"
    await writer.execute(many.encode(), [key, MANY])
    found = await (await writer.execute("SELECT pg_current_xact_id()::text::bigint")).fetchone()
    assert found
    return int(found[0])


async def pages(queue: Queue, store: MadeStore, ranges: list[Range], bound: KeyBound = NOWHERE) -> dict[str, int]:
    """Pages that each statement looks at: claims continue in these ranges, keys begin at this bound, all else on the left."""
    lanes = list(await store.keep_lanes())
    claim, where = wanted_of(Fresh(ranges, WALK))
    values: dict[str, Any] = {
        **where, "limit": 500, "limit_bytes": PLENTY, "lock_seconds": 30.0, "now": None, "large": LARGE, "relay_id": store.relay_id,
        "token": "00000000-0000-7000-8000-000000000001", "held": [], "lanes": lanes, "most": MAX_FINDINGS, "lag": 2.0,
        "after": "-infinity", **heads_of(END, {}), "crowded": [], **at("from", START), **at("head", START), **at("lanes_head", START),
        "pending": "{}", "lanes_pending": "{}",
    }  # fmt: skip
    names = store._statements
    asked = {
        "fresh": (names.claim(claim), values, BY_INDEX),
        "scan left": (names.scan("left"), values | {"walk": PAGE}, ALWAYS | IN_ORDER),
        "list keys": (names["list_keys"], values | {"walk": PAGE, **ranges_of(ranges)}, BY_INDEX),
        "look": (names["look"], values | {"walk": LOOK, "pending": literal([]), "lanes_pending": literal([])}, BY_INDEX),
        "find heads": (names["find_heads"], values | probe(["k", "other"], [bound] * 2, [], []), BY_INDEX),
    }  # fmt: skip
    return {name: (await explain(queue.connection, *one)).pages for name, one in asked.items()}


@pytest.mark.parametrize("key", [None, "k"], ids=["fresh", "of one key"])
async def test_no_look_walks_what_is_not_committed(
    queue: Queue, store: MadeStore, writer: psycopg.AsyncConnection[Any], key: str | None
) -> None:
    """Neither of a relay that begins, with messages before and behind it, nor of one that has passed the transaction."""
    await queue.insert(ordering_key=key)
    xid = await insert(writer, key)
    await queue.insert(ordering_key=key)
    passed = Cursor.behind(Snapshot.parse(str(await queue.value("SELECT pg_current_snapshot()::text"))))
    assert xid in passed.late

    for ranges, bound in ((Cursor().ranges(), NOWHERE), (passed.ranges(), KeyBound(Position(xid, 0), ()))):
        found = await pages(queue, store, ranges, bound)
        assert {} == {name: read for name, read in found.items() if read > MOST_PAGES}


async def test_no_claim_walks_what_was_rolled_back_while_it_was_late(
    queue: Queue, store: MadeStore, writer: psycopg.AsyncConnection[Any]
) -> None:
    """It is looked at once more by a relay that had passed it, and then no more."""
    xid = await insert(writer)
    await queue.insert()
    cursor = Cursor.behind(Snapshot.parse(str(await queue.value("SELECT pg_current_snapshot()::text"))))
    await writer.rollback()
    claim, where = wanted_of(Fresh(ranges := cursor.ranges(), WALK))
    assert Range(Position(xid, 0), xid + 1) in ranges
    claiming = {
        **where, "limit": 500, "limit_bytes": PLENTY, "lock_seconds": 30.0, "now": None, "large": LARGE, "relay_id": store.relay_id,
        "token": "00000000-0000-7000-8000-000000000001",
    }  # fmt: skip

    assert (await explain(queue.connection, store._statements.claim(claim), claiming)).pages <= MOST_PAGES


async def test_everything_leaves_around_open_transactions_and_then_what_these_commit(
    queue: Queue, claimer: Claimer, writer: psycopg.AsyncConnection[Any]
) -> None:
    """In walks of a few messages that end between, at and behind the transactions."""
    first = await queue.insert(3)
    async with await psycopg.AsyncConnection.connect(queue.url) as second:
        for session in (writer, second):
            await session.execute("INSERT INTO queue_message (exchange, ordering_key) SELECT 'e', n FROM unnest('{k,NULL}'::text[]) AS n")
            first += await queue.insert(3)
        assert sorted(first) == sorted(await claimer.ids(2))
        await second.rollback()
    await writer.commit()
    committed = [id_ for (id_,) in await queue.sql("SELECT id::text FROM queue_message WHERE lock_expires_at IS NULL")]

    assert 2 == len(committed)
    assert sorted(committed) == sorted(await claimer.ids(2))


async def test_the_bound_of_a_walk_is_counted_across_an_open_transaction(
    queue: Queue, store: MadeStore, writer: psycopg.AsyncConnection[Any]
) -> None:
    """A walk of four messages ends at the fifth, whichever side of the transaction that one is on."""
    await queue.insert(2)
    await writer.execute("INSERT INTO queue_message (exchange) VALUES ('e')")
    await queue.insert(4)
    seqs = [seq for (seq,) in await queue.sql("SELECT seq FROM queue_message ORDER BY xid, seq")]
    claimed = await store.take(Fresh([Range(START, LAST_XID)], 4))

    assert [seqs[4]] == [bound.seq for bound in claimed.bounds if bound]
    assert seqs[:4] == [one.seq for one in claimed.batch.claims] if claimed.batch else False
