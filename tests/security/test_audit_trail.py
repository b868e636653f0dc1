"""What is done by hand is written down with the login that did it, and no role can take it back."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.support.database.queue import Queue
from tests.support.servers.logins import login

ROLES = ("producer", "relay", "operator", "etl", "replayer")


async def _audit(queue: Queue) -> list[tuple[Any, ...]]:
    return await queue.sql("SELECT acted_by, action, subject FROM queue_message_audit ORDER BY id")


async def test_who_paused_resumed_parked_set_and_replayed_is_kept(queue: Queue) -> None:
    """Each is kept with its login and with what `by` said, even after the pause is over."""
    [sent] = await queue.insert(ordering_key="k")
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'success', NULL, NULL, 'r')", sent)
    with login(queue.url, "queue_message_operator") as url, psycopg.connect(url, autocommit=True) as operator:
        user = operator.info.user
        for call in (
            "pause('orders', 'closed', 'ann')", "resume('orders')", "key_park('k')", "key_resume('k')", "config_set('max_attempts', '20')",
            "config_set('max_attempts', '20')", f"replay('{sent}', by => 'ann')", "resume('orders')",
        ):  # fmt: skip
            operator.execute(f"SELECT queue_message_{call}".encode())
        assert 6 == len(operator.execute("TABLE queue_message_audit").fetchall())

    assert [
        (user, "pause", "orders"), (user, "resume", "orders"), (user, "park", "k"), (user, "resume_key", "k"),
        (user, "set", "max_attempts"), (f"{user} (as ann)", "replay", sent),
    ] == await _audit(queue)  # fmt: skip
    was = "SELECT was FROM queue_message_audit WHERE action = %s"
    assert ("closed", f"{user} (as ann)") == ((paused := await queue.value(was, "resume"))["reason"], paused["paused_by"])
    assert "12" == (await queue.value(was, "set"))["value"]


async def test_who_limited_and_let_go_is_kept(queue: Queue) -> None:
    """Each figure, and what held before; a call that changes nothing leaves nothing."""
    with login(queue.url, "queue_message_operator") as url, psycopg.connect(url, autocommit=True) as operator:
        user = operator.info.user
        for call in ("limit('orders', 50, 'old', 'ann')", "limit('orders', 50)", "limit('orders', 5)", "unlimit('orders')"):
            operator.execute(f"SELECT queue_message_{call}".encode())

    assert [(user, "limit", "orders"), (user, "limit", "orders"), (user, "unlimit", "orders")] == await _audit(queue)
    figures = await queue.sql("SELECT was -> 'per_second', became -> 'per_second' FROM queue_message_audit ORDER BY id")
    assert [(None, 50), (50, 5), (5, None)] == figures


async def test_who_scheduled_what_is_kept(queue: Queue) -> None:
    """Each change, and what held before; ticks are none."""
    with (
        login(queue.url, "queue_message_operator", "queue_message_producer") as url,
        psycopg.connect(url, autocommit=True) as operator,
    ):
        user = operator.info.user
        for call in (
            "schedule_add('n', '@daily', 'e', by => 'ann')", "schedule_add('n', '@hourly', 'e', replace => true)", "schedule_pause('n')",
            "schedule_pause('n')", "schedule_resume('n')", "schedule_run_now('n', 'ann')", "schedule_remove('n')",
        ):  # fmt: skip
            operator.execute(f"SELECT queue_message_{call}".encode())
            await queue.sql("SELECT queue_message_run_schedules(now() + '2 hours')")

    actions = ["schedule", "schedule", "pause_schedule", "resume_schedule", "run_schedule", "unschedule"]
    signed = [f"{user} (as ann)" if action == "run_schedule" else user for action in actions]
    assert [(by, action, "n") for by, action in zip(signed, actions, strict=True)] == await _audit(queue)
    specs = await queue.sql(
        "SELECT was ->> 'spec', became ->> 'spec', became ->> 'created_by' FROM queue_message_audit ORDER BY id LIMIT 2"
    )
    assert [(None, "@daily", f"{user} (as ann)"), ("@daily", "@hourly", f"{user} (as ann)")] == specs


async def test_an_owner_at_the_tables_is_seen_too(queue: Queue) -> None:
    """A statement past the functions is recorded like a call, and SET ROLE hides no login."""
    user = queue.connection.info.user
    await queue.sql("SELECT set_config('role', queue_message_role('operator'), false)")
    await queue.sql("SELECT queue_message_pause('orders')")
    await queue.sql("RESET ROLE")
    await queue.sql("DELETE FROM queue_message_pause")
    await queue.sql("UPDATE queue_message_setting SET value = '7' WHERE name = 'max_attempts'")

    assert [(user, "pause", "orders"), (user, "resume", "orders"), (user, "set", "max_attempts")] == await _audit(queue)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM queue_message_audit",
        "TRUNCATE queue_message_audit",
        "UPDATE queue_message_audit SET acted_by = 'x'",
        "INSERT INTO queue_message_audit (action, subject) VALUES ('set', 'x')",
        "ALTER TABLE queue_message_setting DISABLE TRIGGER ALL",
        "SELECT queue_message_audit_change()",
    ],
)
async def test_nobody_changes_the_audit(queue: Queue, role: str, statement: str) -> None:
    """Neither what is written nor what writes it."""
    await queue.sql("SELECT set_config('role', queue_message_role(%s), false)", role)
    with pytest.raises((errors.InsufficientPrivilege, errors.FeatureNotSupported)):
        await queue.sql(statement)
