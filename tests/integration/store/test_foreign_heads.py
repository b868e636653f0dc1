"""Heads of keys where messages of another cluster were renumbered: searches look for these only where some may be left."""

from __future__ import annotations

import psycopg
import pytest

from relay.claims.key_bounds import NOWHERE, KeyBound
from relay.message import Position
from relay.postgres.parameters import probe
from tests.support.database.foreign import FAR, bring, renumber
from tests.support.database.plans import explain
from tests.support.database.queue import MadeStore, Queue

pytestmark = pytest.mark.ids("D7")
SENT = 20_000
FEW = 30
"""Pages of a search that walks no entries of what was sent; with them it takes some 200 more."""


async def _pages(queue: Queue, store: MadeStore, *keys: str) -> int:
    """Pages that a search for the heads of these keys looks at."""
    return (await explain(queue.connection, store._statements["find_heads"], probe([*keys], [NOWHERE] * len(keys), [], []))).pages


async def _heads(store: MadeStore, *keys: str) -> set[str]:
    _, found = await store.find_heads(keys, [NOWHERE] * len(keys), running=[], paused=[])
    return {*found}


@pytest.mark.parametrize("left", [[], ["first"], ["last"], ["first", "last"]], ids=str)
async def test_a_search_walks_nothing_of_what_was_sent_under_a_held_snapshot(queue: Queue, store: MadeStore, left: list[str]) -> None:
    """From the minute on in which it was noted; whatever is left is found."""
    await bring(queue, *({"xid": FAR, "key": {0: "first", SENT - 1: "last"}.get(number, "sent")} for number in range(SENT)))
    await renumber(queue, 10_000)
    await queue.insert(ordering_key="own")
    async with await psycopg.AsyncConnection.connect(queue.url) as reader:
        await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await reader.execute("SELECT count(*) FROM queue_message")
        await queue.sql("DELETE FROM queue_message WHERE xid = '2' AND ordering_key <> ALL (%s)", left)

        assert 0 == await renumber(queue)
        assert await _pages(queue, store, "own") < FEW
    assert {"own", *left} == await _heads(store, "own", "first", "last", "sent")


async def test_what_is_renumbered_after_a_note_is_found(queue: Queue, store: MadeStore) -> None:
    """Below the bound of its key, from the first page on."""
    await bring(queue, {"xid": FAR, "key": "a"})
    await renumber(queue)
    await queue.sql("DELETE FROM queue_message")
    await queue.insert(ordering_key="b")
    await renumber(queue)
    assert 0 == await queue.value("SELECT renumbered_to FROM queue_message_cluster")

    await bring(queue, {"xid": FAR, "key": "b"}, {"xid": FAR, "key": "c"})
    while (await queue.value("SELECT more FROM queue_message_renumber(1)")) and await queue.value(
        "SELECT count(*) = 0 FROM queue_message WHERE xid = '2'"
    ):
        pass
    own = int(await queue.value("SELECT max(xid::text::bigint) FROM queue_message WHERE ordering_key = 'b' AND xid < %s::text::xid8", FAR))
    _, found = await store.find_heads(["b"], [KeyBound(Position(own, 0), ())], running=[], paused=[])
    assert 2 == found["b"].position.xid
    assert 0 < await queue.value("SELECT renumbered_to FROM queue_message_cluster")


async def test_a_note_waits_for_nobody_who_renumbers(queue: Queue) -> None:
    """Else what that one has not committed yet would be left out of it."""
    await queue.insert(ordering_key="b")
    await renumber(queue)
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("UPDATE queue_message_cluster SET renumbered_to = 7")
        await other.execute("SELECT FROM queue_message_turn WHERE task = 'renumber' FOR UPDATE")
        await queue.sql("SELECT queue_message_note_renumbered()")
        await other.commit()
    assert 7 == await queue.value("SELECT renumbered_to FROM queue_message_cluster")


async def test_what_was_renumbered_elsewhere_is_noted_too(queue: Queue) -> None:
    """A dump may hold such messages."""
    await queue.insert(ordering_key="b")
    for _ in range(2):
        await renumber(queue)
    assert 0 == await queue.value("SELECT renumbered_to FROM queue_message_cluster")
    await bring(queue, {"xid": 2, "seq": 9, "key": "b"})
    for _ in range(2):
        await renumber(queue)
    assert 9 == await queue.value("SELECT renumbered_to FROM queue_message_cluster")
