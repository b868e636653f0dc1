"""relay dead replay of what was replayed before: nothing is sent twice unless it is asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from relay.queries.statements import Statements
from tests.support.database.plans import explain
from tests.support.database.queue import Queue
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

pytestmark = pytest.mark.ids("B13")
WAITING = "SELECT id::text, replay_of::text FROM queue_message ORDER BY seq"
MANY = 500
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

REPLAYED_AT = "SELECT to_char(acted_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SSZ') FROM queue_message_audit WHERE action = 'replay'"


def _settle(seeded: Seeded, result: str) -> None:
    """What a relay would do with all that is in the queue."""
    seeded.run("SELECT queue_message_archive_now(array_agg(id), %s, NULL, NULL, 'relay-1') FROM queue_message", result)


@pytest.mark.parametrize("result", [None, "success", "failed"])
def test_a_second_replay_is_refused_with_the_first_ones_id_and_time(cli: Cli, seeded: Seeded, result: str | None) -> None:
    """Whether the first one waits, went out or died; --again sends it once more."""
    dead = seeded.archive("failed", "unroutable")
    new = cli("dead", "replay", dead).strip()
    [(at,)] = seeded.run(REPLAYED_AT)
    if result:
        _settle(seeded, result)
    waiting = seeded.run(WAITING)

    assert (
        f"Nothing is replayed, message {dead} was refused: it was replayed as {new} at {at} already; --again sends it once more."
        == cli.refused("dead", "replay", dead, code=1)
    )
    assert waiting == seeded.run(WAITING)
    again = cli("dead", "replay", dead, "--again").strip()
    assert [*waiting, (again, dead)] == seeded.run(WAITING)


def test_one_that_was_replayed_before_holds_all_others_back(cli: Cli, seeded: Seeded) -> None:
    """All or none; each that is refused is named, and JSON has the fields of `relay replay`."""
    first, second, third = (seeded.archive("failed", "unroutable") for _ in range(3))
    done = cli.json("dead", "replay", first, second)
    assert [first, second] == [row["id"] for row in done["replayed"]]
    assert {"messages": 2, "refused": 0, "refusals": [], "replayed": done["replayed"]} == done
    assert [(row["replayed_as"], row["id"]) for row in done["replayed"]] == seeded.run(WAITING)

    told = cli.json("dead", "replay", first, second, third, code=1)
    assert (0, 2, []) == (told["messages"], told["refused"], told["replayed"])
    reasons = {row["id"]: row["reason"] for row in told["refusals"]}
    assert all(f"it was replayed as {row['replayed_as']} at " in reasons.pop(row["id"]) for row in done["replayed"])
    assert ({}, 2) == (reasons, cli.stderr.count("Nothing is replayed"))
    assert [third] == [row["id"] for row in cli.json("dead", "list")]


def test_a_replay_that_retention_has_dropped_is_known_by_the_audit(cli: Cli, seeded: Seeded) -> None:
    """Dead messages are kept for longer than those that went out."""
    dead = seeded.archive("failed", "unroutable")
    new = cli("dead", "replay", dead).strip()
    _settle(seeded, "success")
    seeded.run("SET relay.retention = 'on'")
    seeded.run("DELETE FROM queue_message_archive WHERE id = %s", new)

    assert f"it was replayed as {new} at " in cli.refused("dead", "replay", dead, code=1)


def test_what_a_filter_has_replayed_is_refused_by_its_id(cli: Cli, seeded: Seeded) -> None:
    """This holds for any login, although a replay by filter writes another answer. Conversely, the filter leaves out what went by id."""
    one, other = seeded.archive("failed", "unroutable"), seeded.archive("failed", "nacked")
    cli("replay", "--code", "unroutable")
    cli("dead", "replay", other)
    waiting = seeded.run(WAITING)

    cli.refused("dead", "replay", one, code=1)
    assert "0 messages replayed\n" == cli("replay", "--result", "failed")
    assert waiting == seeded.run(WAITING)


def test_a_message_that_died_again_under_its_id_is_replayed_and_one_that_went_out_is_not(cli: Cli, seeded: Seeded) -> None:
    """With the same id the newest is meant."""
    dead = seeded.archive("failed", "unroutable")
    for _ in range(2):
        cli("dead", "replay", dead, "--same-id")
        _settle(seeded, "failed")
    cli("dead", "replay", dead, "--same-id")
    assert "is still in the queue" in cli.refused("dead", "replay", dead, "--same-id", code=1)
    assert f"it was replayed as {dead} at " in cli.refused("dead", "replay", dead, code=1)
    _settle(seeded, "success")

    for options in (["--same-id"], []):
        assert f"it was replayed as {dead} at " in cli.refused("dead", "replay", dead, *options, code=1)
    assert f"{dead}\n" == cli("dead", "replay", dead, "--same-id", "--again")


def _by_a_watch(connection: psycopg.Connection[Any], dead: str) -> None:
    """The rule replays a message that is not acknowledged."""
    connection.execute("SELECT queue_message_dead_replay(id, xid, seq, 1) FROM queue_message_dead WHERE id = %s", (dead,))


def _by_a_command(connection: psycopg.Connection[Any], dead: str) -> None:
    """Another `relay dead replay`, of what was acknowledged before."""
    statements = Statements("public")
    connection.execute("SELECT queue_message_dead_acknowledge(%s)", (dead,))
    connection.commit()
    connection.execute(statements["lock_replays"])
    connection.execute(statements["replay_message"], {"id": dead, "xid": None, "seq": None, "same_id": False})


@pytest.mark.parametrize("other", [_by_a_watch, _by_a_command])
def test_of_two_that_replay_at_once_one_is_refused(cli: Cli, seeded: Seeded, database_url: str, other: Any) -> None:
    """It waits for the other's end, and sees what that has done."""
    dead = seeded.archive("failed", "unroutable")
    with psycopg.connect(database_url) as connection, ThreadPoolExecutor() as pool:
        other(connection, dead)
        command = pool.submit(cli.refused, "dead", "replay", dead, code=1)
        while [(0,)] == seeded.run(BLOCKED) and not command.done():
            pass
        connection.commit()
        assert "already; --again sends it once more" in command.result()

    assert [(dead,)] == seeded.run("SELECT replay_of::text FROM queue_message")


def test_the_operators_role_is_enough(cli: Cli, seeded: Seeded) -> None:
    """To replay, and to be refused."""
    dead = seeded.archive("failed", "unroutable")
    with login(cli.env["RELAY_DATABASE_URL"], "queue_message_operator") as url:
        cli("dead", "replay", dead, RELAY_DATABASE_URL=url)
        assert "already; --again" in cli.refused("dead", "replay", dead, code=1, RELAY_DATABASE_URL=url)


@pytest.mark.parametrize("analyzed", [False, True])
async def test_what_many_ids_were_replayed_as_is_found_in_linear_time(queue: Queue, *, analyzed: bool) -> None:
    """Each row is looked at a few times, however many ids one call names, with statistics and without."""
    ids = await queue.insert(MANY)
    await queue.sql("SELECT queue_message_archive_now(%s::uuid[], 'failed', 'c', 's', 'h')", ids)
    await queue.sql("SELECT queue_message_replay(id) FROM unnest(%s::uuid[]) AS id", ids)
    if analyzed:
        await queue.sql("ANALYZE")
    asked: dict[str, object] = {"ids": ids, "xids": [None] * MANY, "seqs": [None] * MANY}

    plan = await explain(queue.connection, Statements("public")["find_replayed"], asked, {})

    assert MANY == plan.root["Actual Rows"]
    assert 20 * MANY > plan.rows_read()
