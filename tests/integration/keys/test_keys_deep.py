"""Contents of very many levels under keys: what the INSERT accepts is sent, and other keys do not wait for it."""

from __future__ import annotations

import pytest

from tests.support.database.keyed import contents, fates, fold, keyed, unhurried
from tests.support.database.queue import Queue

DEEP = "(repeat('[', {0}) || repeat(']', {0}))::jsonb"
ACCEPTED = 8150
"""Levels that content of 64 KiB may have; PostgreSQL needs 8 bytes for each."""
REFUSING = """
    CREATE FUNCTION refuse_long() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF jsonb_array_length(NEW.content) > 2 THEN
            RAISE EXCEPTION 'content is too long' USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, COLUMN = 'content';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER refuse_long BEFORE INSERT ON queue_message FOR EACH ROW WHEN (NEW.exchange = 'x') EXECUTE FUNCTION refuse_long()
"""


async def test_deep_parts_are_folded_together(queue: Queue) -> None:
    """200 parts of 7,000 levels, 2.8 MB, took minutes: the queue refused them together, and each call divided them again."""
    await unhurried(queue)
    parts = f"SELECT 'x', 'b', {DEEP.format(7000)} FROM generate_series(1, 200)"
    await queue.sql(f"INSERT INTO queue_message_keyed (exchange, bundle_key, content) {parts}")

    assert 200 == await fold(queue, "1 min")

    assert {"bundled"} == {code for _, code, _ in (await fates(queue)).values()}
    assert await queue.waiting() < 20


@pytest.mark.parametrize(("levels", "large"), [(1500, False), (2500, True)])
async def test_deep_parts_wait_with_the_large_ones(queue: Queue, levels: int, large: bool) -> None:
    """They have little text, but take a fold as long as large ones do."""
    await queue.sql(f"INSERT INTO queue_message_keyed (exchange, bundle_key, content) VALUES ('x', 'b', {DEEP.format(levels)})")

    assert large is await queue.value("SELECT large FROM queue_message_keyed_row")


@pytest.mark.parametrize("kind", ["dedup_key", "coalesce_key", "bundle_key"])
@pytest.mark.parametrize("levels", [6500, ACCEPTED])
async def test_what_the_insert_accepts_is_sent_and_sent_again(queue: Queue, kind: str, levels: int) -> None:
    """The stored content is compressed, and was refused then."""
    await queue.sql(f"INSERT INTO queue_message_keyed (exchange, {kind}, content) VALUES ('x', 'k', {DEEP.format(levels)})")
    await fold(queue, "1 min")
    [(id_,)] = await queue.sql("SELECT id FROM queue_message")

    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', NULL, NULL, 'r')", id_)
    await queue.sql("SELECT queue_message_replay(%s)", id_)

    assert 1 == await queue.waiting()


async def test_a_bundle_that_has_to_be_divided_waits_with_the_large_ones(queue: Queue) -> None:
    """Each call divides it again, so small keys would wait for that; all parts are sent in the same call, in order."""
    await queue.sql(REFUSING)
    for number in range(8):
        await keyed(queue, exchange="x", bundle_key="b", content=number)
    await keyed(queue, exchange="y", coalesce_key="c", content="small")
    await queue.sql("UPDATE queue_message_keyed_row SET due_at = due_at - interval '1 min' WHERE exchange = 'x'")

    assert 9 == await fold(queue, "1 min")

    assert ["small", [0, 1], [2, 3], [4, 5], [6, 7]] == await contents(queue)
