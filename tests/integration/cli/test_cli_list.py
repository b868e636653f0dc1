"""relay list: messages that wait, with their state and what each waits for."""

from __future__ import annotations

from typing import Any

import pytest

from relay.cli.queue_check import listing, scan
from relay.cli.queue_check.listing import STATES
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

LATER = "2031-01-01T00:00:00Z"
FAILED = "UPDATE queue_message SET attempts = 1, last_error = 'nacked: full', available_at = now() + '1 hour' WHERE id = %s"
LOCKED = (
    "UPDATE queue_message SET attempts = 1, lock_expires_at = now() + '1 hour', lock_token = gen_random_uuid(), locked_by = 0 WHERE id = %s"
)


def ids(cli: Cli, *words: str) -> list[str]:
    """Ids of the messages that the command lists."""
    return [one["id"] for one in cli.json("list", *words)["messages"]]


@pytest.fixture
def by_state(seeded: Seeded) -> dict[str, str]:
    """One message in each state, in claim order."""
    made = {
        "ready": seeded.insert(),
        "scheduled": seeded.insert(available_at=LATER),
        "retrying": seeded.insert(),
        "locked": seeded.insert(),
        "paused": seeded.insert(exchange="audit"),
        "limited": seeded.insert(exchange="slow"),
        "parked": seeded.insert(ordering_key="held"),
    }
    head = seeded.insert(ordering_key="k")
    made["blocked"] = seeded.insert(ordering_key="k")
    seeded.run(LOCKED, head)
    seeded.run(FAILED, made["retrying"])
    seeded.run(LOCKED, made["locked"])
    seeded.run("SELECT queue_message_pause('audit'), queue_message_limit('slow', 1), queue_message_key_park('held')")
    return made


def test_each_state_has_its_messages(cli: Cli, by_state: dict[str, str]) -> None:
    """Each message is in one state, and says what it waits for in the words of `relay show`."""
    listed = cli.json("list")["messages"]
    states = {one["id"]: one["state"] for one in listed}

    assert by_state == {state: id_ for id_, state in states.items() if id_ in by_state.values()}
    assert set(STATES) == set(by_state)
    for state in STATES:
        assert by_state[state] in ids(cli, "--state", state)
        assert {state} == {one["state"] for one in cli.json("list", "--state", state)["messages"]}
    for one in listed:
        assert one["waits_for"] == cli.json("show", one["id"])["waits_for"]


def test_several_states_may_be_asked_for(cli: Cli, by_state: dict[str, str]) -> None:
    """The messages of all of them are listed; another word is refused with the words that there are."""
    assert [by_state["ready"], by_state["scheduled"]] == ids(cli, "--state", "ready", "--state", "scheduled")
    assert f"--state must be one of {', '.join(STATES)}. See `relay list --help`." == cli.refused("list", "--state", "sent", code=2)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--exchange", "a*"], "c"),
        (["--routing-key", "order.*"], "ab"),
        (["--routing-key", "order.%"], ""),
        (["--routing-key", "ORDER.PAID"], ""),
        (["--routing-key", "*a.d"], "d"),
        (["--routing-key", ""], "c"),
        (["--ordering-key", "k"], "d"),
        (["--code", "nacked"], "b"),
        (["--code", "nacked", "--routing-key", "order.paid"], ""),
    ],
)
def test_every_condition_must_be_met(cli: Cli, seeded: Seeded, words: list[str], wanted: str) -> None:
    """A star in a routing key is any run of characters, also a line's end; all else is itself."""
    made = {
        seeded.insert(exchange="orders", routing_key="order.paid"): "a",
        seeded.insert(exchange="orders", routing_key="order.sent"): "b",
        seeded.insert(exchange="a*", routing_key=""): "c",
        seeded.insert(exchange="ab", routing_key="x\na.d", ordering_key="k"): "d",
    }
    seeded.run(FAILED, next(id_ for id_, name in made.items() if name == "b"))

    assert wanted == "".join(made[id_] for id_ in ids(cli, *words))


@pytest.mark.parametrize("scanned", [1, 3, 1000])
def test_pages_follow_each_other_until_nothing_is_left(cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch, scanned: int) -> None:
    """Each page names the place after which the next one begins, also if it found nothing; the last one names none."""
    monkeypatch.setattr(scan, "PAGE", 2)
    monkeypatch.setattr(listing, "_TOGETHER", 2)
    made = [seeded.insert(exchange="a" if number % 3 else "b") for number in range(8)]
    found, after = list[str](), ["--after", "0/-1"]
    while after:
        page: Any = cli.json("list", "--exchange", "a", "--limit", "2", "--scan", str(scanned), *after)
        found += [one["id"] for one in page["messages"]]
        after = ["--after", page["next"]] if page["next"] else []

    assert [id_ for number, id_ in enumerate(made) if number % 3] == found


def test_operators_read_a_table(cli: Cli, seeded: Seeded) -> None:
    """A name that would be misread is quoted; standard error says how to continue; no contents are shown."""
    id_ = seeded.insert(exchange="or\x1b[31mders", content='{"card": "4111"}')
    seeded.insert()

    shown = cli("list", "--limit", "1")

    assert id_ in shown
    assert "ready" in shown
    assert "\x1b" not in shown
    assert "4111" not in shown
    assert cli.stderr.startswith("1 message listed; there may be more: continue with --after ")
    assert "no such message waits\n" == cli("list", "--exchange", "none")


def test_a_place_is_what_the_command_prints(cli: Cli) -> None:
    """Another word is refused."""
    assert "--after must be XID/SEQ, as this command prints it. See `relay list --help`." == cli.refused("list", "--after", "7", code=2)


def test_messages_with_times_that_no_calendar_has_are_listed(cli: Cli, seeded: Seeded) -> None:
    """They bypassed the triggers; JSON has null for such a time."""
    seeded.run("SET session_replication_role = replica")
    id_ = seeded.insert(available_at="infinity", expires_at="infinity", created_at="-infinity")
    seeded.run("RESET session_replication_role")

    [found] = cli.json("list")["messages"]

    assert (id_, "scheduled", None, None, None) == (
        found["id"], found["state"], found["available_at"], found["expires_at"], found["created_at"],
    )  # fmt: skip


def test_an_operators_login_may_list(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """A producer's may not."""
    id_ = seeded.insert()

    with login(database_url, "queue_message_operator") as operator:
        assert id_ in cli("list", RELAY_DATABASE_URL=operator, PGOPTIONS="-c default_transaction_read_only=on")
    with login(database_url, "queue_message_producer") as producer:
        assert "Your role lacks a permission" in cli.refused("list", code=1, RELAY_DATABASE_URL=producer)
