"""Rows that PostgreSQL cannot hand out, or Python cannot read: one of them hides no other from an operator."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.cli.commands import dead as dead_commands
from relay.postgres.operator_session import OperatorSession
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.encodings import BYTE, MAKE_BYTES, encoded_database, letter
from tests.support.servers.shared import Databases
from tests.support.servers.webhook_receiver import hook

ENDLESS = "(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000))"
"""Has more than a gigabyte as text."""
TIMES = ("infinity", "-infinity", "12000-01-01 00:00:00+00", "0044-03-15 00:00:00+00 BC")
"""Times that Python lacks."""


def archive_beside(
    seeded: Seeded, routing_key: str, *, content: str = "'{}'", created_at: str = "now()", archived_at: str = "now()", code: str = "NULL"
) -> str:
    """A dead message that no trigger has seen, of SQL expressions; its id."""
    seeded.run("SET session_replication_role = replica")
    try:
        [(id_,)] = seeded.run(
            "INSERT INTO queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, archived_at, attempts, "
            "result, error_code, archived_xid) VALUES (pg_current_xact_id(), nextval('pg_temp.places'), gen_random_uuid(), 'orders', "
            f"{routing_key}, {content}, '{{}}', {created_at}, {archived_at}, 1, 'failed', {code}, pg_current_xact_id()) RETURNING id::text"
        )
    finally:
        seeded.run("RESET session_replication_role")
    return str(id_)


@pytest.fixture
def beside(seeded: Seeded) -> Seeded:
    """The database, with a sequence for places of its own."""
    seeded.run("CREATE TEMP SEQUENCE places START 1000000")
    return seeded


def test_a_content_that_postgresql_cannot_hand_out_is_told_without_it(cli: Cli, beside: Seeded) -> None:
    """On standard output and by webhook, with one sentence in its place; its neighbours come as ever, and all are acknowledged."""
    first = archive_beside(beside, "'first'")
    bad = archive_beside(beside, "'bad'", content=ENDLESS)
    last = archive_beside(beside, "'last'")
    with hook() as receiver:
        printed = cli(
            "dead", "watch", "--once", "--ack", "--content", "--log", "--json", "--webhook", receiver.url, "--unsigned", "--allow-private"
        )
        posted = [json.loads(receiver.next().body)["data"] for _ in range(3)]

    assert [first, bad, last] == [told["id"] for told in posted]
    assert posted == [json.loads(line) for line in printed.splitlines()]
    assert ["{}", None, "{}"] == [told["content"] for told in posted]
    missing = posted[1]["content_missing"]
    # The words in parentheses are PostgreSQL's own, and differ from version to version.
    assert missing.startswith(
        "PostgreSQL cannot hand out the content: A value is beyond a limit of PostgreSQL, such as a gigabyte for a text ("
    )
    assert [] == [told for told in (posted[0], posted[2]) if "content_missing" in told]
    assert [] == cli.json("dead", "list")


def test_each_command_shows_a_dead_message_whose_content_cannot_be_handed_out(cli: Cli, beside: Seeded) -> None:
    """The line for people has the sentence too."""
    bad = archive_beside(beside, "'bad'", content=ENDLESS)

    assert [bad] == [row["id"] for row in cli.json("dead", "list")]
    assert "PostgreSQL cannot hand out the content: " in cli("dead", "show", bad, "--content")
    assert f"{bad} to 'orders' 'bad' after 1 attempt, no code: no detail (PostgreSQL cannot" in cli("dead", "watch", "--once", "--content")
    assert "failed" == cli.json("show", bad)["story"][0]["state"]


def test_a_content_that_is_too_large_to_be_read_is_left_out(cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is said; what fits is whole."""
    small, large = seeded.archive("failed", content='{"n": 1}'), seeded.archive("failed", content='{"n": 12345}', body=None)
    monkeypatch.setattr(dead_commands, "MAX_CONTENT", 12)

    [shown] = cli.json("dead", "show", small, "--content")
    assert ('{"n": 1}', "{}", None) == (shown["content"], shown["options"], shown["body"])
    [shown] = cli.json("dead", "show", large, "--content")
    assert (None, "The content takes 14 bytes here, and at most 12 are shown.") == (shown["content"], shown["content_missing"])


def test_a_list_cuts_names_that_no_exchange_can_have(cli: Cli, beside: Seeded) -> None:
    """Two of megabytes filled a terminal for a minute."""
    archive_beside(beside, "repeat('k', 5000)")

    [listed] = cli.json("dead", "list")
    assert "k" * 256 == listed["routing_key"]


@pytest.mark.parametrize("time", TIMES)
def test_a_time_that_no_calendar_has_hides_no_neighbour(cli: Cli, beside: Seeded, time: str) -> None:
    """It is shown as PostgreSQL writes it, by each command and to each handler."""
    bad = archive_beside(beside, "'bad'", created_at=f"'{time}'")
    good = archive_beside(beside, "'good'")

    assert {bad: time} == {row["id"]: row["created_at"] for row in cli.json("dead", "list") if row["id"] == bad}
    assert {bad, good} == {row["id"] for row in cli.json("dead", "list")}
    assert time == cli.json("dead", "show", bad)[0]["created_at"]
    assert [bad] == [row["replay_of"] or bad for row in cli.json("show", bad)["story"]]
    told = [json.loads(line) for line in cli("dead", "watch", "--once", "--json").splitlines()]
    assert [(bad, time), (good, told[1]["created_at"])] == [(row["id"], row["created_at"]) for row in told]


def test_a_rule_replays_what_died_at_a_time_that_no_calendar_has(cli: Cli, beside: Seeded) -> None:
    """The rule replays it at once, because its age is unknown. Its neighbour waits for its own time."""
    bad = archive_beside(beside, "'bad'", archived_at="'12000-01-01'", code="'nacked'")
    good = archive_beside(beside, "'good'", code="'nacked'")

    cli("dead", "watch", "--once", "--replay", "code=nacked,after=1h")

    assert f"Message {bad} was replayed as " in cli.stderr
    assert [good] == [row["id"] for row in cli.json("dead", "list")]


@pytest.fixture(params=["WIN1252", "EUC_JP", "UTF8"])
def foreign(request: pytest.FixtureRequest, databases: Databases, tmp_path: Path) -> Iterator[tuple[Cli, Seeded, str]]:
    """A command, a database in an encoding, and an SQL expression of a letter that UTF-8 lacks; in UTF8, of a byte that is no letter."""
    with encoded_database(databases, request.param) as url:
        cli, seeded = Cli(url, tmp_path), Seeded(url)
        seeded.run("SET client_encoding TO 'UTF8'")
        seeded.run("CREATE TEMP SEQUENCE places START 1000000")
        yield cli, seeded, letter(request.param)
        seeded.close()
        cli.close()


def test_a_letter_that_utf_8_lacks_hides_no_neighbour(foreign: tuple[Cli, Seeded, str]) -> None:
    """Each command shows its bytes, and the other letters of the row as they are, in keys and contents."""
    cli, seeded, bad_letter = foreign
    code = bad_letter.split("'")[1].removeprefix(r"\x")
    bad = archive_beside(seeded, f"'key ' || {bad_letter}", content=f"to_jsonb({bad_letter})")
    good = archive_beside(seeded, "'good'")

    keys = {row["id"]: row["routing_key"].replace("><", "") for row in cli.json("dead", "list")}
    assert {bad: f"key <{code}>", good: "good"} == keys
    assert code in cli.json("show", bad)["story"][0]["routing_key"].replace("><", "")
    told = [json.loads(line) for line in cli("dead", "watch", "--once", "--json", "--content").splitlines()]
    assert [(bad, f'"<{code}>"'), (good, "{}")] == [(row["id"], row["content"].replace("><", "")) for row in told]
    assert [good] == [row["id"] for row in cli.json("dead", "show", good)]


def test_a_contract_on_trial_leaves_out_what_cannot_be_handed_out(cli: Cli, beside: Seeded, tmp_path: Path) -> None:
    """The others are checked."""
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    archive_beside(beside, "'bad'", content=ENDLESS, code="'content_unprintable'")
    archive_beside(beside, "'good'")

    assert (1, 0) == tuple(cli.json("contract", "test", "orders", "#", str(schema))[name] for name in ("messages", "would_fail"))


def test_a_relay_s_row_of_any_bytes_hides_no_status(cli: Cli, seeded: Seeded) -> None:
    """A login with that role writes its name and its state, which is JSON."""
    seeded.run(MAKE_BYTES)
    seeded.run(
        "INSERT INTO queue_message_relay (name, version, host, pid, state) "
        f"VALUES ({BYTE}, '1.0', 'h', 1, jsonb_build_object('broker', {BYTE}))"
    )

    [shown] = cli.json("status")["relays"]
    assert ("<ff>", "<ff>") == (shown["name"], shown["state"]["broker"])
    assert "<ff>" in cli("status")


def test_a_contract_on_trial_reads_any_bytes(cli: Cli, beside: Seeded, tmp_path: Path) -> None:
    """It reads within a transaction, where nothing can be read again."""
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    beside.run(MAKE_BYTES)
    archive_beside(beside, "'bad'", content=f"to_jsonb({BYTE})")

    assert 1 == json.loads(cli("contract", "test", "orders", "#", str(schema), "--json", code=1))["would_fail"]


def test_a_content_that_retention_has_dropped_meanwhile_is_said_to_be_missing(database_url: str) -> None:
    """The message is still reported."""
    with OperatorSession(database_url, schema="public") as opened:
        told = dead_commands.with_content(opened, {"id": str(uuid.uuid4()), "xid": "7", "seq": 1})

    assert (None, "The message is no longer in the archive.") == (told["content"], told["content_missing"])
