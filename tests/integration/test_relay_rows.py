"""A relay's row in `queue_message_relay`: one that lost it enters again."""

from __future__ import annotations

from relay.postgres.upkeep import Upkeep
from tests.support.queue import MadeStore, Queue


async def test_a_relay_that_was_forgotten_enters_again(queue: Queue, store: MadeStore, upkeep: Upkeep) -> None:
    """A heartbeat that finds no row makes a new one under a new id."""
    before = store.relay_id
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '1 day'")
    await upkeep.sweep_minute()
    assert [] == await queue.sql("SELECT id FROM queue_message_relay")

    await upkeep.heartbeat({"broker": "up"})

    assert before != store.relay_id
    assert [(store.relay_id,)] == await queue.sql("SELECT id FROM queue_message_relay")


async def test_a_relay_whose_id_another_one_has_enters_again(queue: Queue, store: MadeStore, upkeep: Upkeep) -> None:
    """A standby that took over gives an id out again; the other one's row stays as it is."""
    other = store.relay_id
    await queue.sql("UPDATE queue_message_relay SET name = 'other', started_at = started_at + interval '1 s'")

    await upkeep.heartbeat({"broker": "up"})

    assert other != store.relay_id
    rows = await queue.sql("SELECT id, name, state <> '{}' FROM queue_message_relay WHERE name = 'other'")
    assert [(other, "other", False)] == rows
