"""No space left for PostgreSQL, and none at all for the relay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests.support.database.lost import assert_nothing_is_lost
from tests.support.database.queue import Queue, until
from tests.support.faults.scene import LOCK_SECONDS, Scene
from tests.support.relays.processes import COMMAND, Relays
from tests.support.relays.scrape import HTTP, counted, metric, page
from tests.support.servers.shared import Say
from tests.support.servers.small_disk import SmallPostgres, read_only, refusal

MEGABYTES = 40
IN_HAND = 200
OLD = "SELECT count(*) FROM queue_message WHERE created_at < now() - make_interval(secs => %s)"


@pytest.fixture(scope="module")
def own_postgres(say: Say) -> Iterator[devservers.Postgres]:
    """A private server with a tablespace that is soon full."""
    if why := refusal():
        pytest.skip(why)
    with SmallPostgres(MEGABYTES) as server:
        say(f"PostgreSQL with a tablespace of {MEGABYTES} MB")
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{server.small}'".encode())
        yield server


@pytest.fixture
def database_url(own_postgres: devservers.Postgres, unique: str) -> Iterator[str]:
    """A database with the schema, all of it in that tablespace."""
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {unique} TABLESPACE small".encode())
        url = own_postgres.url.removesuffix("postgres") + unique
        migrate(url, seed={"lock_seconds": str(LOCK_SECONDS)})
        yield url
        assert_nothing_is_lost(url)
        connection.execute(f"DROP DATABASE {unique} WITH (FORCE)".encode())


async def fill(queue: Queue) -> None:
    """Take the last page that is free."""
    await queue.sql("CREATE TABLE filler (text text)")
    await queue.sql("ALTER TABLE filler ALTER text SET STORAGE plain")
    for pages in (1000, 100, 10, 1):
        while await grows(queue, pages):
            pass


async def grows(queue: Queue, pages: int) -> bool:
    """Take so many pages; whether they were there."""
    try:
        await queue.sql("INSERT INTO filler SELECT repeat('x', 7000) FROM generate_series(1, %s)", pages)
    except errors.DiskFull:
        return False
    return True


@pytest.mark.fault(25, repeats=20)
@pytest.mark.ids("C7", "C9")
async def test_a_full_disk_is_waited_for_with_everything_kept(scene: Scene) -> None:
    """What was confirmed can neither be archived nor kept locked: it stays in the queue, and is settled once there is space."""
    relay = await scene.start(**HTTP)
    await scene.producer.insert(100)
    await scene.queue.settled()
    scene.broker.freeze()
    await scene.producer.insert(IN_HAND, ordered=False)
    await until(lambda: scene.holds(relay, IN_HAND))
    scene.producer.fault(await scene.held_by(relay))
    await fill(scene.queue)
    scene.broker.thaw()

    failed = await relay.logged("settle_failed", 2)
    assert "No space left on device" in failed["error"]
    await until(lambda: outlasts_its_locks(scene))
    assert 0 < await metric(relay, "relay_failures_total", step="settle")
    assert "What was sent cannot be settled" in await page(relay, "/readyz")
    assert f"{await scene.queue.waiting()} messages wait" in await scene.status()
    await scene.queue.sql("DROP TABLE filler")
    await scene.producer.insert(100)
    await scene.check(relay, timed=False)


async def outlasts_its_locks(scene: Scene) -> bool:
    """The messages that found no room stay in flight for longer than their first locks last."""
    return bool(0 < await scene.queue.waiting() == await scene.queue.value(OLD, LOCK_SECONDS))


@pytest.mark.fault(25, repeats=20)
@pytest.mark.ids("D1")
async def test_a_relay_needs_no_place_to_write_to(scene: Scene, tmp_path: Path) -> None:
    """Every file system that it sees is read-only, and it starts, sends, settles and ends as always."""
    if why := refusal():
        pytest.skip(why)
    scene.relays = Relays((*read_only(tmp_path), *COMMAND), tmp_path)
    try:
        relay = await scene.start(**HTTP)
        await scene.producer.insert(300)
        await scene.queue.settled()
        assert 300 == await counted(relay, 300, "relay_messages_total", result="success")
        report = await scene.check(relay)
        assert 0 == report.duplicates
    finally:
        await scene.relays.close()
