"""A login without any role, which may take every advisory lock of the database, stops no maintenance task with them."""

from __future__ import annotations

import json
import re
import select
import signal
from collections.abc import Iterator
from subprocess import Popen

import psycopg
import pytest

from relay.postgres.schema.migrate import check, migrate
from tests import ROOT
from tests.support.broker.topology import Declared
from tests.support.database.foreign import renumber
from tests.support.database.keyed import contents, fold, keyed
from tests.support.database.queue import Queue
from tests.support.relays.cli import Cli, Seeded
from tests.support.relays.processes import Relays
from tests.support.servers.logins import login

KEYS = (
    "SELECT pg_advisory_lock(n, hashtext('public')) FROM generate_series(724017720, 724017740) AS n",
    "SELECT pg_advisory_lock(n, hashtext('public job')) FROM generate_series(724017720, 724017740) AS n",
    "SELECT pg_advisory_lock(7239420177240219)",
    "SELECT pg_advisory_lock(hashtextextended('queue_message renumber of public', 0))",
)
"""What maintenance tasks have used as keys."""
GATE = "hashtextextended('queue_message gate of public', 0)"
ALLOWED = {"queue_message_hint", "queue_message_lock_held", "queue_message_take_watch", "queue_message_watched"}
"""A taken lock of the hint costs a poll; each session draws a new key for its watch."""
HELD = "SELECT classid::bigint, objid::bigint, objsubid FROM pg_locks JOIN pg_database d ON d.oid = database WHERE locktype = 'advisory' AND datname = current_database()"  # noqa: E501
CALLS = (
    "SELECT * FROM queue_message_fold()",
    "SELECT queue_message_ensure_partitions(9)",
    "SELECT * FROM queue_message_replay_many(dry_run => false, again => true, job => 'job')",
    "SELECT queue_message_sweep_minute()",
    "SELECT * FROM queue_message_retain()",
    "SELECT queue_message_renotify()",
    "SELECT * FROM queue_message_run_schedules()",
    "SELECT * FROM queue_message_renumber()",
)


@pytest.fixture
def outsider(database_url: str) -> Iterator[psycopg.Connection]:
    """A session of a login that was granted nothing, and holds every key."""
    with login(database_url) as url, psycopg.connect(url, autocommit=True) as connection:
        for statement in KEYS:
            connection.execute(statement.encode())
        yield connection


@pytest.fixture
async def impatient(queue: Queue) -> Queue:
    """The owner's session, in which a wait for a lock is an error."""
    await queue.sql("SET lock_timeout = '2s'")
    return queue


@pytest.mark.usefixtures("outsider")
async def test_messages_under_a_key_are_sent(impatient: Queue) -> None:
    """The fold takes what is due, whichever locks the outsider holds."""
    await keyed(impatient, coalesce_key="c", content=1)

    assert 1 == await fold(impatient)
    assert [1] == await contents(impatient)


@pytest.mark.usefixtures("outsider")
async def test_partitions_are_made(impatient: Queue) -> None:
    """Else no message could be settled when the days that are there are over."""
    assert 2 == await impatient.value("SELECT queue_message_ensure_partitions(9)")


@pytest.mark.usefixtures("outsider")
async def test_a_job_replays(impatient: Queue) -> None:
    """Through the function with a ledger."""
    ids = await impatient.insert(2)
    await impatient.sql("SELECT queue_message_archive_now(%s::uuid[], 'failed', 'x', 'x', 'r')", ids)

    assert 2 == len(await impatient.sql(CALLS[2]))


@pytest.mark.usefixtures("outsider")
def test_an_operator_replays(cli: Cli, seeded: Seeded) -> None:
    """By id, which is one transaction after the other."""
    dead = seeded.archive("failed")
    process = cli.start("dead", "replay", dead)

    out, _ = process.communicate(timeout=30)

    assert (0, 1) == (process.returncode, len(out.split()))


@pytest.mark.usefixtures("outsider")
async def test_messages_of_another_cluster_are_renumbered(impatient: Queue) -> None:
    """They would be overtaken for ever."""
    await impatient.sql("ALTER TABLE queue_message DISABLE TRIGGER USER")
    await impatient.sql("INSERT INTO queue_message (xid, exchange) VALUES ('99999999999', 'e')")
    await impatient.sql("ALTER TABLE queue_message ENABLE TRIGGER USER")

    assert 1 == await renumber(impatient)


@pytest.mark.usefixtures("outsider")
def test_the_schema_is_migrated(database_url: str) -> None:
    """The migration does not wait ten minutes for the login that holds the lock."""
    said = list[str]()

    migrate(database_url, say=said.append)

    assert ([], []) == (said, check(database_url))


def test_a_watch_takes_over_whatever_the_one_before_it_had_locked(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """A login that read a watch's keys waits for them. It gets them when that watch ends, and keeps no other watch from work."""
    watch = ("dead", "watch", "--poll", "0.2", "--log", "--json", "--command", "true")
    seeded.archive("failed", routing_key="one")
    first = cli.start(*watch)
    assert "one" == json.loads(_line(first))["routing_key"]
    keys = seeded.run(HELD)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=30)
    with login(database_url) as url, psycopg.connect(url, autocommit=True) as other:
        for high, low, kind in keys:
            both = "(%s::bigint << 32) | %s::bigint" if kind == 1 else "%s::bigint::bit(32)::integer, %s::bigint::bit(32)::integer"
            other.execute(f"SELECT pg_advisory_lock({both})".encode(), (high, low))

        assert "one" == json.loads(_line(cli.start(*watch)))["routing_key"]


def test_a_watch_that_lost_its_session_keeps_none_from_work(cli: Cli, seeded: Seeded) -> None:
    """What is noted of it counts only while its session holds what it took."""
    watch = ("dead", "watch", "--poll", "0.2", "--log", "--json", "--command", "true")
    seeded.archive("failed", routing_key="one")
    first = cli.start(*watch)
    assert "one" == json.loads(_line(first))["routing_key"]
    first.kill()
    first.wait()

    assert "one" == json.loads(_line(cli.start(*watch)))["routing_key"]


def _line(process: Popen[str]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0], "nothing was printed"
    return process.stdout.readline()


@pytest.mark.parametrize("mode", ["", "_shared"])
async def test_a_taken_gate_costs_no_more_than_a_poll(queue: Queue, relays: Relays, inbox: Declared, amqp_url: str, mode: str) -> None:
    """Held alone each INSERT notifies; held shared no relay gets it, and what is inserted while all sleep goes out with the next poll."""
    with login(queue.url) as url, psycopg.connect(url, autocommit=True) as other:
        other.execute(f"SELECT pg_advisory_lock{mode}({GATE})".encode())
        relay = await relays.start(database=queue.url, broker=amqp_url, settings={"RELAY_POLL_INTERVAL": "1"})

        for _ in range(3):
            await queue.insert(exchange=inbox.exchange, routing_key=inbox.routing_key)
            await queue.settled(seconds=10)

    assert 0 == await relay.stop()


async def test_no_maintenance_task_takes_an_advisory_lock(queue: Queue) -> None:
    """Neither one that is called nor one that is written in a function or a statement, but for the hint and the watch."""
    await queue.insert(2)
    [id_, _] = [id_ for (id_,) in await queue.sql("SELECT id FROM queue_message")]
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', 'x', 'x', 'r')", id_)
    await keyed(queue, coalesce_key="c")
    async with queue.connection.transaction():
        await queue.sql("SELECT set_config('relay.notify', 'off', true)")
        for call in CALLS:
            await queue.sql(call)
        assert [] == await queue.sql(f"{HELD} AND pid = pg_backend_pid()")

    written = await queue.sql("SELECT proname FROM pg_proc WHERE proname LIKE 'queue%' AND prosrc LIKE '%advisory%'")
    assert written
    assert {name for (name,) in written} <= ALLOWED
    files = (*ROOT.glob("relay/**/*.sql"), *ROOT.glob("sql/[!0-9]*.sql"))
    assert {"take_gate.sql", "release_gate.sql"} == {file.name for file in files if re.search("pg_(try_)?advisory", file.read_text())}
