"""relay dead watch --replay: what a rule replays, when, how often, and what it leaves to people."""

from __future__ import annotations

import json
import select
import signal
from datetime import timedelta

import psycopg
import pytest
from psycopg import errors

from relay.cli.dead_watch.replay_rules import parse_rule
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login
from tests.support.servers.webhook_receiver import Answer, hook

RULE = "code=unroutable,exchange=orders,after=0s,at-most=2"
UNANSWERED = "SELECT count(*) FROM queue_message_dead_list WHERE acknowledged_at IS NULL"


def _die_again(seeded: Seeded, code: str = "unroutable") -> None:
    """What a relay would do with all that is in the queue: archive it as failed."""
    seeded.run("SELECT queue_message_archive_now(array_agg(id), 'failed', %s, NULL, 'relay-1') FROM queue_message", code)


@pytest.mark.ids("A16")
def test_a_rule_replays_what_matches_and_nothing_else(cli: Cli, seeded: Seeded) -> None:
    """The new message has its lineage, the dead one its answer, and the audit who did it."""
    mine = seeded.archive("failed", "unroutable", content='{"n": 1}')
    others = {seeded.archive("failed", "nacked"), seeded.archive("failed", "unroutable", exchange="audit")}

    cli("dead", "watch", "--once", "--replay", RULE)

    [(new, of, content)] = seeded.run("SELECT id::text, replay_of::text, content::text FROM queue_message")
    assert (mine, '{"n": 1}') == (of, content)
    assert f"Message {mine} was replayed as {new}.\nDead messages: 0 handled, 1 replayed.\n" == cli.stderr
    assert others == {row["id"] for row in cli.json("dead", "list")}
    [(note,)] = seeded.run("SELECT note FROM queue_message_dead_ack")
    [(by, action, subject)] = seeded.run("SELECT acted_by, action, subject FROM queue_message_audit")
    assert (f"replayed as {new}", "replay", mine) == (note, action, subject)
    assert by.endswith("(as relay dead watch)")


def test_at_most_holds_along_the_lineage(cli: Cli, seeded: Seeded) -> None:
    """A message that dies again after each replay ends with a person, not in a loop."""
    first = seeded.archive("failed", "unroutable")
    for _ in range(2):
        cli("dead", "watch", "--once", "--replay", RULE)
        _die_again(seeded)
    cli("dead", "watch", "--once", "--replay", RULE, code=1)

    assert "was replayed 2 times already" in cli.stderr
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message")
    [left] = cli.json("dead", "list")
    assert left["id"] != first
    assert 3 == len(cli.json("dead", "list", "--all"))


def test_at_most_counts_replays_that_kept_their_id(cli: Cli, seeded: Seeded) -> None:
    """They are replays of themselves."""
    dead = seeded.archive("failed", "unroutable")
    for _ in range(3):
        cli("dead", "replay", "--same-id", dead)
        _die_again(seeded)

    cli("dead", "watch", "--once", "--replay", "code=unroutable,after=0s,at-most=3", code=1)
    cli("dead", "watch", "--once", "--replay", "code=unroutable,after=0s,at-most=4")
    assert [(1,)] == seeded.run("SELECT count(*) FROM queue_message")


def test_a_message_with_the_id_of_a_dead_one_shortens_no_lineage(cli: Cli, seeded: Seeded) -> None:
    """Producers choose ids, and see those of others."""
    seeded.archive("failed", "unroutable")
    for _ in range(2):
        cli("dead", "watch", "--once", "--replay", RULE)
        [(replay,)] = seeded.run("SELECT id::text FROM queue_message")
        _die_again(seeded)
        seeded.run("INSERT INTO queue_message (id, exchange) VALUES (%s, 'other')", replay)
        _die_again(seeded, "nacked")

    cli("dead", "watch", "--once", "--replay", RULE, code=1)
    assert "was replayed 2 times already" in cli.stderr
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message")


def test_a_lineage_that_retention_has_cut_is_not_replayed(cli: Cli, seeded: Seeded) -> None:
    """The length of its lineage is unknown."""
    seeded.archive("failed", "unroutable")
    cli("dead", "watch", "--once", "--replay", RULE)
    _die_again(seeded)
    seeded.run("SET relay.retention = 'on'")
    seeded.run("DELETE FROM queue_message_dead WHERE replay_of IS NULL")

    cli("dead", "watch", "--once", "--replay", RULE, code=1)
    assert "or its replay count is unknown" in cli.stderr
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message")


def test_a_replay_waits_after_the_death_by_the_databases_clock(cli: Cli, seeded: Seeded) -> None:
    """And goes by itself when it is due, although the poll is an hour away."""
    seeded.archive("failed", "unroutable", routing_key="waits")
    cli("dead", "watch", "--once", "--replay", "code=unroutable,after=1h")
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message")

    process = cli.start("dead", "watch", "--poll", "3600", "--replay", "code=unroutable,after=2s")
    assert process.stderr is not None
    assert select.select([process.stderr], [], [], 20)[0]
    assert "was replayed as" in process.stderr.readline()
    assert [(True,)] == seeded.run(
        "SELECT q.created_at - d.archived_at >= interval '2 seconds' FROM queue_message q JOIN queue_message_dead d ON d.id = q.replay_of"
    )
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)


def test_one_rule_that_waits_does_not_keep_another(cli: Cli, seeded: Seeded) -> None:
    """And the first that matches is the one that decides."""
    seeded.archive("failed", "unroutable")
    quick = seeded.archive("failed", "nacked")

    cli("dead", "watch", "--once", "--replay", "code=unroutable,after=1h", "--replay", "result=failed,after=0s")

    assert [(quick,)] == seeded.run("SELECT replay_of::text FROM queue_message")


def test_handlers_see_a_message_before_it_is_replayed(cli: Cli, seeded: Seeded) -> None:
    """They do even if the first try fails, as a replay ends the reports. A message that a rule replays is not acknowledged before."""
    dead = seeded.archive("failed", "unroutable")
    answers = [Answer(500), Answer()]
    with hook() as receiver:
        receiver.answer = lambda _: answers.pop(0)
        process = cli.start(
            "dead", "watch", "--poll", "60", "--ack", "--webhook", receiver.url, "--allow-private", "--unsigned", "--replay", RULE
        )
        receiver.next()
        assert [(1,)] == seeded.run(UNANSWERED)
        assert dead == json.loads(receiver.next().body)["data"]["id"]
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=20)
    if "replayed as" not in complaints:
        # The signal came between the two; what is left is done by the next.
        cli("dead", "watch", "--once", "--replay", RULE)

    assert [(dead,)] == seeded.run("SELECT replay_of::text FROM queue_message")


def test_what_the_queue_refuses_is_named_and_left(cli: Cli, seeded: Seeded) -> None:
    """The next one is replayed, and the watch continues."""
    bad, good = (seeded.archive("failed", "unroutable", routing_key=key) for key in ("bad", "good"))
    seeded.run("ALTER TABLE queue_message ADD CONSTRAINT no_bad CHECK (routing_key <> 'bad') NOT VALID")

    cli("dead", "watch", "--once", "--replay", RULE, code=1)

    assert f"Message {bad} was not replayed and stays unacknowledged" in cli.stderr
    assert [(good,)] == seeded.run("SELECT replay_of::text FROM queue_message")
    assert [bad] == [row["id"] for row in cli.json("dead", "list")]


def test_two_who_replay_at_once_replay_it_once(seeded: Seeded, database_url: str) -> None:
    """The second waits for the first, and finds it answered."""
    dead = seeded.archive("failed", "unroutable")
    [(xid, seq)] = seeded.run("SELECT xid::text, seq FROM queue_message_dead")
    replay = "SELECT queue_message_dead_replay(%s, %s::text::xid8, %s, 3)"
    with psycopg.connect(database_url) as one, psycopg.connect(database_url) as two:
        one.execute(replay, (dead, xid, seq))
        two.execute("SET lock_timeout = '200ms'")
        with pytest.raises(errors.LockNotAvailable):
            two.execute(replay, (dead, xid, seq))
        two.rollback()
        one.commit()
        assert (None,) == two.execute(replay, (dead, xid, seq)).fetchone()
    assert [(1,)] == seeded.run("SELECT count(*) FROM queue_message")


def test_an_operators_login_may_watch_acknowledge_and_replay(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """With no more than its role, and a producer's may not."""
    seeded.archive("failed", "unroutable")
    seeded.archive("failed", "nacked")
    watch = ("dead", "watch", "--once", "--ack", "--command", "true", "--replay", RULE)
    with login(database_url, "queue_message_producer") as url:
        cli(*watch, code=1, RELAY_DATABASE_URL=url)
        assert "relay grant operator LOGIN" in cli.stderr
    with login(database_url, "queue_message_operator") as url:
        cli(*watch, RELAY_DATABASE_URL=url)
    assert "Dead messages: 2 handled, 1 replayed.\n" in cli.stderr
    assert [(0,)] == seeded.run(UNANSWERED)


def test_a_rule_is_read_as_it_is_written() -> None:
    """Quotes may contain commas. A star matches any characters, and nothing else is special."""
    rule = parse_rule("exchange='a,b',routing-key=order.*.x,result=failed,after=2h,at-most=7")

    assert ("a,b", timedelta(hours=2), 7) == (rule.exchange, rule.after, rule.at_most)
    dead = {"exchange": "a,b", "routing_key": "order.1\n.x", "result": "failed", "error_code": None}
    assert rule.matches(dead)
    assert not rule.matches({**dead, "routing_key": "order_1.x"})
    assert not rule.matches({**dead, "result": "rejected"})
    assert (timedelta(minutes=1), 1) == (parse_rule("code=x").after, parse_rule("code=x").at_most)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("cod=unroutable", "no key 'cod'"), ("code", "write code=VALUE"), ("", "must say what"), ("after=5m,at-most=3", "must say what"),
        ("code=x,code=y", "a key twice"), ("code=x,after=5", "after must be a length"), ("code=x,after=-5m", "after must be a length"),
        ("code=x,at-most=0", "at-most must be"), ("code=x,at-most=1000", "at-most must be"), ("code=x,at-most=x", "at-most must be"),
        ("result=success", "result must be one of"), ("code='x", "cannot be read"), ("\x1b]0;x\x07=1", "no key"),
    ],
)  # fmt: skip
def test_a_rule_that_is_none_is_a_usage_error(cli: Cli, seeded: Seeded, rule: str, sentence: str) -> None:
    """Before anything is replayed."""
    seeded.archive("failed", "x")

    assert sentence in cli.refused("dead", "watch", "--once", "--replay", rule, code=2)
    assert cli.stderr.replace("\n", "").isprintable()
    assert [(1,)] == seeded.run(UNANSWERED)
