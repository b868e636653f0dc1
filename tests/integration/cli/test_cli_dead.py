"""relay dead list, show, ack and replay; relay key; relay config."""

from __future__ import annotations

import json
import subprocess

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from relay.cli.common.output import quoted
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login


def test_dead_messages_are_listed_until_they_are_acknowledged(cli: Cli, seeded: Seeded) -> None:
    """The newest first; with --all the acknowledged ones too; filtered by exchange and result."""
    failed = seeded.archive("failed", "unroutable", exchange="audit")
    rejected = seeded.archive("rejected", "too_large")
    seeded.archive("success")

    assert [rejected, failed] == [row["id"] for row in cli.json("dead", "list")]
    assert [failed] == [row["id"] for row in cli.json("dead", "list", "--exchange", "audit")]
    assert [rejected] == [row["id"] for row in cli.json("dead", "list", "--result", "rejected")]
    assert [rejected] == [row["id"] for row in cli.json("dead", "list", "--limit", "1")]
    assert [failed] == [row["id"] for row in cli.json("dead", "list", "--code", "unroutable", "--routing-key", "")]

    assert "1 acknowledged\n" == cli("dead", "ack", failed, "--note", "known")
    assert [rejected] == [row["id"] for row in cli.json("dead", "list")]
    assert "1 acknowledged, 1 was already\n" == cli("dead", "ack", failed, rejected)
    assert "no dead messages\n" == cli("dead", "list")
    assert {failed, rejected} == {row["id"] for row in cli.json("dead", "list", "--all")}


def test_dead_messages_are_counted_by_reason(cli: Cli, seeded: Seeded) -> None:
    """By exchange, routing key, result and code, the most first, with the newest error; acknowledged ones do not count."""
    for detail in ("old", "new"):
        seeded.archive("failed", "unroutable", detail, exchange="audit", routing_key="k")
    seeded.archive("failed", "expired", exchange="audit", routing_key="k")
    cli("dead", "ack", seeded.archive("failed", "expired", exchange="audit", routing_key="k"))

    groups = cli.json("dead", "groups")

    named = [
        (row["messages"], row["exchange"], row["routing_key"], row["result"], row["error_code"], row["newest_detail"]) for row in groups
    ]
    assert [(2, "audit", "k", "failed", "unroutable", "new"), (1, "audit", "k", "failed", "expired", None)] == named
    assert [(2, 3)] * 2 == [(row["all_groups"], row["all_messages"]) for row in groups]
    assert 1 == len(cli.json("dead", "groups", "--limit", "1"))
    assert "failed (unroutable): new" in cli("dead", "groups")


def test_a_cancelled_statement_is_not_taken_for_a_lost_server(cli: Cli, database_url: str) -> None:
    """The sentence names the setting that may have ended it."""
    with psycopg.connect(database_url) as other:
        other.execute("LOCK TABLE queue_message_archive IN ACCESS EXCLUSIVE MODE")
        limited = make_conninfo(database_url, options="-c statement_timeout=100ms")
        sentence = cli.refused("dead", "list", code=1, RELAY_DATABASE_URL=limited)

    assert "it took longer than statement_timeout allows, or somebody cancelled it" in sentence


def test_several_answers_are_all_or_none(cli: Cli, seeded: Seeded) -> None:
    """One wrong id, and nothing is acknowledged or replayed."""
    dead, waiting = seeded.archive("failed", "unroutable"), seeded.insert()

    assert f"No dead message has the id {waiting}." == cli.refused("dead", "ack", dead, waiting, code=3)
    assert "is still in the queue" in cli.refused("dead", "replay", dead, waiting, code=1)

    assert [dead] == [row["id"] for row in cli.json("dead", "list")]
    assert [(1,)] == seeded.run("SELECT count(*) FROM queue_message")


def test_dead_show_tells_why_and_holds_back_the_content_until_asked(cli: Cli, seeded: Seeded) -> None:
    """Contents are for roles that may read the table."""
    dead = seeded.archive("rejected", "too_large", "content is too large", content='{"card": "4111"}')

    assert "content is too large" in cli("dead", "show", dead)
    assert "4111" not in cli("dead", "show", dead)
    [row] = cli.json("dead", "show", dead, "--content")
    assert {"card": "4111"} == json.loads(row["content"])
    with login(cli.env["RELAY_DATABASE_URL"], "queue_message_operator") as url:
        for command in (["dead", "show", dead, "--content"], ["dead", "watch", "--once", "--content"]):
            sentence = cli.refused(*command, code=1, RELAY_DATABASE_URL=url)
            assert "takes SELECT on queue_message_dead, which `relay grant etl LOGIN` gives; or leave out --content" in sentence
            assert "operator" not in sentence
    with login(cli.env["RELAY_DATABASE_URL"], "queue_message_operator", "queue_message_etl") as url:
        assert "4111" in cli("dead", "show", dead, "--content", RELAY_DATABASE_URL=url)


def test_dead_show_of_a_living_message_points_further(cli: Cli, seeded: Seeded) -> None:
    """It is not dead; relay show finds it."""
    waiting = seeded.insert()

    assert f"`relay show {waiting}` looks everywhere" in cli.refused("dead", "show", waiting, code=3)


@pytest.mark.ids("B13")
def test_a_dead_message_is_replayed_as_a_new_one(cli: Cli, seeded: Seeded) -> None:
    """It waits again with its lineage, and the dead one counts as answered; --same-id keeps the id."""
    dead = seeded.archive("failed", "unroutable", routing_key="a", content='{"n": 1}')
    other = seeded.archive("failed", "unroutable", routing_key="b")

    again = cli("dead", "replay", dead).strip()
    assert other == cli("dead", "replay", other, "--same-id").strip()

    assert [(again, "a", {"n": 1}, dead), (other, "b", {}, other)] == seeded.run(
        "SELECT id::text, routing_key, content, replay_of::text FROM queue_message ORDER BY routing_key"
    )
    assert [] == cli.json("dead", "list")


@pytest.mark.ids("B13")
def test_an_id_that_is_given_twice_is_one_message(cli: Cli, seeded: Seeded) -> None:
    """A list put together by hand or by a script sends nothing twice, in whatever letters the id is written."""
    dead, other = seeded.archive("failed", "unroutable", routing_key="a"), seeded.archive("failed", "unroutable", routing_key="b")

    assert 2 == len(cli("dead", "replay", dead, other, dead.upper()).splitlines())
    assert [("a",), ("b",)] == seeded.run("SELECT routing_key FROM queue_message ORDER BY routing_key")
    third = seeded.archive("failed", "unroutable", routing_key="c")
    assert f"{third}\n" == cli("dead", "replay", third, third, "--same-id")
    fourth = seeded.archive("failed", "unroutable")
    assert "1 acknowledged\n" == cli("dead", "ack", fourth, fourth)


def test_a_blocked_key_is_listed_and_skipped(cli: Cli, seeded: Seeded) -> None:
    """Its first message goes to the archive as discarded, the next one becomes due."""
    head, successor = seeded.insert(ordering_key="k", available_at="2031-01-01T00:00:00Z"), seeded.insert(ordering_key="k")

    [row] = cli.json("key", "list")
    assert ("k", "head waits", 1, head) == (row["ordering_key"], row["why"], row["behind"], row["head_id"])
    assert f"is {head}, not {successor} any more" in cli.refused("key", "skip", "k", "--head", successor, code=1)
    assert f"message {head} is archived as discarded" in cli("key", "skip", "k", "--head", head)
    assert [(head, "discarded", "skipped")] == seeded.run("SELECT id::text, result, error_code FROM queue_message_archive")
    assert [(successor, True)] == seeded.run("SELECT id::text, available_at <= now() FROM queue_message")
    assert "No message waits" in cli.refused("key", "skip", "nobody", code=3)


@pytest.mark.parametrize("key", ["park\x1bkey", 'it\'s "x" \\', "\u202eK\u00e4se\u2028\U0001f600", "", "k 1%"])
def test_a_sentence_of_the_database_shows_a_key_that_can_be_typed_again(cli: Cli, seeded: Seeded, key: str) -> None:
    """The command's own sentences do the same. A shell accepts the key exactly as it is printed."""
    head, other = seeded.insert(ordering_key=key), "019a8f4e-0000-7000-8000-000000000000"

    refused = [cli.refused("key", "skip", key, "--head", other, code=1)]
    seeded.run("DELETE FROM queue_message WHERE id = %s", head)
    refused.append(cli.refused("key", "skip", key, "--head", other, code=3))

    for sentence, after in zip(refused, [" is ", "."], strict=True):
        shown = sentence.split("ordering key ", 1)[1].rsplit(after, 1)[0]
        script = f"printf %s {shown.split(' is ')[0] if ' is ' in shown else shown}"
        assert key.encode() == subprocess.run(["/bin/bash", "-c", script], check=True, capture_output=True).stdout
    assert f"is {head}, not {other} any more: look again." in refused[0]
    assert not key.isascii() or refused[1] == f"No message waits under the ordering key {quoted(key)}."


def test_a_first_message_that_was_not_tried_is_skipped_by_its_id_only(cli: Cli, seeded: Seeded) -> None:
    """The operator who saw the key wait meant the message before it, which may be gone. A message that was tried needs no id."""
    tried, successor = seeded.insert(ordering_key="k"), seeded.insert(ordering_key="k")
    seeded.run("UPDATE queue_message SET attempts = 1, available_at = now() + interval '1 h' WHERE id = %s", tried)

    assert f"message {tried} is archived as discarded" in cli("key", "skip", "k")
    refused = cli.refused("key", "skip", "k", code=1)

    assert refused.startswith(f"Message {successor}, the first of key 'k', was not tried yet, and nothing is changed")
    assert refused.endswith(f"--head {successor}.")
    assert [(successor,)] == seeded.run("SELECT id::text FROM queue_message")
    assert f"message {successor} is archived as discarded" in cli("key", "skip", "k", "--head", successor)


def test_a_locked_head_is_not_skipped(cli: Cli, seeded: Seeded) -> None:
    """It may be with the broker already."""
    head = seeded.insert(ordering_key="k")
    seeded.run("UPDATE queue_message SET lock_expires_at = now() + interval '1 min'")

    assert f"Message {head} is locked until" in cli.refused("key", "skip", "k", code=1)


def test_a_key_is_parked_and_resumed(cli: Cli, seeded: Seeded) -> None:
    """A second reason takes the place of the first; what is not parked cannot be resumed."""
    seeded.insert(ordering_key="k")

    assert "key 'k' is parked\n" == cli("key", "park", "k", "--reason", "broken")
    assert "key 'k' was parked already; nothing is changed\n" == cli("key", "park", "k")
    assert "parked: broken" in cli("key", "list")
    assert "key 'k' was parked already; the reason is now 'mended'\n" == cli("key", "park", "k", "--reason", "mended")
    assert "parked: mended" in cli("key", "list")
    assert "key 'k' is resumed\n" == cli("key", "resume", "k")
    assert "is not parked" in cli.refused("key", "resume", "k", code=3)
    assert "no key waits\n" == cli("key", "list")


@pytest.mark.parametrize("key", ["k", "", "a b", "it's", "a\nb\x1b[31m'\\\"c", "tab\tf\u202eg\x85", "Ü $HOME `x`"])
def test_a_key_is_shown_as_a_shell_takes_it(cli: Cli, seeded: Seeded, key: str) -> None:
    """The same in the list of keys, in the status and in what the commands say, to be copied into the next command."""
    cli("key", "park", "--", key)
    words = quoted(key)

    assert subprocess.run(["bash", "-c", f"printf %s {words}"], check=True, capture_output=True, env={}).stdout == key.encode()
    assert any(line.startswith(f"{words} ") for line in cli("key", "list").splitlines())
    assert any(line.startswith(f"key {words}: parked") for line in cli("status").splitlines())
    assert f"key {words} is resumed\n" == cli("key", "resume", "--", key)
    assert f"Key {words} is not parked" in cli.refused("key", "resume", "--", key, code=3)
    assert [] == seeded.run("SELECT FROM queue_message_key_hold")


def test_an_exchange_is_shown_as_a_shell_takes_it(cli: Cli, seeded: Seeded) -> None:
    """Also within the command that the status proposes."""
    cli("pause", "a\x1bb")

    assert any(
        line.startswith("exchange $'a\\x1bb' has been paused since") and line.rstrip().endswith("`relay resume $'a\\x1bb'`")
        for line in cli("status").splitlines()
    )
    assert [("a\x1bb",)] == seeded.run("SELECT exchange FROM queue_message_pause")


def test_a_key_of_a_paused_exchange_says_so(cli: Cli, seeded: Seeded) -> None:
    """The list of keys gives the reason and how to resume the exchange. The status has a line for the exchange, not for each key."""
    head = seeded.insert(ordering_key="k")
    cli("pause", "orders", "--reason", "upgrade")

    [row] = cli.json("key", "list")
    assert ("k", "exchange paused", head, 0, "orders", "upgrade") == tuple(
        row[name] for name in ("ordering_key", "why", "head_id", "behind", "exchange", "reason")
    )
    assert "exchange 'orders' is paused: upgrade (`relay resume orders`)" in cli("key", "list")
    assert ([], 0) == (cli.json("status")["blocked_keys"], cli.json("status")["queue"]["blocked_keys"])


def test_policy_is_listed_and_changed(cli: Cli, seeded: Seeded) -> None:
    """By the name in the table or in the environment, and it says what held before."""
    assert "unroutable is retry,audit=accept (was retry)\n" == cli("config", "set", "RELAY_UNROUTABLE", "retry,audit=accept")
    assert "max_attempts is 3 (was 12)\n" == cli("config", "set", "max-attempts", "3")

    held = {row["name"]: (row["value"], row["default"]) for row in cli.json("config", "list")}
    assert (("3", "12"), ("retry,audit=accept", "retry")) == (held["max_attempts"], held["unroutable"])
    assert "max_attempts" in cli("config", "list")


@pytest.mark.parametrize(("name", "value", "says"), [("max_attempts", "0", "must be a whole number from 1"), ("speed", "9", "no setting")])
def test_policy_that_makes_no_sense_is_refused(cli: Cli, name: str, value: str, says: str) -> None:
    """In the database's own sentence."""
    assert says in cli.refused("config", "set", name, value, code=1)
