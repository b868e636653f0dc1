"""relay enqueue, show, pause and resume."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from relay.maintenance.maintenance import HEARTBEAT_SECONDS
from tests.support.relays.cli import Cli, Seeded

FOLLOW = f": relays follow within about {HEARTBEAT_SECONDS:g} seconds; what they have claimed by then is still sent"
"""They read the policy with each heartbeat."""


def test_one_message_is_enqueued_and_its_id_printed(cli: Cli, seeded: Seeded) -> None:
    """Content keeps its digits, and options are those of the column."""
    id_ = cli("enqueue", "orders", "paid", '{"total": 1.10}', "--options", '{"contentType": "a/b"}', "--ordering-key", "customer-7").strip()

    assert [(id_, "orders", "paid", '{"total": 1.10}', {"content_type": "a/b"}, "customer-7")] == seeded.run(
        "SELECT id::text, exchange, routing_key, content::text, options, ordering_key FROM queue_message"
    )


def test_each_line_of_standard_input_is_a_message(cli: Cli, seeded: Seeded) -> None:
    """In the order of the lines, in one transaction, empty lines left out."""
    lines = "".join(f"{number}\n\n" for number in range(2500))

    assert "2500 messages enqueued\n" == cli("enqueue", "orders", "paid", stdin=lines)
    assert [(number,) for number in range(2500)] == seeded.run("SELECT content::text::int FROM queue_message ORDER BY xid, seq")
    assert [(1,)] == seeded.run("SELECT count(DISTINCT xid) FROM queue_message")


def test_the_ids_of_lines_are_printed_if_asked_for(cli: Cli, seeded: Seeded) -> None:
    """One a line, in the order of the lines."""
    printed = cli("enqueue", "orders", "paid", "--ids", stdin="1\n2\n").split()

    assert [(id_,) for id_ in printed] == seeded.run("SELECT id::text FROM queue_message ORDER BY seq")


def test_bad_lines_are_named_by_number_and_nothing_is_enqueued(cli: Cli, seeded: Seeded) -> None:
    """The bad line may also follow thousands of good ones that were already sent to the database."""
    good = b"".join(b"%d\n" % number for number in range(1500))

    assert "" == cli("enqueue", "orders", "paid", stdin=good + b'{\n"\xff"\n\n"\\u0000"\n7\n', code=1)

    assert [
        "line 1501: content is not JSON: Expecting property name enclosed in double quotes at character 2.",
        "line 1502: not UTF-8.",
        "line 1504: content holds a NUL character, which PostgreSQL cannot store; leave it out or send it in body.",
        "3 bad lines: nothing was enqueued; each line must be one whole JSON value.",
    ] == cli.stderr.splitlines()
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message")


@pytest.mark.parametrize("stdin", ["", "\n \n\n"])
def test_an_empty_input_is_told(cli: Cli, stdin: str) -> None:
    """A program that wrote nothing, or a file that was forgotten, does not look like success."""
    assert cli.refused("enqueue", "orders", "paid", code=1, stdin=stdin).startswith("Standard input holds no line with JSON")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_told_once(cli: Cli, seeded: Seeded, encoding: str) -> None:
    """With its line and what to do, not once for every line behind it."""
    sentence = cli.refused("enqueue", "orders", "paid", code=1, stdin="1\n2\n".encode(encoding))

    assert "line 1: begins with a byte order mark: nothing was enqueued; save the input as UTF-8 without one." == sentence
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message")


def test_one_message_is_not_messages(cli: Cli) -> None:
    """Nor is one bad line lines."""
    assert "1 message enqueued\n" == cli("enqueue", "orders", "paid", stdin="1\n")
    cli("enqueue", "orders", "paid", stdin="1\n{\n", code=1)
    assert "1 bad line: nothing was enqueued" in cli.stderr
    assert "0 messages would be replayed\n" == cli("replay", "--from", "1h", "--dry-run")


def test_an_empty_ordering_key_is_a_key(cli: Cli, seeded: Seeded) -> None:
    """Its messages go out one after the other, as the help and the docs say."""
    cli("enqueue", "orders", "paid", "1", "--ordering-key", "")
    cli("enqueue", "orders", "paid", "1")

    assert [("", True), (None, False)] == seeded.run("SELECT ordering_key, lane IS NOT NULL FROM queue_message ORDER BY seq")


def test_of_very_many_bad_lines_twenty_are_named(cli: Cli) -> None:
    """The rest is counted."""
    cli("enqueue", "orders", "paid", stdin="x\n" * 1000, code=1)

    assert 21 == len(cli.stderr.splitlines())
    assert "1000 bad lines (980 of them not shown)" in cli.stderr


def test_times_may_be_given_or_counted_from_now(cli: Cli, seeded: Seeded) -> None:
    """By the database's clock."""
    cli("enqueue", "orders", "paid", "1", "--available-at", "15m", "--expires-at", "2031-01-31T12:00:00+01:00")

    [(wait, expires)] = seeded.run("SELECT available_at - created_at, expires_at FROM queue_message")
    assert timedelta(minutes=15) - timedelta(seconds=30) < wait <= timedelta(minutes=15)
    assert datetime(2031, 1, 31, 11, tzinfo=UTC) == expires


@pytest.mark.parametrize("given", ["2031-01-31", "2031-01-31 12:00", "20310131T12"])
def test_a_time_without_a_zone_is_told_how_to_be_written(cli: Cli, seeded: Seeded, given: str) -> None:
    """Each form that the sentence names is taken."""
    sentence = cli.refused("enqueue", "orders", "paid", "1", "--available-at", given, code=2)

    named = re.findall(r"\d{4}-\S+", sentence)
    for form in named:
        cli("enqueue", "orders", "paid", "1", "--available-at", form.removesuffix("."))
    assert [(2,)] == seeded.run("SELECT count(*) FROM queue_message") == [(len(named),)]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["x" * 256, "key", "1"], 1, "exchange is 256 bytes long; the limit is 255 bytes"),
        (["orders", "key", "{"], 1, "content is not JSON"),
        (["orders", "key", "1", "--options", '{"prority": 1}'], 1, 'unknown option "prority"'),
        (["orders", "key", "1", "--options", "[]"], 2, "--options must be a JSON object"),
        (
            ["orders", "key", "1", "--options", '{"headers":{"n":1e400}}'],
            1,
            "fits neither a 64-bit integer nor a double; send it as a string",
        ),
        (["orders", "key", "1", "--options", '{"priority":1e400}'], 1, "options.priority must be a whole number from 0 to 255"),
        (["orders", "key", "1", "--options", '{"headers":{"n":NaN}}'], 2, "--options must be a JSON object"),
        (["orders", "key", "1", "--options", '{"priority":' + "1" * 5000 + "}"], 1, "options.priority must be a whole number from 0"),
        (["orders", "key", "1", "--options", '{"headers":{"n":' + "[" * 100_000], 1, "options.headers is nested deeper than 64 levels"),
        (["orders", "key", "1", "--available-at", "tomorrow"], 2, "--available-at must be a time such as"),
        (["orders", "key", "1", "--expires-at", "2031-01-31T12:00"], 2, "--expires-at has no time zone"),
        (["orders", "key", "1", "--available-at", "99999999d"], 2, "--available-at is outside the years 1 to 9999; give a time within"),
        (["orders", "key", "1", "--expires-at", "9999-12-31T23:59:59-01:00"], 2, "--expires-at is outside the years 1 to 9999"),
    ],
)
def test_what_cannot_be_enqueued_is_one_sentence(cli: Cli, seeded: Seeded, args: list[str], code: int, says: str) -> None:
    """The same words as the database's or the client's, and no row."""
    assert says in cli.refused("enqueue", *args, code=code)
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message")


@pytest.mark.ids("D5")
def test_show_tells_a_message_from_the_queue_to_its_replay(cli: Cli, seeded: Seeded) -> None:
    """State, attempts, reason and what it was replayed as."""
    waiting = seeded.insert(routing_key="slow", available_at=datetime(2031, 1, 1, tzinfo=UTC))
    dead = seeded.archive("failed", "unroutable", "no queue took it", routing_key="lost")
    again = cli("dead", "replay", dead).strip()

    [story] = cli.json("show", waiting)["story"]
    assert ("delayed", "2031-01-01T00:00:00+00:00") == (story["state"], story["available_at"])
    told = cli("show", dead)
    for part in ("failed", "unroutable", "no queue took it", f"replayed as {again} (ready)"):
        assert part in told
    assert dead == cli.json("show", again)["story"][0]["replay_of"]


def test_show_names_the_default_exchange_and_an_empty_key(cli: Cli, seeded: Seeded) -> None:
    """They are empty, and not left out; a list shows where the routing key begins."""
    waiting = seeded.insert(exchange="", routing_key="work", ordering_key="")
    dead = seeded.archive("failed", "unroutable", exchange="", routing_key="work")

    lines = [line.split() for line in cli("show", waiting).splitlines()]
    assert ["exchange", "''"] in lines
    assert ["routing", "key", "work"] in lines
    assert ["ordering", "key", "''"] in lines
    assert ["exchange", "''"] in [line.split() for line in cli("dead", "show", dead).splitlines()]
    assert " '' work " in cli("dead", "list")


def test_show_says_so_where_there_is_no_such_message(cli: Cli) -> None:
    """With the exit code for what is not there."""
    assert "No message has the id" in cli.refused("show", "00000000-0000-0000-0000-000000000000", code=3)


def test_foreign_text_cannot_reach_the_terminal_as_a_command(cli: Cli, seeded: Seeded) -> None:
    """Control characters of details are shown as question marks, those of names as a shell takes them, markup as itself."""
    dead = seeded.archive("failed", "code", "\x1b[2J[red]", exchange="\x1b[31m[bold]x")

    for printed in (cli("show", dead), cli("dead", "list"), cli("dead", "show", dead), cli("dead", "watch", "--once")):
        assert "\x1b" not in printed
        assert "[bold]x" in printed


def test_an_exchange_is_paused_and_resumed(cli: Cli, seeded: Seeded) -> None:
    """With who and why; the second time a reason is taken over, and without one nothing is changed, which it says."""
    reason = "SELECT exchange, reason FROM queue_message_pause"
    assert f"exchange 'orders' is paused{FOLLOW}\n" == cli("pause", "orders", "--reason", "consumer is broken")
    assert "exchange 'orders' was paused already; nothing is changed\n" == cli("pause", "orders")
    assert [("orders", "consumer is broken")] == seeded.run(reason)
    assert "exchange 'orders' was paused already; the reason is now 'upgrade'\n" == cli("pause", "orders", "--reason", "upgrade")
    assert [("orders", "upgrade")] == seeded.run(reason)
    assert "exchange 'orders' has been paused since" in cli("status")

    assert "exchange 'orders' is resumed\n" == cli("resume", "orders")
    assert "is not paused" in cli.refused("resume", "orders", code=3)


def test_json_is_exact_json(cli: Cli, seeded: Seeded) -> None:
    """Times in UTC, ids as text, nothing around it."""
    dead = seeded.archive("rejected", "too_large")

    [row] = json.loads(cli("dead", "list", "--json"))
    assert (dead, "rejected", "too_large") == (row["id"], row["result"], row["error_code"])
    assert datetime.fromisoformat(row["archived_at"]).tzinfo == UTC


def test_a_key_that_is_known_is_told_and_no_error(cli: Cli, seeded: Seeded) -> None:
    """The first one's id for one message and for lines: a script that runs twice does no harm and reads the same."""
    key = ("enqueue", "orders", "paid", "--dedup-key", "charge-7", "--dedup-seconds", "60")
    [id_] = cli(*key, "1").split()
    assert f"{id_}\n" == cli(*key, "2")
    assert "Nothing was enqueued: the dedup_key is known, by the message of this id." == cli.stderr.strip()

    assert "0 messages enqueued, 2 known by the dedup_key already\n" == cli(*key, stdin="3\n4\n")
    assert f"{id_}\n{id_}\n" == cli(*key, "--ids", stdin="3\n4\n")
    assert [(id_, "1", True)] == seeded.run(
        "SELECT m.id::text, content::text, until - now() < interval '61 s' "
        "FROM queue_message m JOIN queue_message_dedup ON message_id = m.id"
    )


def test_what_is_wrong_with_every_line_is_told_once(cli: Cli, seeded: Seeded) -> None:
    """Of an option, a key or a name: in the same sentence as for one message, before a line is read."""
    for words in (("--dedup-seconds", "5"), ("--bundle-key", "a", "--coalesce-key", "b"), ("--options", '{"prority": 1}')):
        once = cli.refused("enqueue", "audit", "line", "1", *words, code=1)
        assert once == cli.refused("enqueue", "audit", "line", *words, code=1, stdin="1\n2\n")
    assert [(0,)] == seeded.run("SELECT count(*) FROM queue_message")


def test_keys_are_options(cli: Cli, seeded: Seeded) -> None:
    """What makes no sense together is refused in the client's words."""
    cli("enqueue", "stock", "level", "1", "--coalesce-key", "item-3")
    cli("enqueue", "audit", "line", "--bundle-key", "a", stdin="1\n2\n")
    assert [("a", None, 2), (None, "item-3", 1)] == seeded.run(
        "SELECT bundle_key, coalesce_key, count(*)::int FROM queue_message_keyed GROUP BY 1, 2 ORDER BY 3 DESC"
    )
    assert "bundle_key and coalesce_key are both given" in cli.refused(
        "enqueue", "audit", "line", "1", "--bundle-key", "a", "--coalesce-key", "b", code=1
    )


def test_a_trigger_of_the_applications_that_lacks_a_right_is_named(cli: Cli, seeded: Seeded) -> None:
    """Another right for the login would change nothing."""
    seeded.run(
        "CREATE FUNCTION lacks() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'permission denied for table total' USING ERRCODE = 'insufficient_privilege'; END$$"
    )
    seeded.run("CREATE TRIGGER lacks BEFORE INSERT ON queue_message FOR EACH ROW EXECUTE FUNCTION lacks()")

    sentence = cli.refused("enqueue", "orders", "paid", "1", code=1)

    assert "A trigger of yours" in sentence
    assert "grant" not in sentence
