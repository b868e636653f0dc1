"""Triggers of the application's that meet the release of expired locks, or the archive of what has no attempt left."""

from __future__ import annotations

import pytest

from relay import events
from tests.support.database.queue import MadeStore, MakeStore, Queue

WRITES_LOG = """
    CREATE TABLE log_of_the_application (id uuid);
    CREATE FUNCTION write_log() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
    BEGIN INSERT INTO log_of_the_application VALUES (NEW.id); RETURN NEW; END $$;
    CREATE TRIGGER write_log BEFORE {} FOR EACH ROW EXECUTE FUNCTION write_log();
"""
"""A trigger that finds its table by a search path of its own."""
REFUSES = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; END $$;
    CREATE TRIGGER refuse BEFORE {} FOR EACH ROW WHEN ({}) EXECUTE FUNCTION refuse();
"""
RELEASED = "UPDATE ON queue_message", "NEW.lock_expires_at IS NULL AND NEW.id = '{}'"
FREED = "SELECT count(*) FROM queue_message WHERE lock_expires_at IS NULL"


async def exhaust(queue: Queue, id_: str) -> None:
    """Let this message have no attempt left."""
    await queue.sql("SET session_replication_role = replica")
    await queue.sql("UPDATE queue_message SET attempts = 12 WHERE id = %s", id_)
    await queue.sql("SET session_replication_role = origin")


async def test_a_trigger_that_lets_the_claim_through_lets_the_release_through(queue: Queue, store: MadeStore) -> None:
    """Its names mean in the release what they meant in the claim."""
    await queue.insert(4)
    await queue.sql(WRITES_LOG.format("UPDATE ON queue_message"))
    await store.batch()
    await queue.expire()

    assert (4, 0) == await store.sweep()

    assert 4 == await queue.value(FREED)


@pytest.mark.parametrize(
    ("act", "error"),
    [("RAISE EXCEPTION 'not this one'", "not this one"), ("RETURN NULL", "A trigger of queue_message skips the UPDATE without an error.")],
)
async def test_a_refused_release_is_reported_and_keeps_no_other_locked(queue: Queue, make_store: MakeStore, act: str, error: str) -> None:
    """Once a minute, with its words."""
    logged: list[events.Event] = []
    store = make_store(emit=logged.append)
    ids = await queue.insert(4)
    await store.batch()
    await queue.sql(REFUSES.format(act, RELEASED[0], RELEASED[1].format(ids[1])))
    await queue.expire()

    assert [(3, 0), (0, 0)] == [await store.sweep() for _ in range(2)]

    assert [events.MessageRefused(ids[1], "orders", error)] == logged


async def test_errors_that_repeat_megabytes_keep_no_lock_from_being_freed(queue: Queue, make_store: MakeStore) -> None:
    """However many messages are refused in one page, and however much each error says: a bounded part of its words is kept."""
    logged: list[events.Event] = []
    store = make_store(emit=logged.append)
    ids = await queue.insert(301)
    await store.batch(limit=301)
    raises = "RAISE EXCEPTION '%', repeat('é', 500000)"
    await queue.sql(REFUSES.format(raises, RELEASED[0], f"NEW.lock_expires_at IS NULL AND NEW.id <> '{ids[300]}'"))
    await queue.expire()

    assert (1, 0) == await store.sweep()

    [first] = {event.error for event in logged if isinstance(event, events.MessageRefused)}
    assert "é" * 1000 == first


@pytest.mark.parametrize("state", ["P0001", "AB123", "42P01", "XX000", "55006", "40001", None])
@pytest.mark.parametrize("by", ["scrub", "minute"])
async def test_a_dead_message_that_the_archive_refuses_keeps_no_lock_from_being_freed(
    queue: Queue, make_store: MakeStore, state: str | None, by: str
) -> None:
    """Whatever SQLSTATE its trigger raises, or where it skips the row; the scrub reports the message, and it stays."""
    logged: list[events.Event] = []
    store = make_store(emit=logged.append)
    ids = await queue.insert(4)
    await store.batch()
    await exhaust(queue, ids[0])
    refuses = f"RAISE EXCEPTION 'not archived' USING ERRCODE = '{state}'" if state else "RETURN NULL"
    words = "not archived" if state else "A trigger of queue_message_archive skips the INSERT without an error."
    await queue.sql(REFUSES.format(refuses, "INSERT ON queue_message_dead", "true"))
    await queue.expire()

    if by == "scrub":
        assert (3, 0) == await store.sweep()
        [told] = logged
        assert isinstance(told, events.MessageRefused)
        assert (ids[0], "orders") == (told.id, told.exchange)
        assert words in told.error
    else:
        await queue.sql("SELECT queue_message_sweep_minute()")

    assert 3 == await queue.value(FREED)
    assert 4 == await queue.waiting()


async def test_a_dead_message_goes_to_the_archive_past_one_that_is_refused(queue: Queue, store: MadeStore) -> None:
    """A trigger with a wrong name is the fault of the messages that it is for."""
    ids = await queue.insert(2)
    await store.batch()
    for id_ in ids:
        await exhaust(queue, id_)
    act = "INSERT INTO missing VALUES (1); RETURN NEW"
    await queue.sql(REFUSES.format(act, "INSERT ON queue_message_archive", f"NEW.id = '{ids[0]}'"))
    await queue.expire()

    assert (0, 1) == await store.sweep()

    assert [ids[1]] == [*await queue.results()]
