"""Messages on a schedule by pg_cron: as docs/operations/deployment.md has them, and the schedules that it takes over from relays."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta

import psycopg
import pytest
from psycopg import sql

from relay import devservers
from relay.devservers.find import find_postgres
from relay.postgres.schema.migrate import migrate
from tests import ROOT
from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, until
from tests.support.pages import docs
from tests.support.relays.processes import Relays
from tests.support.servers.logins import login, own_role
from tests.support.servers.shared import Say

NIGHTLY, EACH_MINUTE = "'0 3 * * *'", "'* * * * *'"
RUNS = "SELECT count(*) FROM cron.job_run_details WHERE command LIKE '%run_schedules%' AND status = 'succeeded'"
WITH_CRON = ("shared_preload_libraries=pg_cron", "cron.database_name=postgres", "cron.use_background_workers=on")


def example() -> list[str]:
    """The statements of the page's example: schedule, look, unschedule."""
    section = docs.text_of(ROOT / "docs" / "operations/deployment.md").partition("## Scheduled messages")[2]
    found = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return [statement.strip() for statement in re.split(r";\n", found[1]) if statement.strip()]


def command_of(statement: str) -> str:
    """What the schedule runs: the text between the dollar signs."""
    found = re.search(r"\$\$(.*)\$\$", statement, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
async def reports(vhost_url: str) -> AsyncIterator[Topology]:
    """The example's exchange and a queue behind it, in a vhost of this test's own."""
    async with Topology(vhost_url, "schedule") as topology:
        await topology.declare("reports", "reports", routing_key="nightly")
        yield topology


@pytest.fixture
def cron_url(say: Say) -> Iterator[str]:
    """A database with the schema and pg_cron, on a private server; without the extension the test is skipped and says so."""
    if not (find_postgres().parent / "lib" / "pg_cron.so").exists():
        pytest.skip("pg_cron is not installed for this PostgreSQL (apt-get install postgresql-15-cron); its command is tested by itself")
    with devservers.postgres(say=say, settings=WITH_CRON, private=True) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_cron")
        migrate(server.url)
        yield server.url


async def expect_report(reports: Topology, *, seconds: float) -> None:
    """The consumer gets yesterday's report."""
    [message] = await reports.drain("reports", 1, seconds=seconds)
    assert {"day"} == json.loads(message.body).keys()


@pytest.mark.ids("A20", "A36")
async def test_what_a_schedule_runs_is_a_plain_insert(relays: Relays, queue: Queue, reports: Topology, vhost_url: str) -> None:
    """The command by itself, by a login that may do no more than insert, is a message like any other."""
    await relays.start(database=queue.url, broker=vhost_url)
    with login(queue.url, "queue_message_producer") as url, psycopg.connect(url, autocommit=True) as app:
        app.execute(command_of(example()[0]).encode())

    await expect_report(reports, seconds=20)


@pytest.mark.slow
@pytest.mark.ids("A20", "A36")
async def test_pg_cron_inserts_and_the_relay_sends(relays: Relays, cron_url: str, reports: Topology, vhost_url: str) -> None:
    """The example, each minute instead of each night: scheduled by a producer, seen by it, sent, and unscheduled."""
    schedule, look, unschedule = example()
    await relays.start(database=cron_url, broker=vhost_url)
    with psycopg.connect(cron_url, autocommit=True) as owner, login(cron_url, "queue_message_producer") as url:
        producer = sql.Identifier(own_role(owner, "producer"))
        owner.execute(sql.SQL("GRANT USAGE ON SCHEMA cron TO {}").format(producer))
        with psycopg.connect(url, autocommit=True) as app:
            app.execute(schedule.encode())
            assert [("nightly report", NIGHTLY.strip("'"), True)] == app.execute(look.encode()).fetchall()
            app.execute(schedule.replace(NIGHTLY, EACH_MINUTE).encode())
            await expect_report(reports, seconds=75)
            app.execute(unschedule.encode())
            assert [] == app.execute(look.encode()).fetchall()
        owner.execute(sql.SQL("REVOKE USAGE ON SCHEMA cron FROM {}").format(producer))
        async with await psycopg.AsyncConnection.connect(cron_url, autocommit=True) as connection:
            await until(lambda: is_archived(Queue(cron_url, connection)))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.ids("A20", "A36")
async def test_pg_cron_carries_schedules_out_beside_relays_and_without(
    relays: Relays, cron_url: str, reports: Topology, vhost_url: str
) -> None:
    """No relay runs, and each minute what is due is inserted; then one runs too, and each tick is still one message."""
    async with await psycopg.AsyncConnection.connect(cron_url, autocommit=True) as connection:
        queue = Queue(cron_url, connection)
        add = "SELECT queue_message_schedule_add('n', 'EVERY 5 seconds', %s, 'nightly', missed => 'all')"
        await queue.sql(add, "reports")

        async def inserted(count: int) -> bool:
            return bool(await queue.value("SELECT count(*) >= %s FROM queue_message_state", count))

        await until(lambda: inserted(1), 75)
        alone = await queue.waiting()
        await relays.start(database=cron_url, broker=vhost_url)
        runs = await queue.value(RUNS)
        await until(lambda: cron_ran(queue, runs), 75)
        await until(lambda: inserted(alone + 2))
        await queue.sql("SELECT queue_message_schedule_remove('n')")
        await queue.settled()
        found = await queue.sql("SELECT options -> 'headers' ->> 'x-relay-tick' FROM queue_message_archive ORDER BY 1")

    ticks = [datetime.fromisoformat(text) for (text,) in found]
    assert ticks == [ticks[0] + timedelta(seconds=5 * number) for number in range(len(ticks))]


async def cron_ran(queue: Queue, before: int) -> bool:
    """pg_cron has looked once more."""
    return bool(await queue.value(RUNS) > before)


async def is_archived(queue: Queue) -> bool:
    """The report's success is on record, and nothing else is there."""
    return ["success"] == [*(await queue.results()).values()] and await queue.waiting() == 0
