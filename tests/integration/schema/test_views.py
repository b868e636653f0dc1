"""The application's face, and what psql shows an operator."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors

from tests.support.database.queue import MadeStore, Queue, until

APP = ["id", "exchange", "routing_key", "content", "body", "options", "ordering_key", "available_at", "expires_at"]
OPERATORS = [
    "queue_message_state",
    "queue_message_dead_list",
    "queue_message_blocked_key",
    "queue_message_relay_state",
    "queue_message_status",
]
PARTS_LOCKED = """
    SELECT l.relation::regclass::text FROM pg_locks l JOIN pg_stat_activity s USING (pid), pg_partition_tree('queue_message_archive') t
    WHERE s.wait_event_type = 'Lock' AND s.application_name = 'operator' AND l.relation = t.relid AND l.granted
"""
COLUMNS = "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"


async def state(queue: Queue, id_: str) -> str:
    """What the view says of a message."""
    return str(await queue.value("SELECT state FROM queue_message_state WHERE id = %s", id_))


@pytest.mark.ids("A2", "B10", "C2")
async def test_the_simple_face_takes_messages(queue: Queue) -> None:
    """Defaults of the table hold, the id comes back, and a second insert of the same id does nothing."""
    assert APP == await queue.value(COLUMNS, "queue_message_app")
    id_ = await queue.value("INSERT INTO queue_message_app (exchange, routing_key, content) VALUES ('e', 'k', '{\"n\": 1}') RETURNING id")
    again = "INSERT INTO queue_message_app (id, exchange) VALUES (%s, 'other') ON CONFLICT (id) DO NOTHING RETURNING id"

    assert [] == await queue.sql(again, id_)
    assert [(1,)] == await queue.sql("SELECT count(*) FROM queue_message_app")
    row = await queue.row(str(id_))
    assert ("e", "k", {"n": 1}, {}, 0) == tuple(row[c] for c in ("exchange", "routing_key", "content", "options", "attempts"))


async def test_the_simple_face_knows_no_locks(queue: Queue) -> None:
    """A column of the relay's is not there to be set."""
    with pytest.raises(errors.UndefinedColumn):
        await queue.sql("INSERT INTO queue_message_app (exchange, lock_expires_at) VALUES ('e', now())")


async def test_the_simple_face_refuses_what_the_table_refuses(queue: Queue) -> None:
    """With the same sentence."""
    with pytest.raises(errors.CheckViolation, match="persistant"):
        await queue.sql("INSERT INTO queue_message_app (exchange, options) VALUES ('e', '{\"persistant\": true}')")


@pytest.mark.ids("D5", "D10")
async def test_a_message_is_found_wherever_it_is(queue: Queue, store: MadeStore) -> None:
    """One view over queue and archive: ready, locked, delayed, the result; with holder, attempts and reason."""
    [id_] = await queue.insert()
    assert "ready" == await state(queue, id_)
    batch = await store.batch()
    assert "locked" == await state(queue, id_)
    name = await queue.value("SELECT name FROM queue_message_relay")
    assert name == await queue.value("SELECT handled_by FROM queue_message_state")
    await queue.sql("UPDATE queue_message SET lock_expires_at = NULL, lock_token = NULL, locked_by = NULL, last_error = 'no route', "
                    "available_at = now() + interval '1 h'")  # fmt: skip
    assert "delayed" == await state(queue, id_)
    assert [(1, "no route")] == await queue.sql("SELECT attempts, error_detail FROM queue_message_state")
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', 'no_route', 'no queue takes it', 'r')", id_)
    found = await queue.sql(
        "SELECT state, error_code, error_detail, attempts, xid::text::bigint, seq FROM queue_message_state WHERE id = %s", id_
    )
    assert [("failed", "no_route", "no queue takes it", 1, *batch.claims[0].position)] == found


async def test_the_state_of_one_message_is_found_by_index(queue: Queue) -> None:
    """No partition and no queue is walked for it."""
    await queue.insert(2000)
    await queue.sql("ANALYZE queue_message")
    await queue.sql("SET enable_seqscan = off")
    plan = await queue.sql(f"EXPLAIN SELECT * FROM queue_message_state WHERE id = '{uuid4()}'")
    assert [] == [line for (line,) in plan if "Seq Scan on queue_message_archive" in line or "Seq Scan on queue_message " in line]


@pytest.mark.ids("D5")
async def test_the_status_counts(queue: Queue, store: MadeStore) -> None:
    """Waiting is locked, delayed and ready together; dead ones count until they are answered."""
    empty = await queue.value("SELECT to_jsonb(s) FROM queue_message_status s")
    assert (0, 0, 1) == (empty["waiting"], empty["oldest_seconds"], empty["relays_alive"])
    await queue.insert(3)
    await store.batch(limit=1)
    await queue.insert(available_at="2999-01-01")
    [dead] = await queue.insert()
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', 'x', 'x', 'r'), queue_message_pause('e')", dead)
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '1 h'")

    status = await queue.value("SELECT to_jsonb(s) FROM queue_message_status s")

    expected = {
        "waiting": 4, "locked": 1, "delayed": 1, "scheduled": 1, "retrying": 0, "ready": 2, "counted": True,
        "dead_unacknowledged": 1, "blocked_keys": 0,
        "paused_exchanges": 1, "relays_alive": 0, "partition_days_ahead": 7, "notification_queue_usage": 0,
        "export_lag_seconds": None, "export_unverified_days": None, "export_differing_partitions": 0,
    }  # fmt: skip
    assert expected == {name: status[name] for name in expected}
    assert 0 <= status["oldest_seconds"] < 60


async def test_a_message_that_is_available_since_long_ago_is_as_old_as_its_row(queue: Queue) -> None:
    """A producer's mistake does not hide how far the relay is behind: another message that has waited longer counts."""
    await queue.insert(available_at="0001-01-02")
    await queue.sql("SET session_replication_role = replica")
    assert 0 <= await queue.value("SELECT oldest_seconds FROM queue_message_status") < 60
    await queue.insert(available_at=await queue.value("SELECT now() - interval '1 h'"))
    await queue.sql("UPDATE queue_message SET created_at = now() - interval '2 h' WHERE available_at > '2000-01-01'")
    assert 3600 <= await queue.value("SELECT oldest_seconds FROM queue_message_status") < 3660


async def test_blocked_keys_are_shown_with_what_waits_behind(queue: Queue) -> None:
    """Parked ones, and those whose head waits for its next attempt; a key in flight is not blocked."""
    heads = {key: (await queue.insert(2, ordering_key=key))[0] for key in ("parked", "waits", "flows")}
    await queue.sql("SELECT queue_message_key_park('parked', 'why', 'ann')")
    await queue.sql("UPDATE queue_message SET available_at = now() + interval '1 h', last_error = 'no route' WHERE id = %s", heads["waits"])
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 h' WHERE id = %s", heads["flows"])

    blocked = "SELECT ordering_key, why, head_id::text, behind, last_error, held_by, reason FROM queue_message_blocked_key ORDER BY 1"
    assert [
        ("parked", "parked", heads["parked"], 1, None, f"{await queue.value('SELECT session_user::text')} (as ann)", "why"),
        ("waits", "head waits", heads["waits"], 1, "no route", None, None),
    ] == await queue.sql(blocked)


async def test_keys_of_a_paused_exchange_are_shown_with_the_pause(queue: Queue) -> None:
    """Whose head the pause holds: not one in flight, not one that waits anyway, and none that only follows in it."""
    heads = {key: (await queue.insert(2, exchange="audit", ordering_key=key))[0] for key in ("", "a", "flies", "parked", "waits")}
    await queue.insert(exchange="orders", ordering_key="first")
    await queue.insert(exchange="audit", ordering_key="first")
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 h' WHERE id = %s", heads["flies"])
    await queue.sql("UPDATE queue_message SET available_at = now() + interval '1 h' WHERE id = %s", heads["waits"])
    await queue.sql("UPDATE queue_message SET available_at = now() - interval '1 h' WHERE id = %s", heads["a"])
    await queue.sql("SELECT queue_message_key_park('parked')")
    blocked = "SELECT ordering_key, why, head_id::text, behind, reason FROM queue_message_blocked_key ORDER BY 1"
    others = [("parked", "parked", heads["parked"], 1, ""), ("waits", "head waits", heads["waits"], 1, None)]
    assert others == await queue.sql(blocked)

    await queue.sql("SELECT queue_message_pause('audit', 'upgrade')")

    held = [(key, "exchange paused", heads[key], 1, "upgrade") for key in ("", "a")]
    assert [*held, *others] == await queue.sql(blocked)
    assert 2 == await queue.value("SELECT blocked_keys FROM queue_message_status")


async def test_relays_are_shown_alive_or_silent(queue: Queue, store: MadeStore) -> None:
    """With their lanes and what they say of themselves."""
    lanes = await store.keep_lanes()
    await queue.sql('UPDATE queue_message_relay SET state = \'{"broker": "up"}\'')
    [(id_, alive, shown, said)] = await queue.sql("SELECT id, alive, lanes, state FROM queue_message_relay_state")
    assert (store.relay_id, True, len(lanes), {"broker": "up"}) == (id_, alive, shown, said)
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '31 s'")
    assert [(False, 0, {}, 0)] == await queue.sql("SELECT alive, lanes, state, kept FROM queue_message_relay_state")


async def test_operators_see_no_contents(queue: Queue) -> None:
    """No view of theirs has a column of content, body or options."""
    for view in OPERATORS:
        assert not {"content", "body", "options", "headers"} & set(await queue.value(COLUMNS, view))


async def test_a_large_queue_is_not_counted_row_by_row(queue: Queue, store: MadeStore) -> None:
    """Beyond 128 MB the number comes from the statistics, and the locks from what living relays say and silent ones have kept."""
    await queue.insert(20, content=json.dumps({"n": "x" * 100}))
    await store.batch(limit=5)
    await store.heartbeat('{"in_flight": 7}')
    definition = await queue.value("SELECT pg_get_functiondef('queue_message_count'::regproc)")
    await queue.sql(str(definition).replace("128 * 1024 * 1024", "1"))
    await queue.sql("ANALYZE queue_message")
    await queue.sql("SELECT pg_stat_clear_snapshot(), pg_stat_force_next_flush()")

    assert [(False, 7)] == await queue.sql("SELECT counted, locked FROM queue_message_status")
    await queue.sql("UPDATE queue_message_relay SET heartbeat_at = now() - interval '31 s'")
    assert [(False, 5)] == await queue.sql("SELECT counted, locked FROM queue_message_status")


async def test_the_oldest_is_the_oldest_that_could_go(queue: Queue) -> None:
    """Neither a locked message nor one that waits for its time."""
    old, young = [*await queue.insert(), *await queue.insert()]
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 h' WHERE id = %s", old)
    expected = await queue.value("SELECT created_at FROM queue_message WHERE id = %s", young)
    assert expected == await queue.value("SELECT queue_message_oldest()")


async def test_scheduled_messages_hide_no_age(queue: Queue, store: MadeStore) -> None:
    """Behind very many of them, as any producer may insert them, the oldest message seems older, not younger; without any there is none."""
    await store.heartbeat("{}")
    await queue.sql("UPDATE queue_message_relay SET low_xid = '1', low_seq = 0, head_xid = '1', head_seq = 0, top_xid = '1', top_seq = 0")
    scheduled = "INSERT INTO queue_message (exchange, available_at) SELECT 'e', now() + interval '30 days' FROM generate_series(1, %s)"
    await queue.sql(scheduled, 9_000)
    assert await queue.value("SELECT queue_message_oldest()") is None
    await queue.sql(scheduled, 1_001)
    [hidden] = await queue.insert()
    await queue.sql(scheduled, 10_001)
    assert await queue.value("SELECT queue_message_oldest() <= created_at FROM queue_message WHERE id = %s", hidden)


@pytest.mark.ids("A26")
@pytest.mark.parametrize("view", ["queue_message_status", "queue_message_state", "queue_message_recent"])
async def test_a_view_locks_the_archive_before_its_parts(queue: Queue, view: str) -> None:
    """Who locks the archive takes the whole first and then its parts; a view in another order would be a deadlock with it."""
    async with (
        await psycopg.AsyncConnection.connect(queue.url, autocommit=True, application_name="operator") as operator,
        await psycopg.AsyncConnection.connect(queue.url) as other,
    ):
        await other.execute("LOCK TABLE ONLY queue_message_archive IN ACCESS EXCLUSIVE MODE")
        read = asyncio.create_task(operator.execute(f"SELECT * FROM {view}".encode()))
        await until(lambda: queue.is_held_up("operator"))
        assert [] == await queue.sql(PARTS_LOCKED)
        await other.rollback()
        await read
