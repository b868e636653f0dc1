"""What a claim takes at most, in bytes of memory and not of compressed rows."""

from __future__ import annotations

import pytest

from tests.support.database.queue import MadeStore, Queue

MEGABYTE = 1 << 20
WINDOW_BYTES = 64 * MEGABYTE
LARGE = 4 * MEGABYTE
COUNT = 40
INSERT = f"INSERT INTO queue_message (exchange, content) SELECT 'orders', {{}} FROM generate_series(1, {COUNT})"
CONTENTS = {
    "one letter": f"jsonb_build_object('text', repeat('x', {LARGE}))",
    "a log": f"jsonb_build_object('text', repeat('2026-01-01 12:00:00 INFO order 17 placed by customer 4711; ', {LARGE // 58}))",
    "many small values": f"(SELECT jsonb_agg(jsonb_build_object('order', 17, 'state', 'placed')) FROM generate_series(1, {LARGE // 34}))",
}


@pytest.mark.parametrize("compression", ["pglz", "lz4"])
@pytest.mark.parametrize("kind", CONTENTS)
async def test_compressed_content_counts_as_what_it_takes_in_memory(queue: Queue, store: MadeStore, compression: str, kind: str) -> None:
    """Forty times four megabytes are stored in little space, and claimed in several batches that each fit the window."""
    if compression not in await queue.value("SELECT enumvals::text FROM pg_settings WHERE name = 'default_toast_compression'"):
        pytest.skip(f"this PostgreSQL is built without {compression}")
    await queue.sql(f"ALTER TABLE queue_message ALTER COLUMN content SET COMPRESSION {compression}")
    await queue.sql(INSERT.format(CONTENTS[kind]))
    assert await queue.value("SELECT sum(pg_column_size(content)) FROM queue_message") < WINDOW_BYTES

    claimed = []
    while batch := (await store.take(limit=500, limit_bytes=WINDOW_BYTES)).batch:
        claimed.append(batch.size)

    assert COUNT * LARGE * 0.9 < sum(claimed)
    assert max(claimed) <= WINDOW_BYTES + LARGE * 1.25


@pytest.mark.parametrize("letters", ["repeat('x', 100000)", "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 3000) AS n)"])
async def test_headers_count_as_what_they_take_in_memory(queue: Queue, store: MadeStore, letters: str) -> None:
    """This holds even where they compress well: a few messages fill a window of a megabyte. Messages in flight count with headers too."""
    await queue.sql(
        "INSERT INTO queue_message (exchange, body, options) SELECT 'orders', 'x',"
        f" jsonb_build_object('headers', jsonb_build_object('note', {letters})) FROM generate_series(1, 60)"
    )
    claimed = []
    while batch := (await store.take(limit=500, limit_bytes=MEGABYTE)).batch:
        plain = sum(len(claim.payload) + len(claim.options or b"") for claim in batch.claims)
        assert plain < batch.size < plain + 2000 * len(batch.claims)
        claimed.append(batch)

    assert 60 == sum(len(batch.claims) for batch in claimed)
    assert max(batch.size for batch in claimed) <= MEGABYTE + 103_000
