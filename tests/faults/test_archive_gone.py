"""An archive that cannot be written: no partition, no grant; and one that changes under load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.database.queue import until
from tests.support.faults.play import SMALL, play
from tests.support.faults.scene import Scene
from tests.support.relays.processes import RelayProcess
from tests.support.relays.scrape import HTTP, metric, page
from tests.support.servers.logins import login

TODAY = "SELECT 'queue_message_archive_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')"
ENSURE = "FUNCTION queue_message_ensure_partitions"
ROLE = "queue_message_relay"
OLD = "SELECT EXISTS (SELECT FROM queue_message WHERE lock_expires_at > now() AND created_at < now() - interval '4 seconds')"
"""Some message has been in flight for longer than a lock lasts, and is still locked."""


@pytest.fixture
def relay_url(scene: Scene) -> Iterator[str]:
    """The database for a login that may do what a relay may, and nothing else."""
    with login(scene.queue.url, ROLE) as url:
        yield url


async def role(scene: Scene) -> str:
    """The outbox's own role of the relay."""
    return str(await scene.queue.value("SELECT queue_message_role('relay')"))


async def waits(scene: Scene, relay: RelayProcess, reason: str) -> None:
    """Nothing can be settled: the relay says why, keeps its locks, and lets nothing go."""
    await relay.logged("settle_failed", 2)
    await until(lambda: says(relay, reason))
    await until(lambda: scene.queue.value(OLD))
    assert 0 < await metric(relay, "relay_failures_total", step="settle")


async def says(relay: RelayProcess, reason: str) -> bool:
    """Readiness names what is in the way."""
    return reason in await page(relay, "/readyz")


@pytest.mark.fault(26, repeats=20)
@pytest.mark.ids("A26", "C9")
async def test_without_a_partition_everything_waits(scene: Scene, relay_url: str) -> None:
    """Today's partition goes under load, and may not be made again: what was sent stays locked; the relay makes it once it may."""
    relay = await scene.start(database=relay_url, **SMALL, **HTTP)

    async def fault() -> None:
        await scene.queue.sql(f"REVOKE EXECUTE ON {ENSURE} FROM {await role(scene)}")
        today = await scene.queue.value(TODAY)
        await scene.queue.sql(f"ALTER TABLE queue_message_archive_daily DETACH PARTITION {today}")
        await scene.queue.sql(f"ALTER TABLE {today} RENAME TO before_the_fault")
        await waits(scene, relay, "lacks a permission")
        assert "the archive has no partition for today, so nothing can be settled" in await scene.status()
        await scene.queue.sql(f"GRANT EXECUTE ON {ENSURE} TO {await role(scene)}")
        await until(lambda: is_ready(relay))

    await play(scene, fault, relay)
    await scene.queue.settled()
    await scene.queue.sql("INSERT INTO queue_message_archive SELECT * FROM before_the_fault")
    report = await scene.check(relay)
    assert 0 == report.duplicates


async def shows(scene: Scene, reason: str) -> bool:
    """The status names what is in the way, with the relay's next heartbeat."""
    return reason in await scene.status()


async def is_ready(relay: RelayProcess) -> bool:
    """Nothing is in the way any more."""
    return '"reasons":{}' in (await page(relay, "/readyz")).replace(" ", "")


@pytest.mark.fault(26, repeats=20)
@pytest.mark.long_only
@pytest.mark.ids("A26", "C9")
async def test_without_the_grant_everything_waits(scene: Scene, relay_url: str) -> None:
    """The right to archive is revoked under load: sent messages stay locked, are not sent again, and are settled after the grant."""
    relay = await scene.start(database=relay_url, **SMALL, **HTTP)

    async def fault() -> None:
        await scene.queue.sql(f"REVOKE INSERT ON queue_message_archive FROM {await role(scene)}")
        archived = await scene.queue.value("SELECT count(*) FROM queue_message_archive")
        await waits(scene, relay, "lacks a permission")
        await until(lambda: shows(scene, "What was sent cannot be settled: The relay's role lacks a permission"))
        assert archived == await scene.queue.value("SELECT count(*) FROM queue_message_archive")
        await scene.queue.sql(f"GRANT INSERT ON queue_message_archive TO {await role(scene)}")
        await until(lambda: is_ready(relay))

    await play(scene, fault, relay)
    report = await scene.check(relay)
    assert 0 == report.duplicates


@pytest.mark.fault(26, repeats=20)
@pytest.mark.ids("A26", "C9")
async def test_an_archive_that_gains_and_loses_columns_under_load_is_written_all_the_same(scene: Scene) -> None:
    """Statements that were prepared for the earlier table continue, and nothing waits longer than the change takes."""
    relay = await scene.start(**SMALL, **HTTP)

    async def fault() -> None:
        for number in range(5):
            await scene.queue.sql(f"ALTER TABLE queue_message_archive ADD COLUMN note_{number} text DEFAULT 'n{number}'")
            await asyncio.sleep(scene.chance.uniform(0, 0.2))  # the random moment
            if number % 2:
                await scene.queue.sql(f"ALTER TABLE queue_message_archive DROP COLUMN note_{number}")

    await play(scene, fault, relay)
    report = await scene.check(relay)
    assert 0 == report.duplicates
    assert 0 < await scene.queue.value("SELECT count(*) FROM queue_message_archive WHERE note_4 = 'n4'")
