"""Producers choose ids, so two messages may have the same one: an action on one of them never affects the other."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.relays.cli import Cli, Seeded

pytestmark = pytest.mark.ids("B13")
WAITING = "SELECT routing_key FROM queue_message ORDER BY seq"
FIRST = "SELECT xid::text, seq FROM queue_message_archive WHERE id = %s AND replay_of IS NULL ORDER BY routing_key"
LAKE = """
    SELECT queue_message_replay_rows('a job', ARRAY[xid], ARRAY[seq], ARRAY[id], ARRAY[exchange], ARRAY[routing_key], ARRAY[content::text],
        ARRAY[body], ARRAY[options::text], ARRAY[ordering_key], ARRAY[expires_at], {})
    FROM queue_message_archive WHERE routing_key = 'ours'
"""
PLACE = "SELECT id || '@' || xid || '/' || seq FROM queue_message_archive WHERE routing_key = %s"


@pytest.fixture
def shared(cli: Cli, seeded: Seeded) -> str:
    """The id of two dead messages: `ours`, and `theirs` that somebody inserted with it later."""
    id_ = seeded.archive("failed", "unroutable", routing_key="ours")
    seeded.run("INSERT INTO queue_message (id, exchange, routing_key) VALUES (%s, 'e', 'theirs')", id_)
    seeded.run("SELECT queue_message_archive_now(array_agg(id), 'failed', 'unroutable', NULL, 'relay-1') FROM queue_message")
    return id_


def _place(seeded: Seeded, routing_key: str) -> str:
    [(place,)] = seeded.run(PLACE, routing_key)
    return str(place)


@pytest.mark.parametrize("command", ["replay", "ack"])
def test_an_id_that_two_messages_have_is_refused_and_each_is_named(cli: Cli, seeded: Seeded, shared: str, command: str) -> None:
    """Neither is replayed or acknowledged."""
    assert (
        f"2 messages were archived with the id {shared}: name the one that you mean, {_place(seeded, 'theirs')} or "
        f"{_place(seeded, 'ours')}; `relay show` tells them apart." == cli.refused("dead", command, shared, code=1)
    )
    assert [] == seeded.run(WAITING)
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message_dead_ack")
    assert {"ours": _place(seeded, "ours"), "theirs": _place(seeded, "theirs")} == {
        row["routing_key"]: f"{shared}@{row['place']}" for row in cli.json("show", shared)["story"]
    }


@pytest.mark.parametrize("meant", ["ours", "theirs"])
@pytest.mark.parametrize("same_id", [[], ["--same-id"]])
def test_the_one_at_a_place_is_replayed_and_acknowledged(cli: Cli, seeded: Seeded, shared: str, meant: str, same_id: list[str]) -> None:
    """The other stays as it is."""
    cli("dead", "replay", *same_id, _place(seeded, meant))
    assert [(meant,)] == seeded.run(WAITING)
    assert [({"ours", "theirs"} - {meant}).pop()] == [row["routing_key"] for row in cli.json("dead", "list")]


def test_the_one_at_a_place_is_acknowledged(cli: Cli, seeded: Seeded, shared: str) -> None:
    """It is acknowledged once. An answer to a missing message is refused and undoes the others of its call."""
    ours, theirs = _place(seeded, "ours"), _place(seeded, "theirs")
    assert "No dead message has the id" in cli.refused("dead", "ack", theirs, f"{shared}@1/1", code=3)
    assert "1 acknowledged\n" == cli("dead", "ack", ours)
    assert ["theirs"] == [row["routing_key"] for row in cli.json("dead", "list")]
    assert "0 acknowledged, 1 was already\n" == cli("dead", "ack", ours)


def test_a_replay_with_the_same_id_is_the_message_that_it_replays(cli: Cli, seeded: Seeded) -> None:
    """Its id still names one message, which may be replayed again as it was archived last."""
    id_ = seeded.archive("failed", "unroutable", routing_key="ours")
    for _ in range(2):
        cli("dead", "replay", "--same-id", "--again", id_)
        seeded.run("SELECT queue_message_archive_now(array_agg(id), 'failed', 'unroutable', NULL, 'relay-1') FROM queue_message")
    assert "1 acknowledged\n" == cli("dead", "ack", id_)


@pytest.mark.parametrize("meant", ["ours", "theirs"])
def test_a_watch_replays_the_message_that_it_answers(cli: Cli, seeded: Seeded, shared: str, meant: str) -> None:
    """And not the newest with the id."""
    replay = "SELECT queue_message_dead_replay(id, xid, seq, 1) FROM queue_message_archive WHERE routing_key = %s"
    seeded.run(replay, meant)
    assert [(meant,)] == seeded.run(WAITING)


@pytest.mark.parametrize("way", ["command", "command, same id", "watch", "filter", "lake", "lake, same id"])
@pytest.mark.parametrize("sent", [False, True])
def test_a_replay_of_one_does_not_count_for_the_other(cli: Cli, seeded: Seeded, shared: str, way: str, *, sent: bool) -> None:
    """The other stays unanswered, also for a watch, and may be replayed; the one itself only with --again, by place alone."""
    if way.startswith("command"):
        cli("dead", "replay", _place(seeded, "ours"), *(["--same-id"] if "same" in way else []))
    elif way.startswith("lake"):
        seeded.run(LAKE.format("same" in way))
    elif way == "watch":
        seeded.run("SELECT queue_message_dead_replay(id, xid, seq, 1) FROM queue_message_archive WHERE routing_key = 'ours'")
    else:
        cli("replay", "--result", "failed", "--routing-key", "ours")
    if sent:
        seeded.run("SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'relay-1') FROM queue_message")
    assert ["theirs"] == [row["routing_key"] for row in cli.json("dead", "list")]
    ours, theirs = [f"{shared}@{xid}/{seq}" for xid, seq in seeded.run(FIRST, shared)]
    assert f"message {ours} was refused: it was replayed as" in cli.refused("dead", "replay", ours, code=1)
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message WHERE routing_key = 'theirs'")
    cli("dead", "replay", theirs)
    assert [(1,)] == seeded.run("SELECT count(*) FROM queue_message WHERE routing_key = 'theirs'")
    assert f"message {theirs} was refused" in cli.refused("dead", "replay", theirs, code=1)


@pytest.mark.parametrize("same_id", [[], ["--same-id"]], ids=["new id", "same id"])
@pytest.mark.parametrize("way", ["command", "filter"])
@pytest.mark.parametrize("fate", ["waiting", "success", "failed"])
def test_a_replay_by_filter_leaves_out_the_one_that_was_replayed_alone(
    cli: Cli, seeded: Seeded, shared: str, same_id: list[str], way: str, fate: str
) -> None:
    """A producer that reuses a message's id keeps no replay from it, whatever becomes of its own message's replay."""
    one = ["dead", "replay", _place(seeded, "theirs")] if way == "command" else ["replay", "--result", "failed", "--routing-key", "theirs"]
    cli(*one, *same_id)
    if fate != "waiting":
        code = None if fate == "success" else "unroutable"
        seeded.run("SELECT queue_message_archive_now(array_agg(id), %s, %s, NULL, 'relay-1') FROM queue_message", fate, code)
    again = [("theirs",)] if fate == "failed" else []

    cli("replay", "--result", "failed", "--routing-key", "ours")
    assert [("ours",)] == [row for row in seeded.run(WAITING) if row == ("ours",)]
    cli("replay", "--result", "failed")
    assert sorted([("ours",), *again, *([("theirs",)] if fate == "waiting" else [])]) == sorted(seeded.run(WAITING))


def test_a_watch_acknowledges_the_one_that_it_handled(cli: Cli, seeded: Seeded, shared: str) -> None:
    """And leaves the other, though it was replayed and has the same id."""
    cli("dead", "replay", _place(seeded, "ours"))
    cli("dead", "watch", "--once", "--ack", "--command", "true", "--routing-key", "ours")
    assert ["theirs"] == [row["routing_key"] for row in cli.json("dead", "list")]
    cli("dead", "watch", "--once", "--ack", "--command", "true")
    assert [] == cli.json("dead", "list")
    notes = (
        "SELECT routing_key, note LIKE 'replayed as %%' FROM queue_message_dead_ack JOIN queue_message_archive USING (xid, seq) ORDER BY 1"
    )
    assert [("ours", True), ("theirs", False)] == [(key, bool(replayed)) for key, replayed in seeded.run(notes)]


def test_a_replay_by_filter_replays_each_message_with_the_id(cli: Cli, seeded: Seeded, shared: str) -> None:
    """And not the newest twice."""
    cli("replay", "--result", "failed")
    assert {("ours",), ("theirs",)} == set(seeded.run(WAITING))


def test_a_replay_by_filter_with_the_same_id_refuses_the_second(cli: Cli, seeded: Seeded, shared: str) -> None:
    """Two messages with one id cannot wait at once, and neither counts as sent for the other."""
    told = cli.json("replay", "--result", "failed", "--same-id", code=1)
    assert (1, 1) == (told["messages"], told["refused"])
    assert "in the queue already" in told["refusals"][0]["reason"]


@pytest.mark.parametrize("command", [["dead", "replay"], ["replay", "--result", "failed"]], ids=" ".join)
def test_a_replay_with_the_same_id_ends_where_an_open_transaction_inserts_it(cli: Cli, seeded: Seeded, command: list[str]) -> None:
    """It changes nothing, says so in a sentence, and goes through when that transaction has ended."""
    id_ = seeded.archive("failed", "unroutable", routing_key="ours")
    one = [id_] if command[0] == "dead" else []
    with psycopg.connect(cli.env["RELAY_DATABASE_URL"]) as other:
        other.execute("INSERT INTO queue_message (id, exchange) VALUES (%s, 'e')", [id_])
        cli(*command, "--same-id", *one, code=1)
        assert "Another session holds a lock that this needs, and nothing was changed" in cli.stderr
        other.rollback()
    assert [] == seeded.run(WAITING)
    cli(*command, "--same-id", *one)
    assert [("ours",)] == seeded.run(WAITING)


def test_cancel_takes_back_all_that_waits_with_an_id(cli: Cli, seeded: Seeded) -> None:
    """It covers messages under a key and in the queue. A producer that took the id does not keep the other from being cancelled."""
    id_ = seeded.insert()
    seeded.run("INSERT INTO queue_message_keyed (id, exchange, coalesce_key) VALUES (%s, 'e', 'k')", id_)
    cli("cancel", id_)
    assert [] == seeded.run(WAITING)
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message_keyed")


def test_cancel_takes_back_nothing_where_one_with_the_id_is_claimed(cli: Cli, seeded: Seeded) -> None:
    """It says that the message may be sent."""
    id_ = seeded.insert()
    seeded.run("INSERT INTO queue_message_keyed (id, exchange, coalesce_key) VALUES (%s, 'e', 'k')", id_)
    seeded.run("UPDATE queue_message SET lock_expires_at = now() + interval '1 min', lock_token = gen_random_uuid(), locked_by = 1")
    cli.refused("cancel", id_, code=1)
    assert [(1,)] == seeded.run("SELECT count(*) FROM queue_message_keyed")


def test_a_place_that_is_none_is_refused(cli: Cli) -> None:
    """Before anything is asked of the database."""
    for text in ("x", "1@2/3", "00000000-0000-0000-0000-000000000000@1", "00000000-0000-0000-0000-000000000000@1/x"):
        cli("dead", "replay", text, code=2)
        assert "with @XID/SEQ if other messages have the same id" in cli.stderr
