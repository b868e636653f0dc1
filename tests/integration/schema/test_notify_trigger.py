"""Hints: while a relay is idle, always, or never; and never at the cost of the session that inserts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from relay.postgres.schema.migrate import migrate
from tests.support.database.queue import Queue, until

MARK = "SELECT pg_notify('queue_message_notify', 'end')"
Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
async def relay(database_url: str) -> AsyncIterator[Connection]:
    """The LISTEN session of a relay."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("LISTEN queue_message_notify")
        yield connection


async def falls_asleep(relay: Connection) -> bool:
    """Close the gate, as a relay with nothing to do does; False if some transaction in flight holds it open."""
    cursor = await relay.execute("SELECT pg_try_advisory_lock(queue_message_gate_key())")
    return bool((await cursor.fetchone() or [None])[0])


async def heard(queue: Queue, relay: Connection) -> list[str]:
    """Payloads so far: everything up to a mark that is sent now."""
    await queue.sql(MARK)
    payloads: list[str] = []
    async for notification in relay.notifies(timeout=10):
        if notification.payload == "end":
            return payloads
        payloads.append(notification.payload)
    pytest.fail("the mark was not heard")


async def test_nobody_is_told_while_a_relay_is_busy(queue: Queue, relay: Connection) -> None:
    """The gate is open, so commits carry no notification."""
    await queue.insert()
    assert [] == await heard(queue, relay)


@pytest.mark.ids("A3", "A4", "B5")
async def test_an_idle_relay_is_told_once_a_transaction(queue: Queue, relay: Connection) -> None:
    """However many statements and messages a transaction has."""
    assert await falls_asleep(relay)
    async with queue.connection.transaction():
        await queue.insert(3)
        await queue.insert(2)
    assert [""] == await heard(queue, relay)


async def test_a_relay_cannot_fall_asleep_past_a_transaction(queue: Queue, relay: Connection) -> None:
    """Who inserted without a hint holds the gate open until the commit."""
    async with queue.connection.transaction():
        await queue.insert()
        assert not await falls_asleep(relay)
    assert await falls_asleep(relay)


async def test_nobody_waits_for_the_gate(queue: Queue, relay: Connection, database_url: str) -> None:
    """Neither two who insert nor who inserts while a relay sleeps."""
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("INSERT INTO queue_message (exchange) VALUES ('e')")
        await queue.sql("SET statement_timeout = '2s'")
        await queue.insert()
        assert [] == await heard(queue, relay)
    assert await falls_asleep(relay)
    await queue.insert()
    assert 3 == await queue.waiting()


async def test_a_crashed_relay_leaves_the_gate_open(queue: Queue, relay: Connection) -> None:
    """The lock goes with the session."""
    async with await psycopg.AsyncConnection.connect(queue.url, autocommit=True) as idle:
        assert await falls_asleep(idle)

    async def gone() -> bool:
        here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        return not await queue.value(f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND {here}")

    await until(gone)
    async with queue.connection.transaction():
        await queue.insert()
    assert [] == await heard(queue, relay)


@pytest.mark.ids("A3", "C4")
async def test_always_tells_each_id(queue: Queue, relay: Connection) -> None:
    """One notification for each message, over several statements of a transaction, and none for what was rolled back."""
    await queue.sql("SELECT queue_message_config_set('notify', 'always')")
    async with queue.connection.transaction():
        ids = [*await queue.insert(2), *await queue.insert()]
        async with queue.connection.transaction(force_rollback=True):
            await queue.insert()
        ids += await queue.insert()
    assert [{"id": id_} for id_ in ids] == [json.loads(payload) for payload in await heard(queue, relay)]


async def test_always_is_bounded(queue: Queue, relay: Connection) -> None:
    """One statement notifies a thousand at most, and the next of its transaction its own."""
    await queue.sql("SELECT queue_message_config_set('notify', 'always')")
    await queue.insert(1500)
    assert 1000 == len(await heard(queue, relay))

    async with queue.connection.transaction():
        ids = [*await queue.insert(1000), *await queue.insert()]
    assert ids == [json.loads(payload)["id"] for payload in await heard(queue, relay)]


@pytest.mark.ids("A13")
async def test_waiting_messages_are_told_again(queue: Queue, relay: Connection) -> None:
    """They are the oldest ones that no relay has claimed. This happens only in the mode `always`."""
    assert 0 == await queue.value("SELECT queue_message_renotify()")
    ready, locked, delayed, due = await queue.insert(4)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 min' WHERE id = %s", locked)
    await queue.sql("UPDATE queue_message SET available_at = now() + interval '1 min' WHERE id = %s", delayed)
    await queue.sql("UPDATE queue_message SET available_at = now() - interval '1 min' WHERE id = %s", due)
    await queue.sql("SELECT queue_message_config_set('notify', 'always')")

    assert 2 == await queue.value("SELECT queue_message_renotify()")
    assert [{"id": ready}, {"id": due}] == [json.loads(payload) for payload in await heard(queue, relay)]
    await queue.insert(1200)
    assert 1000 == await queue.value("SELECT queue_message_renotify()")


@pytest.mark.ids("A31")
async def test_outside_public_the_table_is_named(empty_database_url: str) -> None:
    """Several outboxes share the channel."""
    migrate(empty_database_url, schema="my schema", seed={"notify": "always"})
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        queue = Queue(empty_database_url, connection)
        await queue.sql('SET search_path = "my schema"')
        await queue.sql("LISTEN queue_message_notify")
        [id_] = await queue.insert()
        [payload] = await heard(queue, connection)
    assert {"id": id_, "table": '"my schema".queue_message'} == json.loads(payload)


@pytest.mark.parametrize("mode", ["off", "idle", "always"])
async def test_a_setting_changes_the_mode(queue: Queue, relay: Connection, mode: str) -> None:
    """It needs no migration, and applies to the next statement of any connected session."""
    assert await falls_asleep(relay)
    await queue.sql("SELECT queue_message_config_set('notify', %s)", mode)
    [id_] = await queue.insert()
    assert {"off": [], "idle": [""], "always": [f'{{"id": "{id_}"}}']}[mode] == await heard(queue, relay)


async def test_a_mode_holds_for_whoever_is_connected(queue: Queue, relay: Connection) -> None:
    """However it is changed, and whatever plans a session keeps, its next INSERT follows it."""
    assert await falls_asleep(relay)
    async with await psycopg.AsyncConnection.connect(queue.url, autocommit=True, prepare_threshold=1) as other:
        for change, told in (
            ("SELECT 1", 1),
            ("UPDATE queue_message_setting SET value = 'off' WHERE name = 'notify'", 0),
            ("DELETE FROM queue_message_setting WHERE name = 'notify'", 1),
            ("INSERT INTO queue_message_setting (name, value) VALUES ('notify', 'off')", 0),
            ("TRUNCATE queue_message_setting", 1),
        ):
            await queue.sql(change)
            for _ in range(3):
                await other.execute("INSERT INTO queue_message (exchange) VALUES ('e')")
                assert [""] * told == await heard(queue, relay), change


async def test_an_owner_who_may_not_write_functions_is_told(queue: Queue) -> None:
    """The mode stays as it is, and the error says what to grant."""
    await queue.sql("CREATE ROLE hint_owner")
    try:
        for made in ("FUNCTION queue_message_hint_mode()", "FUNCTION queue_message_hint_mode_set()", "TABLE queue_message_setting"):
            await queue.sql(f"ALTER {made} OWNER TO hint_owner")
        await queue.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="GRANT CREATE ON SCHEMA public TO hint_owner; then set it again"):
            await queue.sql("UPDATE queue_message_setting SET value = 'off' WHERE name = 'notify'")
        assert "idle" == await queue.value("SELECT queue_message_hint_mode()")
    finally:
        await queue.sql("REASSIGN OWNED BY hint_owner TO CURRENT_USER")
        await queue.sql("DROP ROLE hint_owner")


async def test_a_change_that_is_rolled_back_changes_no_mode(queue: Queue, relay: Connection) -> None:
    """The mode is part of the transaction that sets it."""
    assert await falls_asleep(relay)
    async with queue.connection.transaction(force_rollback=True):
        await queue.sql("SELECT queue_message_config_set('notify', 'off')")
    await queue.insert()
    assert [""] == await heard(queue, relay)


@pytest.mark.parametrize("mode", ["idle", "always"])
async def test_a_transaction_may_opt_out(queue: Queue, relay: Connection, mode: str) -> None:
    """It can then be prepared, which PostgreSQL refuses to one that notifies. The next transaction notifies again."""
    await queue.sql("SELECT queue_message_config_set('notify', %s)", mode)
    assert await falls_asleep(relay)
    for statement in (
        "BEGIN",
        "SET LOCAL relay.notify = 'off'",
        "INSERT INTO queue_message (exchange) VALUES ('e')",
        "PREPARE TRANSACTION 'one'",
    ):
        await queue.sql(statement)
    await queue.sql("COMMIT PREPARED 'one'")
    assert [] == await heard(queue, relay)
    await queue.insert()
    assert 1 == len(await heard(queue, relay))


@pytest.mark.ids("B5")
async def test_a_message_that_is_claimable_again_is_told(queue: Queue, relay: Connection) -> None:
    """A release is a hint like an insert; one that is not yet due, a claim and a renewal are none."""
    [id_] = await queue.insert()
    assert await falls_asleep(relay)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 min'")
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '2 min'")
    await queue.sql("UPDATE queue_message SET lock_expires_at = NULL, available_at = now() + interval '1 min'")
    assert [] == await heard(queue, relay)

    await queue.sql("UPDATE queue_message SET lock_expires_at = now()")
    await queue.sql("UPDATE queue_message SET lock_expires_at = NULL, available_at = now()")
    assert [""] == await heard(queue, relay)
    await queue.sql("SELECT queue_message_config_set('notify', 'always')")
    await queue.sql("UPDATE queue_message SET lock_expires_at = now()")
    await queue.sql("UPDATE queue_message SET lock_expires_at = NULL")
    assert [f'{{"id": "{id_}"}}'] == await heard(queue, relay)
