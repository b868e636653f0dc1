"""Texts that PostgreSQL's hash does not distinguish cost as much as others: what is foreign is sorted, or hashed with a seed."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from relay.claims.intake import PAST
from relay.ports import Sought
from tests.support.database.equal_hashes import texts_of_one_hash
from tests.support.database.keyed import fold, unhurried
from tests.support.database.queue import MadeStore, Queue

COUNT = 3000
"""Hashed, so many are compared 4,500,000 times."""
TIMES = 4
"""As long as for other texts, at the most. Measured: 0.6 to 2; hashed 5 to 24."""
KEYED = "INSERT INTO queue_message_keyed (exchange, {kind}) SELECT 'orders', key FROM unnest(%s::text[]) AS key"
LEAVE = "SELECT queue_message_keyed_leave(%s, now() + interval '1 min', 10000, '-infinity')"
DUE = "INSERT INTO queue_message (exchange, available_at) SELECT name, now() FROM unnest(%s::text[]) AS name"
DELAYED = (
    "INSERT INTO queue_message (exchange, ordering_key, available_at) SELECT 'orders', key, '2199-1-1Z' FROM unnest(%s::text[]) AS key"
)


@pytest.fixture(scope="module")
def alike() -> Sequence[str]:
    """Texts with one hash."""
    return texts_of_one_hash(COUNT)


SORTS = pytest.mark.parametrize("sorts", ["on", "off"])
OTHERS = [f"{number:024}" for number in range(COUNT)]


@pytest.mark.parametrize("kind", ["coalesce_key", "bundle_key"])
@SORTS
async def test_a_fold_sorts_keys(queue: Queue, alike: Sequence[str], sorts: str, kind: str) -> None:
    """Whichever keys producers choose, and also in the sessions of relays, which avoid sorts where an index has the order."""
    await queue.sql(f"SET enable_sort = {sorts}")
    assert [(1,)] == await queue.sql("SELECT count(DISTINCT hashtext(key)) FROM unnest(%s::text[]) AS key", alike)
    await unhurried(queue)
    seconds = []
    for keys in (OTHERS, alike):
        await queue.sql(KEYED.format(kind=kind), [*keys])
        began = time.monotonic()
        assert COUNT == await fold(queue, "1 min")
        seconds.append(time.monotonic() - began)
    assert seconds[1] < TIMES * seconds[0], seconds


async def test_keys_that_begin_small_and_become_large_are_sorted(queue: Queue, alike: Sequence[str]) -> None:
    """To find those of a call among all that are due costs about as much as to fold them."""
    await unhurried(queue)
    await queue.sql(KEYED.format(kind="bundle_key"), [*alike])
    began = time.monotonic()
    assert COUNT == await fold(queue, "1 min")
    folded = time.monotonic() - began
    await queue.sql(KEYED.format(kind="bundle_key"), [*alike])
    of_the_call = [seq for (seq,) in await queue.sql("SELECT seq FROM queue_message_keyed_row")]
    await queue.sql(KEYED.format(kind="bundle_key"), [*alike])
    began = time.monotonic()
    await queue.sql(LEAVE, of_the_call)
    assert time.monotonic() - began < TIMES * folded
    assert 2 * COUNT == await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE large")


@SORTS
async def test_reasons_of_retries_are_sorted(queue: Queue, alike: Sequence[str], sorts: str) -> None:
    """Exchanges are foreign text."""
    await queue.sql(f"SET enable_sort = {sorts}")
    seconds = []
    for names in (OTHERS, alike):
        await queue.sql("TRUNCATE queue_message")
        await queue.sql(
            "INSERT INTO queue_message (exchange, available_at) SELECT name, '2199-1-1Z' FROM unnest(%s::text[]) AS name", [*names]
        )
        await queue.sql("UPDATE queue_message SET last_error = 'nacked: no', attempts = 1")
        began = time.monotonic()
        assert COUNT == await queue.value("SELECT count(*) FROM queue_message_retrying()")
        seconds.append(time.monotonic() - began)
    assert seconds[1] < TIMES * seconds[0], seconds


@pytest.mark.parametrize("look", ["SELECT blocked_keys FROM queue_message_status", "SELECT count(*) FROM queue_message_blocked(20, false)",
    "SELECT count(*) FROM queue_message_check_page('0', 0) WHERE head"])  # fmt: skip
@SORTS
async def test_a_look_at_waiting_keys_sorts_them(queue: Queue, alike: Sequence[str], sorts: str, look: str) -> None:
    """Those of the status, of the keys that wait, and of the check."""
    await queue.sql(f"SET enable_sort = {sorts}")
    seconds = []
    for keys in (OTHERS, alike):
        await queue.sql("TRUNCATE queue_message")
        await queue.sql(DELAYED, [*keys])
        began = time.monotonic()
        assert [(COUNT,)] == await queue.sql(look)
        seconds.append(time.monotonic() - began)
    assert seconds[1] < TIMES * seconds[0], seconds


async def test_the_view_of_recent_routing_keys_sorts_them(queue: Queue, alike: Sequence[str]) -> None:
    """`relay contract` reads it."""
    seconds = []
    for keys in (OTHERS, alike):
        await queue.sql("TRUNCATE queue_message_archive")
        await queue.sql("INSERT INTO queue_message (exchange, routing_key) SELECT 'orders', key FROM unnest(%s::text[]) AS key", [*keys])
        await queue.sql("SELECT queue_message_archive_now(array_agg(id), 'failed', 'expired', NULL, 'relay') FROM queue_message")
        began = time.monotonic()
        assert COUNT == len(await queue.sql("SELECT * FROM queue_message_recent_key"))
        seconds.append(time.monotonic() - began)
    assert seconds[1] < TIMES * seconds[0], seconds


async def test_a_scan_leaves_out_crowded_exchanges_by_a_hash_with_a_seed(queue: Queue, store: MadeStore, alike: Sequence[str]) -> None:
    """A relay remembers thousands of exchanges, which need not exist."""
    seconds = []
    for names in (OTHERS, alike):
        await queue.sql("TRUNCATE queue_message")
        await queue.sql(DUE, [*names, "other"])
        pages = [await store.scan_due(after=PAST, sought=Sought([], [*names], [])) for _ in range(3)]
        seconds.append(min(page.seconds for page in pages))
        assert [["other"]] * 3 == [[finding.exchange for finding in page.findings] for page in pages]
    assert seconds[1] < TIMES * seconds[0], seconds
