"""relay status."""

from __future__ import annotations

import json
import re

import psycopg
import pytest

from relay.queries.statements import Statements
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

STATE = (
    '{"broker": "up", "listen": "idle", "in_flight": 7, "silent": {"slow": 12.5}, "flooding": ["bulk"], '
    '"notes": {"channels": "The broker grants 2 channels."}}'
)


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
    seeded.run("SELECT queue_message_pause('audit', 'too loud', 'ann')")
    seeded.run("SELECT queue_message_pause('it''s')")
    seeded.insert(ordering_key="customer-7")
    seeded.insert(ordering_key="customer-7")
    seeded.run("SELECT queue_message_key_park('customer-7', 'broken address')")

    seeded.run(
        "INSERT INTO queue_message_relay (name, version, host, pid, state) VALUES ('relay-2', '1.0', 'h', 1, %s)", '{"broker": "blocked"}'
    )

    lines = [line.rstrip() for line in cli("status").splitlines()]

    [(user, since)] = seeded.run(
        "SELECT session_user::text, to_char(min(paused_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SSZ') FROM queue_message_pause"
    )
    assert "1 dead message is not acknowledged: `relay dead list`" in lines
    assert f"exchange 'audit' has been paused since {since} by {user} (as ann): too loud; `relay resume audit`" in lines
    assert any(
        line.startswith("""exchange 'it'"'"'s' has been paused""") and line.endswith("""no reason given; `relay resume 'it'"'"'s'`""")
        for line in lines
    )
    assert any(line.startswith("key 'customer-7': parked, 1 behind") and line.endswith("broken address") for line in lines)
    assert "relay-2: the broker is blocked" in lines
    assert "relay-1: 'slow' has not answered for 12 s" in lines
    assert "relay-1: exchange 'bulk' has a backlog and takes turns with the others" in lines
    assert "relay-1: The broker grants 2 channels." in lines
    assert not any("no relay is alive" in line for line in lines)


def retry(seeded: Seeded, error: str, *, seconds: float, **columns: object) -> None:
    """Let a message wait for its next attempt as a relay leaves it."""
    due = "UPDATE queue_message SET attempts = 1, last_error = %s, available_at = now() + make_interval(secs => %s) WHERE id = %s"
    seeded.run(due, error, seconds, seeded.insert(**columns))


def test_status_says_why_messages_wait_for_another_attempt(cli: Cli, seeded: Seeded) -> None:
    """By code and exchange, the most first, with the next try; not those that wait as their applications want, or for a person."""
    for seconds in (5400, 7200):
        retry(seeded, "exchange_missing: NOT_FOUND - no exchange 'ordesr: all'", seconds=seconds, exchange="ordesr: all")
    for _ in range(3):
        retry(seeded, "nacked: the broker refused it", seconds=10_800, exchange="mail")
    retry(seeded, "nacked: the broker refused it", seconds=-60, exchange="due")
    seeded.insert(available_at="2031-01-01T00:00:00Z", exchange="scheduled")

    lines = [line.rstrip() for line in cli("status").splitlines() if "another attempt" in line]

    assert [
        "3 messages wait for another attempt: nacked, exchange 'mail'; next in 3 h",
        "2 messages wait for another attempt: exchange_missing, exchange 'ordesr: all'; next in 90 min",
    ] == lines
    found = cli.json("status")
    assert [("nacked", 3), ("exchange_missing", 2)] == [(row["error_code"], row["messages"]) for row in found["retrying"]]
    assert (6, 1, 5) == tuple(found["queue"][name] for name in ("delayed", "scheduled", "retrying"))


def test_scheduled_messages_hide_no_message_that_failed(cli: Cli, seeded: Seeded) -> None:
    """However many are due before it, as any producer may insert them: neither from the status nor from the list of keys."""
    retry(seeded, "exchange_missing: NOT_FOUND - no exchange 'ordesr'", seconds=60, exchange="ordesr", ordering_key="victim")
    seeded.run("INSERT INTO queue_message (exchange, available_at) SELECT 'e', now() + interval '50 s' FROM generate_series(1, 10001)")

    found = cli.json("status")
    assert [("exchange_missing", 1)] == [(row["error_code"], row["messages"]) for row in found["retrying"]]
    assert 1 == found["queue"]["blocked_keys"]
    assert ["victim"] == [row["ordering_key"] for row in cli.json("key", "list")]


def test_a_rate_covers_the_time_that_was_counted(cli: Cli, seeded: Seeded) -> None:
    """The view has the newest 5,000 messages: if all are younger than a minute, there may be more, so the rate is that of their time."""
    seeded.run(
        "INSERT INTO queue_message_archive "
        "(xid, seq, id, exchange, routing_key, content, options, created_at, archived_at, attempts, result, handled_by) "
        "SELECT '9', n, gen_random_uuid(), 'e', '', '1', '{}', now(), now() - interval '20 s' * n / 5500, 1, 'success', 'relay' "
        "FROM generate_series(1, 5500) AS n"
    )

    recent = cli.json("status")["recent"]

    assert (5000, pytest.approx(18, abs=3), pytest.approx(275, abs=50)) == (
        recent["messages"],
        recent["rate_seconds"],
        recent["per_second"],
    )
    assert re.search(r"2\d\d(\.\d+)? messages a second in the last (1[5-9]|2\d) s; the newest 5000 within", " ".join(cli("status").split()))


@pytest.mark.parametrize(("retries", "said"), [(9_999, "1 scheduled, 9999 retrying"), (10_001, "2 scheduled, at least 10000 retrying")])
def test_scheduled_messages_are_counted_apart_from_retries(cli: Cli, seeded: Seeded, retries: int, said: str) -> None:
    """Up to ten thousand retries; those beyond count as scheduled."""
    seeded.insert(available_at="2031-01-01T00:00:00Z")
    seeded.run("INSERT INTO queue_message (exchange) SELECT 'retried' FROM generate_series(1, %s)", retries)
    seeded.run(
        "UPDATE queue_message SET available_at = now() + interval '1 h', attempts = 1, last_error = 'nacked: no' WHERE exchange = 'retried'"
    )

    assert f"0 ready, 0 locked, {said}" in " ".join(cli("status").split())


def test_reasons_that_are_not_shown_are_counted(cli: Cli, seeded: Seeded) -> None:
    """So somebody else's many failing messages hide no reason without a word."""
    for exchange in range(7):
        for _ in range(7 - exchange):
            retry(seeded, "nacked: the broker refused it", seconds=60, exchange=str(exchange))

    lines = [line.rstrip() for line in cli("status").splitlines() if "another attempt" in line]
    assert 6 == len(lines)
    assert "3 messages wait for another attempt for 2 other reasons: `SELECT * FROM queue_message_retrying()`" == lines[-1]


REASONS = {
    "database": "The relay's role lacks a permission (permission denied for table queue_message).",
    "settle": "What was sent cannot be settled: The relay's role lacks a permission.",
    "broker": "The broker at mq:5672 is not reachable.",
    "stopping": "The relay is shutting down.",
}


@pytest.mark.parametrize(("dead", "said"), [(19_999, "19999 dead messages are"), (20_001, "at least 20000 dead messages are")])
def test_a_number_that_is_counted_no_further_is_said_to_be_the_least(cli: Cli, seeded: Seeded, dead: int, said: str) -> None:
    """Of the newest dead messages it is exact."""
    seeded.run("SET session_replication_role = replica")
    seeded.run(
        "INSERT INTO queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts, result) "
        "SELECT pg_current_xact_id(), n, gen_random_uuid(), 'orders', '', '{}', '{}', now(), 1, 'failed' FROM generate_series(1, %s) AS n",
        dead,
    )

    assert f"{said} not acknowledged: `relay dead list`" in cli("status").splitlines()


def test_status_says_what_keeps_a_relay_from_its_work(cli: Cli, seeded: Seeded) -> None:
    """In its own words: nothing else tells why messages wait while relays are alive."""
    state = json.dumps({"broker": "down or blocked", "reasons": REASONS})
    seeded.run("INSERT INTO queue_message_relay (name, version, host, pid, state) VALUES ('relay-1', '1.0', 'h', 1, %s)", state)

    lines = [line.rstrip() for line in cli("status").splitlines() if line.startswith("relay-1: ")]

    assert [
        "relay-1: the broker is down or blocked: The broker at mq:5672 is not reachable.",
        "relay-1: What was sent cannot be settled: The relay's role lacks a permission.",
        "relay-1: The relay's role lacks a permission (permission denied for table queue_message).",
    ] == lines


def test_a_silent_relay_is_shown_with_what_it_still_has(cli: Cli, seeded: Seeded, relay_row: int) -> None:
    """Its locks, as long as messages carry them; neither a lane, nor the gate, nor what it said last."""
    seeded.run("UPDATE queue_message_lane SET owner = %s, lease_expires_at = 'infinity' WHERE lane < 3", relay_row)
    assert 3 == cli.json("status")["relays"][0]["lanes"]
    seeded.run("UPDATE queue_message_relay SET heartbeat_at = now() - interval '40 s'")
    for _ in range(2):
        id_ = seeded.insert()
        seeded.run("UPDATE queue_message SET lock_expires_at = now(), locked_by = %s WHERE id = %s", relay_row, id_)

    [row] = cli.json("status")["relays"]
    assert (False, 2, 0, {}) == (row["alive"], row["kept"], row["lanes"], row["state"])
    [shown] = [line for line in cli("status").splitlines() if line.startswith("relay-1 (")]
    assert re.search(r"host-1:42 +silent +2 +0 +4\d s ago", shown)

    seeded.run("UPDATE queue_message SET lock_expires_at = NULL")
    assert [0] == [row["kept"] for row in cli.json("status")["relays"]]
    seeded.run("UPDATE queue_message_relay SET heartbeat_at = now() - interval '340 s'")
    assert [None] == [row["kept"] for row in cli.json("status", "--all")["relays"]]


def test_status_of_an_empty_queue_without_a_relay(cli: Cli) -> None:
    """Nothing waits, nothing was settled, and somebody should start a relay."""
    printed = cli("status")

    assert "0 messages wait in schema public" in printed
    assert "nothing was settled yet" in printed
    assert "no relay is alive, so nothing is sent: start one with `relay run`" in printed


def test_status_of_an_inbox_asks_for_a_worker(cli: Cli) -> None:
    """A relay would claim nothing there."""
    cli("config", "set", "direction", "inbox")
    printed = cli("status")
    assert "no worker is alive, so nothing is handled: start one with `relay work`" in printed
    assert "relay run" not in printed


def test_a_transaction_that_writes_is_counted(cli: Cli, database_url: str) -> None:
    """It holds back what a relay may forget, so its age is shown."""
    with psycopg.connect(database_url) as other:
        other.execute("INSERT INTO queue_message (exchange) VALUES ('orders')")
        assert 1 == cli.json("status")["transactions"]["writing"]
        assert "1 transaction writes, the oldest for" in cli("status")


@pytest.mark.parametrize(("parked", "says"), [(10_000, "\nat least 9980 more blocked keys"), (9_999, "\n9979 more blocked keys")])
def test_more_parked_keys_than_are_counted_are_said_to_be_more(cli: Cli, seeded: Seeded, parked: int, says: str) -> None:
    """Up to 10,000 they are counted, and 20 are named."""
    seeded.run("INSERT INTO queue_message_key_hold (ordering_key) SELECT 'parked ' || n FROM generate_series(1, %s) n", parked)
    said = cli("status")
    assert says in said
    assert 20 == said.count(": parked, ")


def test_a_role_that_may_not_see_other_sessions_is_told_no_age(cli: Cli, database_url: str) -> None:
    """The status shows only the number, without an age, and says what to do about it."""
    with psycopg.connect(database_url) as other, login(database_url, "queue_message_operator") as url:
        other.execute("INSERT INTO queue_message (exchange) VALUES ('orders')")
        printed = cli("status", RELAY_DATABASE_URL=url)
        assert "\n1 transaction writes, 0 prepared" in printed
        assert "cannot be seen by this login: grant it pg_read_all_stats" in printed
        assert "pg_read_all_stats" not in cli("status")


def test_one_of_anything_is_singular(cli: Cli, seeded: Seeded) -> None:
    """In every line of it."""
    seeded.insert()
    seeded.archive("success")

    lines = cli("status").splitlines()

    assert lines[0].startswith("1 message waits in schema public: 1 ready")
    assert ": 1 success" in lines[1]
    assert "the only one within" in lines[1]


def test_a_relay_that_left_is_listed_while_messages_carry_its_locks(cli: Cli, seeded: Seeded, relay_row: int) -> None:
    """As one that left, with their number; neither alive nor silent, and gone with the last of them."""
    seeded.insert()
    for _ in range(2):
        id_ = seeded.insert()
        seeded.run("UPDATE queue_message SET lock_expires_at = now() + interval '1 min', locked_by = %s WHERE id = %s", relay_row, id_)
    leave = Statements("public")["unregister_relay"].decode()
    started = f"(SELECT started_at FROM queue_message_relay WHERE id = {relay_row})"
    seeded.run(leave.replace("%(relay_id)s", str(relay_row)).replace("%(started_at)s", started).replace("%(holds_locks)s", "true"))

    [row] = cli.json("status")["relays"]
    assert (False, 2, False) == (row["alive"], row["kept"], row["gone"])
    shown = cli("status")
    assert [True] == [bool(re.search(r"\bleft\b\W+2\b", line)) for line in shown.splitlines() if "relay-1" in line]
    assert "no relay is alive" in shown

    seeded.run("UPDATE queue_message SET lock_expires_at = NULL")
    assert [] == cli.json("status", "--all")["relays"]
    assert 0 == cli.json("status")["relays_left_out"]


@pytest.mark.parametrize(("max_attempts", "alone"), [("12", 1), ("3", 2)])
def test_what_goes_one_by_one_after_lost_locks_is_counted(cli: Cli, seeded: Seeded, max_attempts: str, alone: int) -> None:
    """After the second lost lock, or after the first where fewer than four attempts are allowed; a retry is none of them."""
    seeded.run("SELECT queue_message_config_set('max_attempts', %s)", max_attempts)
    for attempts, holder in ((1, 7), (2, 7), (2, None)):
        id_ = seeded.insert()
        for _ in range(attempts):
            seeded.run("UPDATE queue_message SET available_at = now(), locked_by = %s, attempts = attempts + 1 WHERE id = %s", holder, id_)

    assert alone == cli.json("status")["queue"]["suspects"]
    assert f"{alone} message{'s' if alone > 1 else ''} back from an expired lock: each goes out alone" in cli("status")


def test_relays_that_fell_silent_long_ago_are_left_out(cli: Cli, seeded: Seeded, relay_row: int) -> None:
    """Listed while they may hold locks and five minutes longer; --all lists all."""
    columns = "name, version, host, pid, heartbeat_at"
    row = f"INSERT INTO queue_message_relay ({columns}) VALUES (%s, '1', 'h', 1, now() - make_interval(secs => %s))"
    for name, silent in (("lately", 300), ("long-gone", 340)):
        seeded.run(row, name, silent)

    assert (["relay-1", "lately"], 1) == ([relay["name"] for relay in cli.json("status")["relays"]], cli.json("status")["relays_left_out"])
    assert "1 relay that fell silent earlier is not listed: `relay status --all`" in cli("status")
    assert ["relay-1", "lately", "long-gone"] == [relay["name"] for relay in cli.json("status", "--all")["relays"]]
    assert "not listed" not in cli("status", "--all")
    assert relay_row


@pytest.mark.parametrize(("missing", "says"), [(0, "today, so nothing can be settled"), (1, "tomorrow"), (2, None)])
def test_a_missing_day_of_the_archive_is_named(cli: Cli, seeded: Seeded, missing: int, says: str | None) -> None:
    """Today's and tomorrow's, although later days are there."""
    [(day,)] = seeded.run("SELECT to_char(now() AT TIME ZONE 'UTC' + make_interval(days => %s), 'YYYYMMDD')", missing)
    seeded.run(f"DROP TABLE queue_message_archive_{day}")

    lines = [line.rstrip() for line in cli("status").splitlines() if "partition" in line]

    assert ([] if says is None else [f"the archive has no partition for {says}: run `SELECT queue_message_ensure_partitions()`"]) == lines


SEEN = """INSERT INTO queue_message_export_position (exported_xid, lake, epoch, seen_at)
    VALUES (pg_snapshot_xmin(pg_current_snapshot()), 'a lake', 1, clock_timestamp() - interval '10 minutes')"""


def test_a_registered_export_is_shown(cli: Cli, seeded: Seeded) -> None:
    """How far the lake is behind, days that wait for a verification, and partitions that differ; nothing without an export."""
    assert "lake" not in cli("status")
    seeded.run("SELECT queue_message_config_set('export_registered', 'true'), queue_message_config_set('retention_days', '1')")
    assert "nothing was exported to a lake yet\n" in cli("status")
    seeded.run(SEEN)
    assert "the lake holds everything that was archived; it was last seen 10 min ago\n" in cli("status")

    seeded.archive("success")
    assert any(line.startswith("the lake is ") and " behind the archive; it was" in line for line in cli("status").splitlines())
    [(day,)] = seeded.run("SELECT 'queue_message_archive_' || to_char(now() AT TIME ZONE 'UTC' - interval '1 day', 'YYYYMMDD')")
    seeded.run(f"ALTER TABLE {day} RENAME TO queue_message_archive_20200101")
    seeded.run("INSERT INTO queue_message_export (partition, rows, difference) VALUES ('queue_message_dead', 1, 'x'), ('gone', 1, 'x')")
    lines = [line.rstrip() for line in cli("status").splitlines()]

    assert "the lake does not hold 1 partition of the archive as PostgreSQL knows them; it was last seen 10 min ago" in lines
    assert "1 day past retention kept until the export is verified: `relay pipeline verify`" in lines
    assert "1 partition of the archive not as in the lake: `relay pipeline verify` names rows and files" in lines


@pytest.mark.parametrize(
    ("unseen", "words"),
    [
        ("seen_at = now() - interval '3 days'", "the lake was last seen 3 d ago: retention waits"),
        (
            "seen_at = now() - interval '2 hours', problem = 'there is none'",
            "the lake was last seen 2 h ago: retention waits (there is none)",
        ),
        ("seen_at = NULL", "the lake was never seen: retention waits"),
    ],
)
def test_a_lake_that_was_not_seen_lately_is_never_said_to_hold_anything(cli: Cli, seeded: Seeded, unseen: str, words: str) -> None:
    """Too long ago, not where it should be, or never; JSON says it as well, with the seconds by which a look is overdue."""
    seeded.run("SELECT queue_message_config_set('export_registered', 'true')")
    seeded.run(SEEN)
    assert 0 == cli.json("status")["queue"]["lake_overdue_seconds"]
    seeded.run(f"UPDATE queue_message_export_position SET noted_at = now() - interval '2 days', {unseen}")

    said = cli("status")
    assert words in said
    assert "holds everything" not in said
    assert "nothing is dropped until the lake is seen" in said
    found = cli.json("status")
    assert ("unseen", words) == (found["lake"]["judgement"], found["lake"]["words"])
    assert 3600 < found["queue"]["lake_overdue_seconds"] < 260_000


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


def test_of_very_many_codes_the_most_frequent_are_named(cli: Cli, seeded: Seeded) -> None:
    """Programs choose codes; JSON has all of them."""
    for number in range(25):
        seeded.archive("failed", f"code_{number:02}")
    seeded.archive("failed", "code_07")

    shown = " ".join(cli("status").split())
    assert ": 2 failed (code_07), 1 failed (code_00)" in shown
    assert ", 15 with 15 other codes" in shown
    assert 25 == len(cli.json("status")["recent"]["results"])
