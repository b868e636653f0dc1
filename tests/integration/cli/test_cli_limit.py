"""relay limit and unlimit, and what the status says of them."""

from __future__ import annotations

import json

import psycopg
import pytest

from relay.maintenance.maintenance import HEARTBEAT_SECONDS
from tests.support.relays.cli import Cli, Seeded

FOLLOW = f": relays follow within about {HEARTBEAT_SECONDS:g} seconds; what they have claimed by then is still sent"
"""They read the policy with each heartbeat."""

ROW = "SELECT exchange, per_second, reason FROM queue_message_limit"


def test_an_exchange_is_limited_and_let_go(cli: Cli, seeded: Seeded) -> None:
    """The figure of the last call holds, with its reason; a call that changes nothing says so."""
    assert f"exchange 'orders' is limited to 50 messages a second{FOLLOW}\n" == cli("limit", "orders", "50", "--reason", "old consumer")
    assert "exchange 'orders' was limited to 50 messages a second already; nothing is changed\n" == cli("limit", "orders", "50")
    assert [("orders", 50.0, "old consumer")] == seeded.run(ROW)
    said = cli("limit", "orders", "50", "--reason", "upgrade")
    assert "exchange 'orders' was limited to 50 messages a second already; the reason is now 'upgrade'\n" == said
    assert f"exchange 'orders' is limited to 1 message a second (it was 50 messages a second){FOLLOW}\n" == cli("limit", "orders", "1")
    assert [("orders", 1.0, "")] == seeded.run(ROW)

    assert "exchange 'orders' has no limit any more\n" == cli("unlimit", "orders")
    assert "Exchange 'orders' is not limited; `relay status` lists the limits." == cli.refused("unlimit", "orders", code=3)


@pytest.mark.parametrize("figure", [0, -5, "nan", "inf", 1e7])
def test_a_figure_that_is_no_limit_is_refused(seeded: Seeded, figure: object) -> None:
    """By the database too, which is asked by psql; it says what to do instead."""
    with pytest.raises(
        psycopg.errors.RaiseException, match=r"from 0.001 to 1000000 messages a second; to send nothing of an exchange, pause it"
    ):
        seeded.run("SELECT queue_message_limit('orders', %s)", figure)


@pytest.mark.parametrize("command", [["pause"], ["limit", "50"], ["key", "park"]])
def test_a_name_that_no_message_can_have_is_refused(cli: Cli, seeded: Seeded, command: list[str]) -> None:
    """It would hold nothing: the INSERT's own limits, in its own words, in bytes."""
    column, longest = ("ordering_key", 1024) if "key" in command else ("exchange", 255)
    words = command[:1] + [name for name in command[1:] if name == "park"]
    rest = [figure for figure in command[1:] if figure != "park"]

    said = cli.refused(*words, "\u00e4" * (longest // 2 + 1), *rest, code=1)

    size = longest // 2 * 2 + 2
    assert f"{column} is {size} bytes long; the limit is {longest} bytes." == said
    cli(*words, "x" * longest, *rest)
    tables = "queue_message_pause, queue_message_limit, queue_message_key_hold"
    count = " + ".join(f"(SELECT count(*) FROM {table})" for table in tables.split(", "))
    assert [(1,)] == seeded.run(f"SELECT {count}")


def test_status_names_limits_and_who_is_behind(cli: Cli, seeded: Seeded) -> None:
    """By whom, since when, why, whether messages wait for it, and what to type; one that is paused too has both lines."""
    seeded.run("SELECT queue_message_limit('audit', 0.5, 'slow consumer', 'ann'), queue_message_limit('it''s', 10)")
    seeded.run("SELECT queue_message_pause('audit')")
    state = json.dumps({"broker": "up", "behind": ["audit"]})
    seeded.run("INSERT INTO queue_message_relay (name, version, host, pid, state) VALUES ('relay-1', '1.0', 'h', 1, %s)", state)

    lines = [line.rstrip() for line in cli("status").splitlines()]

    [(user, since)] = seeded.run(
        "SELECT session_user::text, to_char(min(limited_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SSZ') FROM queue_message_limit"
    )
    assert (
        f"exchange 'audit' has been limited to 0.5 messages a second since {since} by {user} (as ann): slow consumer, "
        "and messages wait for it; `relay unlimit audit`"
    ) in lines
    assert (
        f"""exchange 'it'"'"'s' has been limited to 10 messages a second since {since} by {user}, no reason given; """
        """`relay unlimit 'it'"'"'s'`""" in lines
    )
    assert any(line.startswith("exchange 'audit' has been paused since") for line in lines)
    assert [("audit", 0.5), ("it's", 10.0)] == [(row["exchange"], row["per_second"]) for row in cli.json("status")["limited"]]


def test_no_name_of_an_exchange_passes_for_a_setting(cli: Cli, seeded: Seeded) -> None:
    """Also one that is called as a setting is."""
    seeded.run("SELECT queue_message_pause('notify'), queue_message_limit('max_attempts', 5)")

    assert [] == cli.json("status")["overruled"]
