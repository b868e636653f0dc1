"""What each claim takes, in which order, and what it says about what it left."""

from __future__ import annotations

import asyncio
import json

import psycopg
import pytest

from relay.claims.cursor import LAST_XID, Snapshot
from relay.errors import NewConnectionError, StoreError
from relay.message import START, GiveBack, Position, Range, Retry
from relay.ports import At, Fresh, SettleRow
from tests.support.database.claimers import row_held
from tests.support.database.queue import FIRST, MadeStore, MakeStore, Queue, ids_of

EARLIER = "2020-01-01T00:00:00Z"
LATER = "2999-01-01T00:00:00Z"


async def test_a_claim_returns_the_message_as_it_was_inserted(queue: Queue, store: MadeStore) -> None:
    """Every column travels, and jsonb text is not put through a JSON round trip."""
    [id_] = await queue.insert(
        exchange="orders", routing_key="new", content='{"n": 1.00, "big": 1e400}', options='{"priority": 3}', expires_at=LATER
    )

    batch = await store.batch()

    [claim] = batch.claims
    assert (id_, "orders", "new", 1, None, None) == (
        claim.id, claim.exchange, claim.routing_key, claim.attempts, claim.ordering_key, claim.replay_of,
    )  # fmt: skip
    assert (await queue.value("SELECT content::text FROM queue_message")).encode() == claim.payload
    assert b"1.00" in claim.payload
    assert not claim.binary
    assert {"priority": 3} == json.loads(claim.options or b"")
    assert claim.expires_in is not None
    assert claim.expires_in > 1e9


async def test_a_body_travels_as_its_bytes(queue: Queue, store: MadeStore) -> None:
    """A binary payload takes the place of the content."""
    await queue.insert(body=b"\x00\xff")

    [claim] = (await store.batch()).claims

    assert (b"\x00\xff", True, None) == (claim.payload, claim.binary, claim.options)


@pytest.mark.ids("A5", "B4", "B9")
async def test_a_claim_locks_by_the_database_clock(queue: Queue, store: MadeStore) -> None:
    """One statement sets lock, token, holder and attempt, and reports the clock that it used."""
    [id_] = await queue.insert()

    batch = await store.batch()

    row = await queue.row(id_)
    assert (batch.token, store.relay_id, 1) == (row["lock_token"], row["locked_by"], row["attempts"])
    seconds = "SELECT extract(epoch FROM lock_expires_at - to_timestamp(%s))::float8 FROM queue_message"
    assert 30 == pytest.approx(await queue.value(seconds, batch.claimed_at), abs=0.001)
    assert batch.claimed_tick < batch.deadline < batch.claimed_tick + 30


async def test_claims_come_in_the_order_of_their_positions(queue: Queue, store: MadeStore) -> None:
    """Transactions in the order in which they began to write, a transaction's messages together."""
    async with await psycopg.AsyncConnection.connect(queue.url) as early:
        await early.execute("SELECT pg_current_xact_id()")
        first = await queue.insert(2)
        await early.execute("INSERT INTO queue_message (exchange, id) VALUES ('orders', '00000000-0000-7000-8000-000000000001')")
        await early.commit()

    assert ["00000000-0000-7000-8000-000000000001", *first] == await store.ids()


async def test_a_claim_goes_on_above_the_head(queue: Queue, store: MadeStore) -> None:
    """Messages at or below the head are left alone."""
    await queue.insert(2)
    head = (await store.take(limit=1)).last
    assert head is not None
    assert head.seq == 1

    batch = await store.batch(Fresh([Range(head, LAST_XID)], 10))

    assert [2] == [claim.seq for claim in batch.claims]


@pytest.mark.ids("A6", "B3", "C5")
async def test_only_one_of_two_claimers_gets_a_message(queue: Queue, make_store: MakeStore) -> None:
    """Claims at the same time share the messages. No claim waits, and no message is claimed twice."""
    ids = await queue.insert(60)
    stores = [make_store(f"relay-{n}") for n in range(3)]
    for each in stores:
        await each.register()

    claimed = await asyncio.gather(*(each.ids(limit=10) for each in stores for _ in range(4)))

    assert sorted(ids) == sorted(id_ for batch in claimed for id_ in batch)


async def test_a_claimer_steps_over_what_another_transaction_holds(queue: Queue, store: MadeStore) -> None:
    """SKIP LOCKED: a lock that is not committed yet makes no claim wait."""
    first, second = await queue.insert(2)
    async with row_held(queue, first):
        assert [second] == await store.ids()


async def test_bytes_bound_a_claim_but_one_message_always_fits(queue: Queue, store: MadeStore) -> None:
    """The running total of the stored sizes ends a batch before bodies travel."""
    ids = await queue.insert(5, body=bytes(1000))

    one = await store.take(limit_bytes=1)
    two = await store.take(limit_bytes=4000)

    assert ([ids[:1], ids[1:3]], [True, True]) == ([ids_of(one.batch), ids_of(two.batch)], [one.full, two.full])


async def test_a_claim_says_whether_a_limit_left_something_out(queue: Queue, store: MadeStore) -> None:
    """Full means that there may be more of what was asked for."""
    await queue.insert(3)

    assert (await store.take(limit=3)).full
    assert not (await store.take(limit=3)).full


async def test_a_claim_that_finds_nothing_reports_its_snapshot(queue: Queue, store: MadeStore) -> None:
    """The head may go past every transaction that has ended, and running ones are named."""
    async with await psycopg.AsyncConnection.connect(queue.url) as writer:
        cursor = await writer.execute("SELECT pg_current_xact_id()::text::bigint")
        [xid] = await cursor.fetchone() or [0]
        await queue.insert(available_at=LATER)

        claimed = await store.take()

    assert claimed.batch is None
    assert xid in Snapshot.parse(claimed.snapshot).running
    assert claimed.last is None


async def test_delayed_and_ordered_messages_are_left_to_their_own_claims(queue: Queue, store: MadeStore) -> None:
    """The claim above the head takes only messages that are unordered and were never delayed."""
    await queue.insert(available_at=EARLIER)
    await queue.insert(ordering_key="k")
    [plain] = await queue.insert()

    assert [plain] == await store.ids()


async def test_late_transactions_are_asked_for_by_their_ids(queue: Queue, store: MadeStore) -> None:
    """The claim takes only messages behind the place reached in that transaction, and none between it and the head."""
    first, _ = await queue.insert(2), await queue.insert(2)
    late = await positions(queue, *first)
    end = (await positions(queue, (await queue.insert())[0]))[0]

    found = await store.take(Fresh([Range(late[0], late[0].xid + 1), Range(end, LAST_XID)], 10))

    assert (first[1:], [None, None]) == (ids_of(found.batch), found.bounds)


async def test_a_claim_walks_so_many_messages_in_each_range_and_says_how_far_it_came(queue: Queue, store: MadeStore) -> None:
    """The bound of a range is the first position that was not looked at. The next claim continues from there."""
    ids = await queue.insert(5, exchange="audit") + await queue.insert(4)
    places = await positions(queue, *ids)
    ranges = [Range(START, places[0].xid + 1), Range(places[5]._replace(seq=0), LAST_XID)]

    found = await store.take(Fresh(ranges, 3, ["audit"]))

    assert (ids[5:8], [places[3], places[8]], False) == (ids_of(found.batch), found.bounds, found.full)


async def test_an_exchange_of_its_own_stream_is_claimed_alone(queue: Queue, store: MadeStore) -> None:
    """The claim of one exchange leaves the others where they are, above the head and in late transactions."""
    await queue.insert(exchange="audit")
    [own] = await queue.insert(exchange="orders")
    [late] = await queue.insert()
    [place] = await positions(queue, late)

    assert [own] == await store.ids(Fresh([Range(START, place.xid)], 10, only=["orders"]))
    assert [late] == await store.ids(Fresh([Range(START, place.xid), Range(place._replace(seq=0), LAST_XID)], 10, only=["orders"]))


async def test_an_excluded_exchange_is_left_out(queue: Queue, store: MadeStore) -> None:
    """The claim of fresh messages can leave some out; its head passes them."""
    [_], [free] = await queue.insert(exchange="audit"), await queue.insert()

    assert [free] == await store.ids(Fresh(FIRST.ranges, 10, ["audit"]))


@pytest.mark.parametrize("kind", ["waiting", "suspect", "stranded", "key"])
async def test_a_scan_finds_nothing_of_a_held_exchange(queue: Queue, store: MadeStore, kind: str) -> None:
    """What is claimed by position is found by a scan, which leaves some out."""
    wait = {"available_at": EARLIER} if kind in {"waiting", "suspect"} else {}
    key = {"ordering_key": "k"} if kind == "key" else {}
    await queue.insert(exchange="audit", **wait, **key)
    [free] = await queue.insert(**wait, **key)
    if kind == "suspect":
        await queue.sql("UPDATE queue_message SET locked_by = 7")

    assert [(kind, *await positions(queue, free))] == [(one.kind, one.position) for one in (await store.left(held=["audit"])).findings]


async def positions(queue: Queue, *ids: str) -> list[Position]:
    """Where messages stand, in claim order."""
    statement = "SELECT xid::text::bigint, seq FROM queue_message WHERE id = ANY(%s::uuid[]) ORDER BY xid, seq"
    return [Position(*row) for row in await queue.sql(statement, [*ids])]


async def test_what_cannot_be_claimed_any_more_is_left_alone_at_its_position(queue: Queue, store: MadeStore) -> None:
    """Positions are hints: each is checked again by the claim that names it."""
    ids = await queue.insert(6, available_at=EARLIER)
    locked, later, suspect, held, gone, ready = ids
    places = await positions(queue, *ids)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 min' WHERE id = %s", locked)
    await queue.sql("UPDATE queue_message SET available_at = now() + interval '1 h' WHERE id = %s", later)
    await queue.sql("UPDATE queue_message SET locked_by = 7 WHERE id = %s", suspect)
    await queue.sql("DELETE FROM queue_message WHERE id = %s", gone)
    async with row_held(queue, held):
        assert [ready] == await store.ids(At(places, "waiting"))
    assert [suspect] == await store.ids(At(places, "suspect"))


async def test_a_limit_on_bytes_gives_each_exchange_its_share_of_what_a_scan_has_found(queue: Queue, store: MadeStore) -> None:
    """The oldest large messages do not take the room of all others."""
    large = await queue.insert(3, available_at=EARLIER, body=bytes(100_000))
    other = await queue.insert(2, available_at=EARLIER, body=bytes(50_000), exchange="audit")
    small = await queue.insert(2, available_at=EARLIER, exchange="mail")
    places = await positions(queue, *large, *other, *small)

    claims = [ids_of((await store.take(At(places, "waiting"), limit_bytes=140_000)).batch) for _ in range(3)]
    assert [[large[0], other[0], *small], [large[1], other[1]], [large[2]]] == claims


async def test_a_message_larger_than_the_room_goes_when_it_is_the_oldest(queue: Queue, store: MadeStore) -> None:
    """However many small ones of other exchanges come: it waits for none of them twice."""
    [large] = await queue.insert(1, available_at=EARLIER, body=bytes(300_000))
    small = await queue.insert(2, available_at=EARLIER, exchange="mail")

    assert [large] == ids_of((await store.take(At(await positions(queue, large, *small), "waiting"), limit_bytes=15_000)).batch)


@pytest.mark.ids("D6")
async def test_a_waiting_message_is_due_at_its_time(queue: Queue, store: MadeStore) -> None:
    """No claim takes a message before its `available_at`. After it, a scan finds the message."""
    await queue.insert(available_at=LATER)
    [due] = await queue.insert(available_at=EARLIER)

    assert [due] == await store.found_ids()
    assert [] == await store.found_ids()


async def test_a_given_back_claim_is_due_at_once_and_does_not_count(queue: Queue, store: MadeStore) -> None:
    """An outage is no attempt: the same message comes again with the same count."""
    [id_] = await queue.insert()
    batch = await store.batch()

    assert [] == await store.release(batch, [SettleRow(batch.claims[0], GiveBack("gone", "The broker went."), None, None)], again=False)
    again = await store.found_batch()

    assert [(id_, 1)] == [(claim.id, claim.attempts) for claim in again.claims]


async def test_a_retry_waits_counts_and_says_why(queue: Queue, store: MadeStore) -> None:
    """Released with its delay by the database's clock; the attempt stays counted."""
    [id_] = await queue.insert()
    batch = await store.batch()

    await store.release(batch, [SettleRow(batch.claims[0], Retry(60.0, "no-route", "Nobody\0listens."), None, None)], again=False)

    row = await queue.row(id_)
    assert (None, None, None, 1, "no-route: Nobody\\0listens.") == (
        row["lock_expires_at"], row["lock_token"], row["locked_by"], row["attempts"], row["last_error"],
    )  # fmt: skip
    assert 55 < await queue.value("SELECT extract(epoch FROM available_at - now())::float8 FROM queue_message") <= 60
    assert [] == await store.found_ids()


async def test_a_missing_schema_is_told_in_one_sentence(make_store: MakeStore, empty_database_url: str) -> None:
    """The error names the command that repairs it, and no row is at fault for the wait."""
    with pytest.raises(StoreError, match="run `relay migrate`") as caught:
        await make_store(url=empty_database_url).take()

    assert not caught.value.row_is_guilty


async def test_a_closed_connection_is_opened_again(queue: Queue, store: MadeStore) -> None:
    """The statement that meets the loss fails with a sentence. On the new connection, claims begin again and then continue."""
    [id_] = await queue.insert()
    assert [] == await store.found_ids()
    await queue.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay% claim'")

    with pytest.raises(StoreError, match=r"^[^\n]+\.$"):
        await store.ids()
    with pytest.raises(NewConnectionError):
        await store.ids()
    assert [id_] == await store.ids()
