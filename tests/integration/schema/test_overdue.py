"""Work that is due and not done in time is reported, whatever prevents it."""

from __future__ import annotations

import pytest

from relay.events import NOBODY
from relay.maintenance.folds import Folds
from relay.postgres.maintenance_store import PostgresMaintenance
from tests.support.database.queue import Queue
from tests.support.relays.cli import Cli, Seeded

pytestmark = pytest.mark.ids("D5", "D7")
TASKS = ("keyed", "schedules", "sweep", "retention")
RELAY = """
    INSERT INTO queue_message_relay (name, version, host, pid, started_at) VALUES ('r', '1', 'h', 1, now() - make_interval(secs => %s))
"""
LATE = {
    "keyed": """
        INSERT INTO queue_message_keyed (exchange, coalesce_key) VALUES ('e', 'k');
        UPDATE queue_message_keyed_row SET due_at = now() - interval '90 s'
    """,
    "schedules": "UPDATE queue_message_schedule SET next_at = now() - interval '90 s'",
    "sweep": "UPDATE queue_message_clock_seen SET seen_at = now() - interval '450 s' WHERE chore = 'sweep'",
    "retention": "UPDATE queue_message_clock_seen SET seen_at = now() - interval '9000 s' WHERE chore = 'retention'",
}
SAYS = {
    "keyed": "messages under a key have been due for",
    "schedules": "schedules have been due for",
    "sweep": "the sweep of expired locks is",
    "retention": "retention is",
}


def _overdue(cli: Cli) -> dict[str, float]:
    queue = cli.json("status")["queue"]
    return {task: queue[f"{task}_overdue_seconds"] for task in TASKS}


def _in_time(seeded: Seeded) -> None:
    seeded.run("UPDATE queue_message_clock_seen SET seen_at = now()")
    seeded.run("SELECT queue_message_schedule_add('nightly', 'EVERY 1 day', 'e')")
    seeded.run(RELAY, 86400)


@pytest.mark.parametrize("task", TASKS)
def test_status_tells_which_task_is_late_and_no_other(cli: Cli, seeded: Seeded, task: str) -> None:
    """With a relay alive, so that somebody should have done it."""
    _in_time(seeded)
    assert dict.fromkeys(TASKS, 0) == _overdue(cli)
    assert not any(sentence in cli("status") for sentence in SAYS.values())

    seeded.run(LATE[task])
    late = _overdue(cli)
    assert 80 < late.pop(task) < 6000
    assert set(late.values()) == {0}
    assert [task] == [name for name in TASKS if SAYS[name] in cli("status")]


def test_chores_are_late_from_when_a_relay_began_that_lives(cli: Cli, seeded: Seeded) -> None:
    """Without a living relay, no task is owed. A session that holds what the tasks need may have done so all the time."""
    seeded.run("UPDATE queue_message_clock_seen SET seen_at = NULL")
    assert dict.fromkeys(TASKS, 0) == _overdue(cli)

    seeded.run(RELAY, 7200)
    late = _overdue(cli)
    assert 3590 < late["retention"] < 3700
    assert 7100 < late["sweep"] < 7300


@pytest.mark.parametrize("time", ["infinity", "-infinity"])
@pytest.mark.parametrize("due", ["queue_message_schedule SET next_at", "queue_message_keyed_row SET due_at"])
def test_what_is_due_at_no_finite_time_breaks_no_status(cli: Cli, seeded: Seeded, due: str, time: str) -> None:
    """Its owner may set any time by hand, and a producer chooses when a message is due."""
    _in_time(seeded)
    seeded.run(LATE["keyed"])
    seeded.run(f"UPDATE {due} = '{time}'")
    task = "schedules" if "schedule" in due else "keyed"
    assert (time == "-infinity") == (_overdue(cli)[task] > 1e9)


@pytest.mark.parametrize("time", ["infinity", "-infinity"])
async def test_what_is_due_at_no_finite_time_stops_no_relay(queue: Queue, upkeep: PostgresMaintenance, time: str) -> None:
    """Its policy is read, and the others that are due are sent."""
    await queue.sql("SELECT queue_message_schedule_add(name, 'EVERY 1 day', 'e') FROM unnest('{good,bad}'::text[]) AS name")
    await queue.sql("INSERT INTO queue_message_keyed (exchange, coalesce_key) VALUES ('e', 'good'), ('e', 'bad')")
    await queue.sql("UPDATE queue_message_schedule SET created_at = created_at - interval '1 day'")
    await queue.sql("UPDATE queue_message_schedule SET next_at = next_at - interval '1 day'")
    await queue.sql("UPDATE queue_message_schedule SET next_at = %s WHERE name = 'bad'", time)
    await queue.sql("UPDATE queue_message_keyed_row SET due_at = %s WHERE coalesce_key = 'bad'", time)

    controls = await upkeep.refresh_policy()
    assert controls.tick_in is not None
    folds = Folds(upkeep, NOBODY)
    assert await folds.due_in() is not None
    await upkeep.run_schedules()
    await folds.carry_out()
    assert await queue.value("SELECT last_at IS NOT NULL FROM queue_message_schedule WHERE name = 'good'")
    assert not await queue.value("SELECT count(*) FROM queue_message_keyed WHERE coalesce_key = 'good'")
