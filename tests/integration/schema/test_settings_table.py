"""The policy that the database carries out is refused where it makes no sense."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.support.database.queue import Queue

REFUSED = [
    ("max_attempts", "0", 'Setting "max_attempts" is "0"; it must be a whole number from 1 to 1000000.'),
    ("max_attempts", "2.5", "whole number"),
    ("max_attempts", "1e3", "whole number"),
    ("backoff_base", "-1", "a number from 0 to 86400"),
    ("backoff_max", "", "a number from 0 to 604800"),
    ("lock_seconds", "NaN", "a number from 1 to 86400"),
    ("max_body_bytes", "134217729", "from 1 to 134217728"),
    ("retention_days", "99999999999", "from 0 to 36500"),
    ("archive", "none", "one of all, failures"),
    ("notify", "IDLE", "one of idle, always, off"),
    ("on_dead_key", "stop", "one of continue, park"),
    ("on_lock_expired", "", "one of retry, archive"),
    ("export_registered", "yes", "one of true, false"),
    ("unroutable", "retry,audit", "such as retry,audit=accept"),
    ("unroutable", "audit=drop", "one of retry, reject, accept"),
    ("no_such", "1", 'There is no setting "no_such"; there are archive, backoff_base'),
]
TAKEN = [("max_attempts", "1"), ("backoff_base", "0.25"), ("lock_seconds", "86400"), ("retention_days", "0"),
         ("unroutable", "reject"), ("unroutable", "retry,audit=accept,a.b=reject"), ("unroutable", "audit=accept")]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "sentence"), REFUSED)
async def test_a_value_that_makes_no_sense_is_refused_with_a_sentence(queue: Queue, name: str, value: str, sentence: str) -> None:
    """By the function and by plain SQL alike."""
    for statement in (
        "SELECT queue_message_config_set(%s, %s)",
        "INSERT INTO queue_message_setting VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    ):
        with pytest.raises(errors.CheckViolation) as refused:
            await queue.sql(statement, name, value)
        assert sentence in str(refused.value.diag.message_primary)


@pytest.mark.parametrize(("name", "value"), TAKEN)
async def test_a_change_tells_what_held_before(queue: Queue, name: str, value: str) -> None:
    """And carries its time."""
    before = await queue.value("SELECT queue_message_setting_value(%s)", name)

    assert before == await queue.value("SELECT queue_message_config_set(%s, %s)", name, value)

    assert (value, True) == (
        await queue.sql("SELECT value, changed_at > now() - interval '1 min' FROM queue_message_setting WHERE name = %s", name)
    )[0]


async def test_a_deleted_setting_has_its_first_value(queue: Queue) -> None:
    """Nothing that reads the policy stumbles over a missing row."""
    await queue.sql("DELETE FROM queue_message_setting")
    assert "12" == await queue.value("SELECT queue_message_setting_value('max_attempts')")
    await queue.insert()
    assert [(0, 0)] == await queue.sql("SELECT released, archived FROM queue_message_sweep()")
