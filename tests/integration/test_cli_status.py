"""relay status."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.support.cli import Cli, Seeded

STATE = '{"broker": "up", "listen": "idle", "in_flight": 7, "silent": {"slow": 12.5}}'


@pytest.fixture
def relay_row(seeded: Seeded) -> int:
    """A relay that lives, by its row."""
    [(id_,)] = seeded.run(
        "INSERT INTO queue_message_relay (name, version, host, pid, state) VALUES ('relay-1', '1.0', 'host-1', 42, %s) RETURNING id", STATE
    )
    return int(id_)


@pytest.mark.ids("D5")
def test_status_counts_what_waits_and_what_was_settled(cli: Cli, seeded: Seeded, relay_row: int) -> None:
    """Ready, locked, delayed, dead, and the newest results with their codes."""
    seeded.insert()
    locked = seeded.insert()
    seeded.run("UPDATE queue_message SET lock_expires_at = now() + interval '1 min', locked_by = %s WHERE id = %s", relay_row, locked)
    seeded.insert(available_at="2031-01-01T00:00:00Z")
    for _ in range(3):
        seeded.archive("success")
    seeded.archive("failed", "unroutable")

    found = cli.json("status")

    queue = found["queue"]
    assert (3, 1, 1, 1, 1) == tuple(queue[name] for name in ("waiting", "ready", "locked", "delayed", "dead_unacknowledged"))
    assert [("success", None, 3), ("failed", "unroutable", 1)] == [tuple(row.values()) for row in found["recent"]["results"]]
    assert pytest.approx(4 / 60, abs=0.01) == found["recent"]["per_second"]
    assert ("relay-1", True, 7) == (found["relays"][0]["name"], found["relays"][0]["alive"], found["relays"][0]["state"]["in_flight"])


@pytest.mark.ids("D5", "A40")
def test_status_names_what_needs_a_person(cli: Cli, seeded: Seeded, relay_row: int) -> None:
    """Dead messages, paused exchanges, blocked keys with their reason, silent exchanges, a blocked broker: a line each."""
    seeded.archive("failed", "unroutable")
    seeded.run("SELECT queue_message_pause('audit')")
    seeded.insert(ordering_key="customer-7")
    seeded.insert(ordering_key="customer-7")
    seeded.run("SELECT queue_message_key_park('customer-7', 'broken address')")

    seeded.run(
        "INSERT INTO queue_message_relay (name, version, host, pid, state) VALUES ('relay-2', '1.0', 'h', 1, %s)", '{"broker": "blocked"}'
    )

    lines = [line.rstrip() for line in cli("status").splitlines()]

    assert "1 dead messages are not acknowledged: `relay dead list`" in lines
    assert "exchange 'audit' is paused by postgres: `relay resume`" in lines
    assert any(line.startswith("key 'customer-7': parked, 1 behind") and line.endswith("broken address") for line in lines)
    assert "relay-2: the broker is blocked" in lines
    assert "relay-1: 'slow' has not answered for 12 s" in lines
    assert not any("no relay is alive" in line for line in lines)


def test_status_of_an_empty_queue_without_a_relay(cli: Cli) -> None:
    """Nothing waits, nothing was settled, and somebody should start a relay."""
    printed = cli("status")

    assert "0 messages wait in schema public" in printed
    assert "nothing was settled yet" in printed
    assert "no relay is alive: start one with `relay run`" in printed


def test_a_transaction_that_writes_is_counted(cli: Cli, database_url: str) -> None:
    """It holds back what a relay may forget, so its age is shown."""
    with psycopg.connect(database_url) as other:
        other.execute("INSERT INTO queue_message (exchange) VALUES ('orders')")
        assert 1 == cli.json("status")["transactions"]["writing"]
        assert "1 transactions write, the oldest for" in cli("status")


def test_an_environment_that_differs_from_the_database_is_named(cli: Cli) -> None:
    """The database's value holds, and status says both."""
    cli.env["RELAY_MAX_ATTEMPTS"] = "7"

    assert [{"name": "max_attempts", "environment": "7", "database": "12"}] == cli.json("status")["overruled"]
    assert "max_attempts is '7' in this environment; the database's '12' holds" in cli("status")


def test_watch_with_json_prints_one_line_for_each_look_until_it_is_stopped(cli: Cli) -> None:
    """For scripts that follow; SIGINT ends it with 130 and no word."""
    process = cli.start("status", "--watch", "--json", "--interval", "0.1")
    assert process.stdout is not None
    looks = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(2)

    assert [0, 0] == [look["queue"]["waiting"] for look in looks]
    _, complaints = process.communicate(timeout=20)
    assert (130, "") == (process.returncode, complaints)
