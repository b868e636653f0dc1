"""An INSERT under a key where no trigger fires, as under `session_replication_role = replica`: an error, never an id of nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from psycopg import errors

from relay.client import enqueue_async, enqueue_copy_async
from tests.support.database.keyed import insert
from tests.support.database.queue import Queue

KEYS: dict[str, dict[str, str]] = {
    "dedup": {"dedup_key": "k"}, "coalesce": {"coalesce_key": "k"}, "bundle": {"bundle_key": "k"},
}  # fmt: skip
KEPT = """
    SELECT (SELECT count(*) FROM queue_message), (SELECT count(*) FROM queue_message_keyed_row), (SELECT count(*) FROM queue_message_dedup)
"""
APPLIED = """
    CREATE TABLE shop (id int);
    CREATE FUNCTION enqueue_shop() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO queue_message_keyed (exchange, {0}) VALUES ('orders', 'k'); RETURN NULL; END $$;
    CREATE TRIGGER enqueue_shop AFTER INSERT ON shop FOR EACH ROW EXECUTE FUNCTION enqueue_shop();
    ALTER TABLE shop ENABLE ALWAYS TRIGGER enqueue_shop;
"""


async def by_insert(queue: Queue, keys: dict[str, str]) -> None:
    """As an application inserts."""
    await insert(queue.connection, **keys)


async def by_client(queue: Queue, keys: dict[str, str]) -> None:
    """As the client does."""
    await enqueue_async(queue.connection, {"exchange": "orders", **keys})


async def by_copy(queue: Queue, keys: dict[str, str]) -> None:
    """As the client copies."""

    async def stream() -> AsyncIterator[dict[str, str]]:
        yield {"exchange": "orders", **keys}

    await enqueue_copy_async(queue.connection, stream())


async def by_trigger(queue: Queue, keys: dict[str, str]) -> None:
    """As a trigger does that a subscription fires."""
    await queue.sql("INSERT INTO shop VALUES (1)")


@pytest.mark.parametrize("way", [by_insert, by_client, by_copy, by_trigger])
@pytest.mark.parametrize("kind", KEYS)
async def test_a_message_under_a_key_is_refused_where_no_trigger_fires(
    queue: Queue, kind: str, way: Callable[[Queue, dict[str, str]], Awaitable[None]]
) -> None:
    """The error says why; the same INSERT is taken again once triggers fire."""
    await queue.sql(APPLIED.format(*KEYS[kind]))
    await queue.sql("SET session_replication_role = replica")
    with pytest.raises(errors.InvalidTextRepresentation, match="refuses an INSERT while session_replication_role is replica"):
        await way(queue, KEYS[kind])
    assert [(0, 0, 0)] == await queue.sql(KEPT)

    await queue.sql("SET session_replication_role = origin")
    await way(queue, KEYS[kind])
    assert 1 == sum((await queue.sql(KEPT))[0][:2])


async def test_a_plain_message_is_taken_where_no_trigger_fires(queue: Queue) -> None:
    """No trigger judges it, and it is in the queue."""
    await queue.sql("SET session_replication_role = replica")
    assert [await queue.insert()] == [[str(id_) for (id_,) in await queue.sql("SELECT id FROM queue_message")]]
