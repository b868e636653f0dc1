"""A relay's row in `queue_message_relay`: one that lost it enters again."""

from __future__ import annotations

import pytest

from relay.postgres.maintenance_store import PostgresMaintenance
from tests.support.database.queue import MadeStore, Queue

EVERYTHING = "SELECT to_jsonb(r) FROM queue_message_relay r UNION ALL SELECT to_jsonb(l) FROM queue_message_lane l"


async def test_a_relay_that_was_forgotten_enters_again(queue: Queue, store: MadeStore, upkeep: PostgresMaintenance) -> None:
    """A heartbeat that finds no row makes a new one under a new id."""
    before = store.relay_id
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '1 day'")
    await upkeep.sweep_minute()
    assert [] == await queue.sql("SELECT id FROM queue_message_relay")

    await upkeep.heartbeat({"broker": "up"})

    assert before != store.relay_id
    assert [(store.relay_id,)] == await queue.sql("SELECT id FROM queue_message_relay")


async def test_a_relay_whose_id_another_one_has_enters_again(queue: Queue, store: MadeStore, upkeep: PostgresMaintenance) -> None:
    """A standby that took over gives an id out again; the other one's row stays as it is."""
    other = store.relay_id
    await queue.sql("UPDATE queue_message_relay SET name = 'other', started_at = started_at + interval '1 s'")

    await upkeep.heartbeat({"broker": "up"})

    assert other != store.relay_id
    rows = await queue.sql("SELECT id, name, state <> '{}' FROM queue_message_relay WHERE name = 'other'")
    assert [(other, "other", False)] == rows


@pytest.mark.parametrize("holds_locks", [True, False])
async def test_a_relay_that_leaves_takes_nothing_from_another_with_its_id(queue: Queue, store: MadeStore, *, holds_locks: bool) -> None:
    """Before its next heartbeat it does not know that it lost the id: the other one keeps its row and its lanes."""
    await queue.sql("UPDATE queue_message_relay SET name = 'other', started_at = started_at + interval '1 s'")
    await queue.sql("UPDATE queue_message_lane SET owner = %s, lease_expires_at = 'infinity'", store.relay_id)
    before = await queue.sql(EVERYTHING)

    await store.unregister(holds_locks=holds_locks)

    assert before == await queue.sql(EVERYTHING)


@pytest.mark.parametrize("holds_locks", [True, False])
async def test_a_relay_that_leaves_frees_its_lanes(queue: Queue, store: MadeStore, *, holds_locks: bool) -> None:
    """Its row stays only while messages carry its locks."""
    await queue.sql("UPDATE queue_message_lane SET owner = %s, lease_expires_at = 'infinity'", store.relay_id)

    await store.unregister(holds_locks=holds_locks)

    assert [(None,)] == await queue.sql("SELECT DISTINCT owner FROM queue_message_lane")
    assert [({"left": True},)] * holds_locks == await queue.sql("SELECT state FROM queue_message_relay")
