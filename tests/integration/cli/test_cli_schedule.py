"""relay schedule: add, list, pause, resume, run-now, remove."""

from __future__ import annotations

import pytest

from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

NIGHTLY = ("schedule", "add", "nightly", "0 3 * * *", "reports", "nightly", '{"total": 1.10}', "--zone", "Asia/Kathmandu")

FORMS = (
    "the five fields of a cron line (minute, hour, day of month, month, day of week) such as '0 3 * * *', a name such as @daily, or "
    "EVERY 15 minutes"
)

TAKEN = "There is a schedule 'nightly' already: remove it first, or replace it (--replace, in SQL replace => true)."


@pytest.mark.ids("A20", "A36")
def test_a_schedule_is_added_and_listed(cli: Cli, seeded: Seeded) -> None:
    """Its ticks as a clock in its zone shows them; JSON has them in UTC too, and the content to the digit."""
    said = cli(*NIGHTLY, "--missed", "all", "--options", '{"contentType": "a/b"}', "--ordering-key", "k", "--expires-after", "6h")

    [(next_at,)] = seeded.run("SELECT to_char(next_at AT TIME ZONE 'Asia/Kathmandu', 'YYYY-MM-DD HH24:MI:SS') FROM queue_message_schedule")
    assert next_at.endswith(" 03:00:00")
    assert f"schedule 'nightly' runs next at {next_at}+05:45\n" == said
    assert f"nightly  '0 3 * * *'  Asia/Kathmandu  reports nightly  all           {next_at}+05:45" in cli("schedule", "list")
    [listed] = cli.json("schedule", "list")
    assert (f"{next_at}+05:45", 21_600, "k", None) == tuple(listed[name] for name in ("next", "expires_after", "ordering_key", "last_at"))
    assert ({"content_type": "a/b"}, "+00:00") == (listed["options"], listed["next_at"][-6:])
    assert [('{"total": 1.10}',)] == seeded.run("SELECT content::text FROM queue_message_schedule")


def test_a_schedule_is_paused_resumed_run_and_removed(cli: Cli, seeded: Seeded) -> None:
    """Each says what it did, and says so where there was nothing to do."""
    cli(*NIGHTLY)
    assert "schedule 'nightly' is paused\n" == cli("schedule", "pause", "nightly")
    assert "schedule 'nightly' was paused already; nothing is changed\n" == cli("schedule", "pause", "nightly")
    assert "paused" in cli("schedule", "list")
    assert "schedule 'nightly' is paused\n" == cli(*NIGHTLY, "--replace")
    assert "schedule 'nightly' is resumed\n" == cli("schedule", "resume", "nightly")
    assert "schedule 'nightly' was not paused; nothing is changed\n" == cli("schedule", "resume", "nightly")
    printed = cli("schedule", "run-now", "nightly").strip()
    assert [(printed, "reports")] == seeded.run("SELECT id::text, exchange FROM queue_message")
    assert "schedule 'nightly' is removed\n" == cli("schedule", "remove", "nightly")
    assert "no schedules\n" == cli("schedule", "list")


def test_errors_and_last_ticks_are_listed(cli: Cli, seeded: Seeded) -> None:
    """Who looks sees what went wrong, and what went out last."""
    cli("schedule", "add", "n", "@hourly", "reports", "", "1")
    seeded.run("SELECT queue_message_run_schedules(now() + '1 hour')")
    seeded.run("UPDATE queue_message_schedule SET last_error = E'no \\x1b[2J room'")

    text = cli("schedule", "list")
    assert "no ?[2J room" in text
    [row] = cli.json("schedule", "list")
    assert row["last"] in text
    assert [(row["last_id"],)] == seeded.run("SELECT id::text FROM queue_message")


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (["remove", "x"], 3, "There is no schedule 'x'; `relay schedule list` shows them all."),
        (["pause", "x"], 3, "There is no schedule 'x'."),
        (["resume", "a\nb"], 3, r"There is no schedule $'a\x0ab'."),
        (["run-now", "x"], 3, "There is no schedule 'x'."),
        (["add", "nightly", "@daily", "e", "k", "1"], 1, TAKEN),
        (["add", "n", "@reboot", "e", "k", "1"], 1, f"The schedule '@reboot' must be {FORMS}."),
        (["add", "n", "0 0 31 4 *", "e", "k", "1"], 1, "The schedule '0 0 31 4 *' never comes: there is no such date."),
        (["add", "n", "@daily", "e", "k", "1", "--zone", "Mars"], 1,
         "PostgreSQL knows no time zone 'Mars'; pg_timezone_names lists those that it knows, such as Europe/Berlin."),
        (["add", "n", "@daily", "e", "k", "{"], 1,
         "content is not JSON: Expecting property name enclosed in double quotes at character 2."),
        (["add", "n", "@daily", "e" * 256, "k", "1"], 1, "exchange is 256 bytes long; the limit is 255 bytes."),
        (["add", "n", "@daily", "e", "k", "1", "--options", "[1"], 2, "--options must be a JSON object such as '{\"priority\": 5}'."),
        (["add", "n", "@daily", "e", "k", "1", "--options", '{"priority": 300}'], 1,
         "options.priority must be a whole number from 0 to 255."),
        (["add", "n", "@daily", "e", "k", "1", "--missed", "some"], 2,
         "--missed: 'some' is not one of 'skip', 'once', 'all'. See `relay schedule add --help`."),
        (["add", "n", "@daily", "e", "k", "1", "--expires-after", "soon"], 2,
         "--expires-after must be a length such as 90s, 15m, 2h, 7d. See `relay schedule add --help`."),
        (["add", "n", "@daily", "e", "k", "1", "--expires-after", "0s"], 1,
         "The time after which a message of a schedule expires must be from 1 millisecond to 100 years."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_a_sentence(cli: Cli, seeded: Seeded, args: list[str], code: int, sentence: str) -> None:
    """And nothing is changed by it."""
    cli(*NIGHTLY)
    before = seeded.run("TABLE queue_message_schedule")

    said = cli.refused("schedule", *args, code=code)

    assert sentence == said
    assert before == seeded.run("TABLE queue_message_schedule")


def test_an_operator_has_schedules_and_adds_what_it_may_insert(cli: Cli, database_url: str) -> None:
    """Each command by a login that owns nothing; to add one it must be a producer too, or it could have anything sent."""
    with login(database_url, "queue_message_operator") as url:
        cli.env["RELAY_DATABASE_URL"] = url
        assert "takes `relay grant operator LOGIN` and `relay grant producer LOGIN`" in cli.refused(*NIGHTLY, code=1)
    with login(database_url, "queue_message_operator", "queue_message_producer") as url:
        cli(*NIGHTLY, RELAY_DATABASE_URL=url)
    with login(database_url, "queue_message_operator") as url:
        for command in ("pause", "resume", "run-now", "remove"):
            cli("schedule", command, "nightly", RELAY_DATABASE_URL=url)


@pytest.mark.parametrize("role", ["producer", "relay"])
def test_others_have_no_schedules(cli: Cli, database_url: str, role: str) -> None:
    """An application inserts its own messages, and a relay carries schedules out."""
    with login(database_url, f"queue_message_{role}") as url:
        cli.env["RELAY_DATABASE_URL"] = url
        for command in (NIGHTLY, ("schedule", "list"), *(("schedule", name, "n") for name in ("pause", "resume", "run-now", "remove"))):
            assert "`relay grant operator LOGIN`" in cli.refused(*command, code=1)
