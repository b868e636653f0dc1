"""Streams on a real queue: held exchanges stop, resumed ones continue, and a merge loses nothing."""

from __future__ import annotations

from contextlib import AsyncExitStack

import psycopg
import pytest

from relay.claims.flood_control import FloodControl
from relay.claims.streams import Streams
from tests.support.database.queue import PLENTY, MadeStore, MakeStore, Queue, ids_of

WALK = 50


@pytest.fixture
def streams(store: MadeStore) -> Streams:
    """Streams of a new connection."""
    return Streams(store)


@pytest.fixture
def fair(store: MadeStore, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Streams that split off what floods, and step over so few messages at once that it is seen."""
    monkeypatch.setattr("relay.claims.stream.WALK", WALK)
    return Streams(store, FloodControl(window=80, in_flight=lambda exchange: 0))


async def claim(streams: Streams, limit: int = 100) -> list[str]:
    """Ids of the next batch."""
    return ids_of(await streams.claim(limit=limit, limit_bytes=PLENTY))


async def all_of(streams: Streams, limit: int = 100) -> list[str]:
    """Ids of every batch until two looks in turn found nothing."""
    found: list[str] = []
    empty = 0
    while empty < 2:
        ids = await claim(streams, limit)
        empty = 0 if ids or streams.unfinished else empty + 1
        found += ids
    return found


@pytest.mark.ids("C8", "A17")
async def test_what_was_waiting_before_the_start_is_claimed_in_order(queue: Queue, streams: Streams) -> None:
    """A new stream begins at the left and comes to the end of the queue."""
    ids = [id_ for _ in range(3) for id_ in await queue.insert(10)]

    assert ids == await all_of(streams, limit=7)


async def test_a_held_exchange_stands_still_and_the_others_go_on(queue: Queue, streams: Streams) -> None:
    """Holding one exchange costs the others nothing, and what comes later for it waits too."""
    held, free = await queue.insert(5, exchange="audit"), await queue.insert(5)
    assert not streams.pause(["audit"])
    assert free == await all_of(streams)
    late, more = await queue.insert(2, exchange="audit"), await queue.insert(2)
    assert more == await all_of(streams)

    assert streams.pause([])

    assert held + late == await all_of(streams)


async def test_an_exchange_held_in_the_middle_goes_on_from_there(queue: Queue, streams: Streams) -> None:
    """Some of it was claimed before; the rest is claimed once, after the hold."""
    ids = await queue.insert(9, exchange="audit")
    assert ids[:3] == await claim(streams, 3)
    streams.pause(["audit"])
    free = await queue.insert(2)
    assert free == await all_of(streams)

    streams.pause([])

    assert ids[3:] == await all_of(streams, 2)


async def test_a_resumed_backlog_does_not_keep_others_waiting(queue: Queue, streams: Streams) -> None:
    """Resumed and main stream take turns, so that a message for another exchange goes out within two claims."""
    streams.pause(["audit"])
    await queue.insert(100, exchange="audit")
    assert [] == await claim(streams)
    streams.pause([])
    [other] = await queue.insert()

    assert other in [id_ for _ in range(2) for id_ in await claim(streams, 10)]


async def test_a_stream_that_caught_up_is_merged(queue: Queue, streams: Streams) -> None:
    """There is one statement again for everything, and what commits on both sides of the merge is found once."""
    streams.pause(["audit"])
    first = await queue.insert(exchange="audit")
    assert [] == await all_of(streams)
    async with AsyncExitStack() as stack:
        early = [await stack.enter_async_context(await psycopg.AsyncConnection.connect(queue.url)) for _ in range(2)]
        for connection, exchange in zip(early, ("audit", "orders"), strict=True):
            await connection.execute("INSERT INTO queue_message (exchange) VALUES (%s)", [exchange])
        between = await queue.insert() + await queue.insert(exchange="audit")
        streams.pause([])
        found = await all_of(streams)
        assert sorted(first + between) == sorted(found)
        assert [None] == [*streams._branches, None]
        for connection in early:
            await connection.commit()
        after = await queue.insert() + await queue.insert(exchange="audit")
        found += await all_of(streams)

    everything = [id_ for (id_,) in await queue.sql("SELECT id::text FROM queue_message")]
    assert sorted(everything) == sorted(found)
    assert {*after} <= {*found}


async def test_a_reset_begins_at_the_left(queue: Queue, streams: Streams) -> None:
    """After a new connection, what came back below the old head is found without a sweep."""
    [id_] = await queue.insert()
    assert [id_] == await all_of(streams)
    await queue.sql("UPDATE queue_message SET lock_expires_at = NULL, lock_token = NULL, locked_by = NULL, attempts = 0")
    assert [] == await all_of(streams)

    streams.reset()

    assert [id_] == await all_of(streams)


@pytest.mark.ids("A6", "A18", "C17")
async def test_two_relays_share_a_queue_without_doubles(queue: Queue, make_store: MakeStore) -> None:
    """Each has streams of its own; together they claim everything, each message once."""
    both = [Streams(make_store(name)) for name in ("one", "two")]
    ids = [id_ for _ in range(5) for id_ in await queue.insert(20)]

    found = [id_ for _ in range(8) for streams in both for id_ in await claim(streams, 9)]

    assert sorted(ids) == sorted(found)


async def test_others_overtake_a_flood(queue: Queue, fair: Streams) -> None:
    """A message behind two thousand of another exchange is found by stepping over them, a bounded number at a time; all go out once."""
    ids = [id_ for _ in range(20) for id_ in await queue.insert(100, exchange="flood")]
    [other] = await queue.insert()
    steps = len(ids) // WALK
    claims = [await claim(fair, 20) for _ in range(steps + 2)]

    assert ["flood"] == fair.going
    assert other in {id_ for found in claims for id_ in found}
    found = [id_ for found in claims for id_ in found] + await all_of(fair, 20)
    assert (sorted([*ids, other]), []) == (sorted(found), fair.going)


async def test_a_flood_that_commits_late_is_walked_once(queue: Queue, fair: Streams) -> None:
    """Its transaction is below the head. Others overtake it, and claimed messages of it are not looked at again."""
    async with await psycopg.AsyncConnection.connect(queue.url) as late:
        await late.execute("INSERT INTO queue_message (exchange) SELECT 'flood' FROM generate_series(1, 1000)")
        first = await queue.insert()
        assert first == await all_of(fair)
        await late.commit()
    found = await claim(fair, 20)
    assert 20 == len(found)
    [other] = await queue.insert()
    reached = [0]
    for _ in range(2):
        found += await claim(fair, 20)
        reached.append(sum(fair._branches["flood"].cursor.late.values()))
    assert other in found
    await claim(fair, 20)
    reached.append(sum(fair._branches["flood"].cursor.late.values()))
    assert sorted(reached) == reached
    assert 0 < reached[1] < reached[3]


async def test_several_floods_and_others_go_in_turn(queue: Queue, fair: Streams) -> None:
    """Within a round each has its claim, and in the end there is one stream again."""
    for exchange in ("a", "b", "c"):
        await queue.insert(300, exchange=exchange)
    first = await queue.insert()
    claims = [await claim(fair, 20)]
    while not {*first} & {*claims[-1]}:
        claims.append(await claim(fair, 20))
    assert ["a", "b", "c"] == sorted(fair.going)
    others = await queue.insert(10)

    round_ = [await claim(fair, 20) for _ in range(4)]

    assert ([others], 3) == ([found for found in round_ if {*found} & {*others}], sum(len(found) == 20 for found in round_))
    rest = await all_of(fair, 20)
    assert (911, []) == (sum(map(len, claims + round_)) + len(rest), fair.going)


async def test_messages_with_ids_that_are_still_to_come_are_passed_over(queue: Queue, streams: Streams) -> None:
    """A dump of another cluster has higher ids than this one: its messages end the walk, and what is inserted now is claimed."""
    far = "(pg_current_xact_id()::text::bigint + 1000000)::text::xid8"
    await queue.sql("SET session_replication_role = replica")
    await queue.sql(f"INSERT INTO queue_message (xid, exchange) SELECT {far}, 'orders' FROM generate_series(1, 1000)")
    await queue.sql("RESET session_replication_role")
    first = await queue.insert(3)
    assert first == await all_of(streams)

    assert await queue.insert(2) == await all_of(streams)
