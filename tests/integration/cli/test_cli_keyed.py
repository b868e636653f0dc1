"""relay status and relay show of messages with a key."""

from __future__ import annotations

import re

import pytest

from tests.support.relays.cli import Cli, Seeded

pytestmark = pytest.mark.ids("D5", "D7")
FOLD = "SELECT queue_message_fold(now() + interval '1 min')"


def _enqueued(cli: Cli, content: int, *key: str) -> str:
    return cli("enqueue", "stock", "level", str(content), *key).strip()


def test_status_counts_what_waits_under_a_key_and_what_became_of_it(cli: Cli, seeded: Seeded) -> None:
    """The count is next to that of the queue. Replaced, bundled and cancelled messages are among the newest results by their codes."""
    for content in (1, 2):
        _enqueued(cli, content, "--coalesce-key", "k")
        _enqueued(cli, content, "--bundle-key", "b")
    cli("cancel", _enqueued(cli, 3, "--coalesce-key", "c"))
    assert (4, 0) == tuple(cli.json("status")["queue"][name] for name in ("keyed", "waiting"))
    assert "; 4 messages under a key" in cli("status")

    seeded.run(FOLD)
    found = cli.json("status")
    assert (0, 0, 2) == tuple(found["queue"][name] for name in ("keyed", "keyed_overdue_seconds", "waiting"))
    results = {row["error_code"]: row["messages"] for row in found["recent"]["results"]}
    assert {"cancelled": 1, "superseded": 1, "bundled": 2} == results
    assert "1 discarded (superseded)" in cli("status")
    assert "under a key" not in cli("status")


def test_status_tells_of_what_nobody_folds(cli: Cli, seeded: Seeded) -> None:
    """Where neither a relay nor pg_cron does it, nothing else would say why messages wait."""
    seeded.run("INSERT INTO queue_message_keyed (exchange, coalesce_key) VALUES ('e', 'k')")
    seeded.run("UPDATE queue_message_keyed_row SET due_at = now() - interval '90 s'")
    assert 90 <= cli.json("status")["queue"]["keyed_overdue_seconds"] < 120
    assert re.search(r"messages under a key have been due for (9|10|11)\d? s, and nothing folds them", cli("status"))

    seeded.run("INSERT INTO queue_message_relay (name, version, host, pid) VALUES ('relay-1', '1.0', 'h', 1)")
    shown = cli("status")
    assert "nothing folds" not in shown
    assert re.search(r"under a key have been due for (9|10|11)\d? s: the relays fold those that were due before, and do not keep up", shown)

    seeded.run("UPDATE queue_message_keyed_row SET due_at = now() - interval '30 s'")
    assert "have been due" not in cli("status")


def test_what_waits_is_shown_with_when_it_is_due(cli: Cli) -> None:
    """It is not in the queue yet."""
    id_ = _enqueued(cli, 1, "--bundle-key", "b", "--available-at", "2031-01-31T12:00:00Z")

    [story] = cli.json("show", id_)["story"]
    assert ("keyed", 0) == (story["state"], story["attempts"])
    assert story["error_detail"].startswith("due at 2031-01-31 12:00:00")
    assert "due at 2031-01-31" in cli("show", id_)


def test_a_replaced_message_is_shown_with_what_replaced_it_and_the_other_way_round(cli: Cli, seeded: Seeded) -> None:
    """Also where it was in the queue already."""
    first, second = (_enqueued(cli, content, "--coalesce-key", "k") for content in (1, 2))
    seeded.run(FOLD)
    third = _enqueued(cli, 3, "--coalesce-key", "k")
    seeded.run(FOLD)

    for older, newer in ((first, second), (second, third)):
        [story] = cli.json("show", older)["story"]
        assert ("discarded", "superseded", f"replaced by {newer}") == tuple(story[n] for n in ("state", "error_code", "error_detail"))
        assert [{"id": older, "error_code": "superseded"}] == cli.json("show", newer)["folded"]
    assert f"it replaced {second}" in cli("show", third)
    assert ["ready"] == [part["state"] for part in cli.json("show", third)["story"]]


def test_a_bundle_is_shown_with_its_parts_and_a_part_with_its_bundle(cli: Cli, seeded: Seeded) -> None:
    """This also holds for a settled bundle. Another bundle of the same fold has its own parts."""
    parts = [_enqueued(cli, content, "--bundle-key", "b") for content in range(3)]
    other = _enqueued(cli, 9, "--bundle-key", "other")
    seeded.run(FOLD)
    [(bundle,)] = seeded.run("SELECT id::text FROM queue_message WHERE content = '[0, 1, 2]'")
    seeded.run("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'success', NULL, NULL, 'a relay')", bundle)

    found = cli.json("show", bundle)
    assert ["success"] == [part["state"] for part in found["story"]]
    assert [{"id": part, "error_code": "bundled"} for part in parts] == found["folded"]
    assert [f"it holds {part}" for part in parts] == [line for line in cli("show", bundle).splitlines() if line.startswith("it holds")]
    for part in parts:
        [story] = cli.json("show", part)["story"]
        assert ("bundled", f"sent within {bundle}") == (story["error_code"], story["error_detail"])
    assert cli.json("show", other)["folded"] == []


def test_what_waits_under_a_key_of_its_own_is_not_skipped_as_the_first_of_an_ordering_key(cli: Cli, seeded: Seeded) -> None:
    """It is not in the queue, however early it was inserted: the first message there was tried, and is meant."""
    _enqueued(cli, 1, "--bundle-key", "b", "--ordering-key", "k")
    head = seeded.insert(ordering_key="k")
    seeded.run("UPDATE queue_message SET last_error = 'no route'")

    assert f"message {head} is archived as discarded" in cli("key", "skip", "k")
