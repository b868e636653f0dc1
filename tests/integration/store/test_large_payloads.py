"""Payloads that do not travel with their claim: locked first, fetched one by one."""

from __future__ import annotations

import pytest

from relay.codec.encoder import Encoded, Encoder
from relay.engine.policy import Policy
from relay.errors import NewConnectionError, StoreError
from relay.events import Event, LockLost
from relay.memory import KEPT
from relay.message import TruncatedPayload
from relay.postgres.payload_fetcher import FIRST, LARGE
from tests.support.database.queue import MadeStore, MakeStore, Queue, ids_of, unchecked, until

INSERT = "INSERT INTO queue_message (exchange, content) SELECT 'orders', jsonb_build_object('n', n) FROM generate_series(1, 3) AS n"
RANDOM = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 200000))"
"""6.4 million hex digits, which hardly compress."""
LONG = "[" + ",".join(["1e308"] * 8000) + "]"
"""Some 100 KB as `jsonb`, little when it is compressed, and 2.5 MB as text."""


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("content", f"to_jsonb({RANDOM})"),
        ("content", "to_jsonb(repeat('ä', 6000000))"),
        ("body", f"decode({RANDOM}, 'hex')"),
    ],
)  # fmt: skip
async def test_a_large_payload_is_claimed_whole_and_in_its_place(queue: Queue, store: MadeStore, column: str, value: str) -> None:
    """It is byte for byte what PostgreSQL shows, and in its place among small ones."""
    await queue.sql(INSERT)
    await queue.sql(f"INSERT INTO queue_message (exchange, {column}) VALUES ('orders', {value})")
    await queue.sql(INSERT)
    owed = await queue.sql("SELECT coalesce(body, convert_to(content::text, 'UTF8')) FROM queue_message ORDER BY xid, seq")

    batch = await store.batch()

    assert [payload for (payload,) in owed] == [claim.payload for claim in batch.claims]
    assert len(batch.claims[3].payload) > 3_000_000


async def test_of_a_payload_over_the_limit_no_more_is_fetched_than_shows_it(queue: Queue, make_store: MakeStore) -> None:
    """One byte more than is allowed, whatever there is."""
    store = make_store(policy=Policy(max_body_bytes=1000))
    await store.register()
    await queue.sql(f"INSERT INTO queue_message (exchange, body) VALUES ('orders', decode(repeat('00', {LARGE + 1}), 'hex'))")

    [claim] = (await store.batch()).claims

    assert 1001 == len(claim.payload)
    encoder = Encoder(frame_max=131072, max_body_bytes=1 << 30, allowed_exchanges=None)
    assert not isinstance(encoder.encode(claim), Encoded), "a limit that was raised meanwhile must not let its beginning out"


async def test_a_payload_longer_than_its_size_lets_expect_does_not_travel_with_its_claim(queue: Queue, make_store: MakeStore) -> None:
    """Hundreds of bytes that are megabytes as text: a claim may bring hundreds of those, and no memory holds them."""
    store = make_store(policy=Policy(max_body_bytes=1 << 20))
    await store.register()
    async with unchecked(queue):
        await queue.sql(
            "INSERT INTO queue_message (exchange, content) SELECT 'orders', jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 20)"
        )
        await queue.sql("INSERT INTO queue_message (exchange, content) SELECT 'orders', '1e100000'::jsonb")
    assert 400 > await queue.value("SELECT max(pg_column_size(content)) FROM queue_message")

    [cut, whole] = (await store.batch()).claims

    assert (TruncatedPayload, FIRST) == (type(cut.payload), len(cut.payload))
    assert b"1" + b"0" * 100_000 == whole.payload


async def test_what_is_longer_than_its_size_lets_expect_is_claimed_bit_by_bit(queue: Queue, store: MadeStore) -> None:
    """The window has room for its bytes, whatever the database took them to be: the rest goes back, and each message comes once."""
    ids = await queue.insert(6, content=LONG)
    [(stored, printed)] = await queue.sql("SELECT max(pg_column_size(content)), max(octet_length(content::text)) FROM queue_message")
    assert 6 * 100 * stored < 2 * printed
    one = KEPT + len("orders") + printed
    room = one + 1

    first = (await store.take(limit_bytes=room)).batch
    rest = [(await store.found(limit_bytes=room)).batch for _ in range(6)]

    batches = [batch for batch in (first, *rest) if batch]
    assert {2 * one, one} >= {batch.size for batch in batches}
    assert ids == [id_ for batch in batches for id_ in ids_of(batch)]
    assert {(1, None)} == set(await queue.sql("SELECT attempts, last_error FROM queue_message"))


async def test_what_a_claim_printed_in_vain_makes_the_next_ones_smaller(queue: Queue, store: MadeStore) -> None:
    """Otherwise each claim would print all due messages and release all but a few."""
    count = 120
    await queue.sql(f"INSERT INTO queue_message (exchange, content) SELECT 'orders', '{LONG}'::jsonb FROM generate_series(1, {count})")
    taken = 0
    while taken < count:
        batch = (await store.take(limit=count, limit_bytes=6 << 20)).batch or (await store.found(limit=count, limit_bytes=6 << 20)).batch
        assert batch
        taken += len(batch.claims)
    await queue.sql("SELECT pg_stat_force_next_flush()")
    locked = "SELECT pg_stat_get_tuples_updated('queue_message'::regclass) < %s"
    await until(lambda: queue.value("SELECT pg_stat_get_tuples_updated('queue_message'::regclass) >= %s", count))
    assert await queue.value(locked, 3 * count), "each is locked once, and some go back"


async def test_a_head_for_which_there_is_no_room_stays_the_head_of_its_key(queue: Queue, store: MadeStore) -> None:
    """What follows it waits for it, and the next claim takes it."""
    heads = [(await queue.insert(2, content=LONG, ordering_key=key))[0] for key in ("a", "b")]
    lanes = await store.keep_lanes()

    one, other = [ids_of((await store.claim_heads("a", "b", lanes=lanes, limit_bytes=1_000_000)).batch) for _ in range(2)]

    assert [[heads[0]], [heads[1]]] == [one, other]


async def test_the_lock_stands_although_a_payload_cannot_be_had(queue: Queue, store: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other messages continue without it, and its attempt counts. The next claim says why the payload did not come."""
    await queue.sql(INSERT)
    await queue.sql(f"INSERT INTO queue_message (exchange, body) VALUES ('orders', decode(repeat('00', {LARGE + 1}), 'hex'))")
    monkeypatch.setitem(store._statements._rendered, "read_payload", b"SELECT pg_terminate_backend(pg_backend_pid()), %(start)s")

    batch = await store.batch()

    assert 3 == len(batch.claims)
    assert store.left_locked
    assert [(1,)] == await queue.sql("SELECT attempts FROM queue_message WHERE body IS NOT NULL AND lock_expires_at > now()")
    with pytest.raises(StoreError, match="PostgreSQL"):
        await store.take()
    with pytest.raises(NewConnectionError):
        await store.take()
    assert (await store.take()).batch is None


async def test_memory_that_runs_out_is_told_and_counted(queue: Queue, store: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that comes alone and finds no memory keeps its lock, too."""
    await queue.sql(f"INSERT INTO queue_message (exchange, body) VALUES ('orders', decode(repeat('00', {LARGE + 1}), 'hex'))")
    fetch = store._claims.fetch

    async def starved(statement: bytes, values: dict[str, object], *, by_position: bool = False) -> list[tuple[object, ...]]:
        if b"substring" in statement:
            raise MemoryError
        return await fetch(statement, values, by_position=by_position)

    monkeypatch.setattr(store._claims, "fetch", starved)

    with pytest.raises(StoreError, match="no memory for a payload"):
        await store.take()
    assert [(1,)] == await queue.sql("SELECT attempts FROM queue_message WHERE lock_expires_at > now()")


async def test_a_payload_is_not_fetched_for_who_lost_the_lock(queue: Queue, store: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another relay claimed it meanwhile, so it is not in this batch. It is reported like any lost lock."""
    told: list[Event] = []
    monkeypatch.setattr(store._deferred, "_emit", told.append)
    await queue.sql(INSERT)
    await queue.sql(f"INSERT INTO queue_message (exchange, body) VALUES ('orders', decode(repeat('00', {LARGE + 1}), 'hex'))")
    fetch = store._claims.fetch

    async def taken_over(statement: bytes, values: dict[str, object], *, by_position: bool = False) -> list[tuple[object, ...]]:
        if b"substring" in statement:
            values = {**values, "token": "00000000-0000-7000-8000-000000000001"}
        return await fetch(statement, values, by_position=by_position)

    monkeypatch.setattr(store._claims, "fetch", taken_over)

    assert 3 == len((await store.batch()).claims)
    assert [LockLost((await queue.value("SELECT id::text FROM queue_message WHERE body IS NOT NULL"),))] == told


@pytest.mark.slow
async def test_a_large_content_that_cannot_be_printed_is_given_back_and_rejected(queue: Queue, store: MadeStore) -> None:
    """PostgreSQL reports this only at the fetch. The message is not left locked, so that it can be archived at once.

    Messages behind it are released as if they had not been claimed.
    """
    await queue.sql("ALTER TABLE queue_message ALTER COLUMN content SET STORAGE EXTERNAL")
    await queue.sql(INSERT)
    async with unchecked(queue):
        await queue.sql(
            "INSERT INTO queue_message (exchange, content) "
            "SELECT 'orders', jsonb_agg(to_jsonb('1e131071'::numeric + (n <= 100)::int)) FROM generate_series(1, 9000) AS n"
        )
    assert LARGE < await queue.value("SELECT max(pg_column_size(content)) FROM queue_message")
    await queue.sql(f"INSERT INTO queue_message (exchange, body) VALUES ('orders', decode(repeat('00', {LARGE + 1}), 'hex'))")

    assert 3 == len((await store.batch()).claims)
    with pytest.raises(StoreError) as told:
        await store.take()
    await store.reject_unprintable()

    assert told.value.unprintable
    assert [(0, None, None)] == await queue.sql("SELECT attempts, last_error, lock_token FROM queue_message WHERE body IS NOT NULL")
    assert [("content_unprintable",)] == await queue.sql("SELECT error_code FROM queue_message_dead")
