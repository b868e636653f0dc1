"""Claims over a network of a few megabytes a second: locks hold until the payloads are there, and no other relay waits for them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from relay.engine.policy import Policy
from relay.errors import NewConnectionError, StoreError
from relay.postgres.payload_fetcher import LARGE
from tests.support.database.queue import PLENTY, MadeStore, MakeStore, Queue, unchecked
from tests.support.network.proxy import Proxy

MIB = 1 << 20
BODY = "INSERT INTO queue_message (exchange, body) SELECT 'orders', decode(repeat('ab', %s), 'hex') FROM generate_series(1, %s)"
SHORT = Policy(lock_seconds=3, max_body_bytes=64 * MIB)


async def heartbeats(store: MadeStore) -> list[float]:
    """Report at once and again and again; return how long each took when cancelled."""
    took: list[float] = []
    try:
        while True:
            began = time.monotonic()
            await store.heartbeat("{}")
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        return took


@pytest.mark.slow
@pytest.mark.ids("C9")
async def test_a_payload_may_take_longer_than_its_lock(queue: Queue, make_store: MakeStore, database_url: str) -> None:
    """20 MB at 2 MB a second under a lock of 3 s are claimed once and freed by no relay. The relay reports itself all the while."""
    await queue.sql(BODY, 20 * MIB, 1)
    other = make_store("other", policy=SHORT)
    await other.register()
    async with Proxy.before(database_url) as proxy:
        store = make_store("slow", policy=SHORT, url=proxy.url(database_url))
        await store.register()
        proxy.rate = 2 * MIB
        reporting = asyncio.create_task(heartbeats(store))
        claiming = asyncio.create_task(store.batch())
        while not (await asyncio.wait((claiming,), timeout=0.3))[0]:
            assert (0, 0) == await other.sweep()
            assert [] == await other.ids() + await other.found_ids() + await other.found_ids("suspect")
        batch = claiming.result()
        left = batch.deadline - time.monotonic()
        reporting.cancel()
        took = await reporting
        proxy.rate = 0
        await store.aclose()

    assert [20 * MIB] == [len(claim.payload) for claim in batch.claims]
    assert left > 0, "it is handed on with time to send it"
    assert [(1, True)] == await queue.sql("SELECT attempts, lock_expires_at > now() FROM queue_message")
    assert len(took) > 5, f"the relay did not report itself meanwhile: {took}"


@pytest.mark.slow
@pytest.mark.ids("C9")
async def test_options_may_take_longer_than_their_lock(queue: Queue, make_store: MakeStore, database_url: str) -> None:
    """3 MB of digits at half a megabyte a second under a lock of 3 s come in pieces, behind a large payload, and whole."""
    payload = LARGE + 1
    numbers = "(SELECT jsonb_agg((m || 'e-300')::numeric) FROM generate_series(1, 10000) AS m)"
    options = f"jsonb_build_object('headers', jsonb_build_object('a', {numbers}))"
    async with unchecked(queue):
        await queue.sql(
            f"INSERT INTO queue_message (exchange, body, options) SELECT 'orders', convert_to(repeat('x', %s), 'UTF8'), {options}", payload
        )
    async with Proxy.before(database_url) as proxy:
        store = make_store("slow", policy=SHORT, url=proxy.url(database_url))
        await store.register()
        proxy.rate = MIB // 2
        reporting = asyncio.create_task(heartbeats(store))
        batch = await store.batch()
        left = batch.deadline - time.monotonic()
        reporting.cancel()
        took = await reporting
        proxy.rate = 0
        await store.aclose()

    assert left > 0, "it is handed on with time to send it"
    [claim] = batch.claims
    assert b"x" * payload == claim.payload
    assert await queue.value("SELECT options::text FROM queue_message") == (claim.options or b"").decode()
    assert [(1, True)] == await queue.sql("SELECT attempts, lock_expires_at > now() FROM queue_message")
    assert len(took) > 5, f"the relay did not report itself meanwhile: {took}"


@pytest.mark.slow
async def test_payloads_for_which_a_lock_leaves_no_time_go_back_as_if_never_claimed(
    queue: Queue, make_store: MakeStore, database_url: str
) -> None:
    """Other relays may have them; what is there goes out meanwhile."""
    await queue.sql(BODY, 10, 2)
    await queue.sql(BODY, LARGE + 1, 3)
    async with Proxy.before(database_url) as proxy:
        store = make_store("slow", policy=SHORT, url=proxy.url(database_url))
        await store.register()
        proxy.rate = 2 * MIB
        batch = await store.batch()
        proxy.rate = 0
        await store.aclose()

    assert [10, 10, LARGE + 1] == [len(claim.payload) for claim in batch.claims]
    assert [(0, None, True)] * 2 == await queue.sql(
        "SELECT attempts, last_error, available_at IS NOT NULL FROM queue_message WHERE lock_token IS NULL"
    )


@pytest.mark.slow
async def test_a_claim_that_cannot_arrive_in_time_is_followed_by_smaller_ones(
    queue: Queue, make_store: MakeStore, database_url: str
) -> None:
    """Else the same claim would be undone and asked for again for ever.

    One whose answer fits the buffers on the way is committed all the same: its locks end, and a scan finds its messages.
    """
    await queue.sql(BODY, LARGE - 4096, 4)
    other = make_store("other", policy=SHORT)
    await other.register()
    async with Proxy.before(database_url) as proxy:
        store = make_store("slow", policy=SHORT, url=proxy.url(database_url))
        await store.register()
        proxy.rate = MIB
        with pytest.raises(StoreError) as told:
            await store.take()
        async with asyncio.timeout(60):
            batch = None
            while batch is None:
                await other.sweep()
                with suppress(StoreError):
                    batch = (await store.take()).batch or (await store.found("suspect")).batch
        left = batch.deadline - time.monotonic()
        proxy.rate = 0
        await store.aclose()

    assert told.value.unanswered
    assert left > 0, "it is handed on with time to send it"
    assert {LARGE - 4096} == {len(claim.payload) for claim in batch.claims}


@pytest.mark.slow
async def test_a_claim_that_arrives_late_is_renewed_and_followed_by_smaller_ones(
    queue: Queue, make_store: MakeStore, database_url: str
) -> None:
    """Within its patience and past its deadline: it would go back unsent, to be claimed again the same way for ever."""
    await queue.sql(BODY, LARGE - 1024, 2)
    async with Proxy.before(database_url) as proxy:
        store = make_store("slow", policy=SHORT, url=proxy.url(database_url))
        await store.register()
        proxy.rate = int(LARGE / 2.8)  # past the deadline of 2.4 seconds, within the lock
        late = await store.batch(limit=1)
        left = late.deadline - time.monotonic()
        proxy.rate = 0
        smaller = await store.batch()
        await store.aclose()

    assert [LARGE - 1024] == [len(claim.payload) for claim in late.claims]
    assert left > 0, "it is handed on with time to send it"
    assert [LARGE - 1024] == [len(claim.payload) for claim in smaller.claims]


@pytest.mark.parametrize(("different", "times", "count"), [(1, 200, 2000), (120, 65, 500)])
async def test_claims_of_compressed_contents_grow_again_too(queue: Queue, store: MadeStore, different: int, times: int, count: int) -> None:
    """The database takes them for a hundred times their stored size, so what they bring says nothing of what might come.

    Those of the second kind do not travel with claims that are small, and fit one piece.
    """
    text = "repeat((SELECT string_agg(md5(n || ' ' || m), '') FROM generate_series(1, %s) m), %s)"
    await queue.sql(
        f"INSERT INTO queue_message (exchange, content) SELECT 'orders', jsonb_build_object('text', {text}) FROM generate_series(1, %s) n",
        different, times, count,
    )  # fmt: skip
    usual = len((await store.batch()).claims)
    for _ in range(5):
        store._deferred.pace.too_slow()
    lengths = [len((await store.batch()).claims) for _ in range(12)]
    assert lengths[0] < usual / 10
    assert usual == max(lengths)


@pytest.mark.slow
async def test_connections_that_are_made_slowly_make_no_claim_smaller(queue: Queue, make_store: MakeStore, database_url: str) -> None:
    """They take longer than half of the lock, and the claim itself does not: the lock is renewed, and the next claim may bring as much."""
    await queue.insert()
    async with Proxy.before(database_url) as proxy:
        store = make_store("far", policy=Policy(lock_seconds=10), url=proxy.url(database_url))
        await store.register()
        await store.aclose()
        proxy.delay = 0.15
        began = time.monotonic()
        with pytest.raises(NewConnectionError):
            await store.batch()
        batch = await store.batch()
        took = time.monotonic() - began
        left = batch.deadline - time.monotonic()
        proxy.delay = 0
        await store.aclose()

    assert took > 4.0, "the claim waited for its connections"
    assert left > 0, "it is handed on with time to send it"
    assert PLENTY == store._deferred.pace.of_claim(PLENTY)
