"""Relays of two versions side by side, and a migration under their hands.

Nothing was released yet. So the older relay is an earlier commit of this repository, and the newer one a copy of this checkout with one
more migration. Without the history of the repository the older one is left out with a reason.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from relay.postgres.schema.sql_files import migrations
from tests import ROOT
from tests.support.faults.play import SMALL, play
from tests.support.faults.scene import Scene
from tests.support.relays.processes import COMMAND, RelayProcess, Relays
from tests.support.relays.scrape import HTTP, metric

EARLIER = "f37a703"
"""A commit whose relay has other statements than this one, and finds in this schema what it uses."""
LATER = """
-- As a later version may add: columns, and a word of policy that this one does not know.
ALTER TABLE @schema@.queue_message ADD COLUMN later text;
ALTER TABLE @schema@.queue_message_archive ADD COLUMN later text;
CREATE TABLE @schema@.queue_message_later (id bigint PRIMARY KEY);
"""


def earlier(folder: Path) -> Path:
    """The relay of an earlier commit, which says another version."""
    made = subprocess.run(["git", "archive", EARLIER, "relay", "sql"], cwd=ROOT, capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"commit {EARLIER} of this repository is not here")
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder], input=made.stdout, check=True)  # Python's own needs 3.11.4 to check paths
    return renamed(folder, "0.0.1")


def later(folder: Path) -> Path:
    """This relay with one more migration, which says another version."""
    for name in ("relay", "sql"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "sql" / f"{migrations()[-1].version + 1:04}_later.sql").write_text(LATER)
    return renamed(folder, "9.9.9")


def renamed(folder: Path, version: str) -> Path:
    """The same with another version."""
    beginning = folder / "relay" / "__init__.py"
    beginning.write_text(f'{beginning.read_text()}\n__version__ = "{version}"\n')
    return folder


@asynccontextmanager
async def relays_of(make: Callable[[Path], Path], folder: Path) -> AsyncIterator[Relays]:
    """Starts relays of another version, from a folder where Python finds that one first."""
    made = Relays(COMMAND, make(folder))
    yield made
    await made.close()


async def start(scene: Scene, relays: Relays, name: str, *, ready: bool = True) -> RelayProcess:
    """Start one between the two servers."""
    return await relays.start(name, database=scene.queue.url, broker=scene.broker.url, settings={**SMALL, **HTTP}, ready=ready)


async def versions(scene: Scene) -> dict[str, str]:
    """The version that each relay has reported, by its name."""
    return dict(await scene.queue.sql("SELECT name, version FROM queue_message_relay"))


async def migrates(relays: Relays, url: str) -> str:
    """Run that version's `relay migrate` until it gets its lock; return what it says."""
    while True:
        try:
            return await relays.command("migrate", database=url)
        except AssertionError as error:
            if "Another transaction holds what must change" not in str(error):
                raise


@pytest.mark.fault(31, repeats=20)
@pytest.mark.ids("C9", "C17")
async def test_an_older_and_this_relay_share_a_queue(scene: Scene, tmp_path: Path) -> None:
    """Replaced one after the other under load, there and back: keys in order, and a graceful stop repeats nothing."""
    async with relays_of(earlier, tmp_path / "earlier") as elders:
        old = await start(scene, elders, "old")
        new = await scene.start("new", **SMALL)
        assert "0.0.1" == (await versions(scene))["old"]

        async def fault() -> None:
            await asyncio.sleep(scene.chance.uniform(0.2, 0.6))  # the random moment
            assert 0 == await old.stop()
            again = await start(scene, elders, "again")
            await asyncio.sleep(scene.chance.uniform(0.2, 0.6))  # the random moment
            assert 0 == await new.stop()
            await scene.kill(again)

        await play(scene, fault)
        # No relay lives from the kill until the last one has started, however long that takes.
        await scene.check(await scene.start("last", **SMALL), timed=False)


@pytest.mark.fault(31, repeats=20)
@pytest.mark.ids("C9", "C17")
async def test_a_later_migration_under_load_disturbs_nobody(scene: Scene, tmp_path: Path) -> None:
    """The newer relay waits for its schema; this one works before, during and after. A stop and a crash cost what they always do."""
    relay = await scene.start("relay", **SMALL, **HTTP)
    async with relays_of(later, tmp_path / "later") as successors:
        newer = await start(scene, successors, "newer", ready=False)

        async def fault() -> None:
            assert "run `relay migrate`" in (await newer.logged("database_down"))["error"]
            assert "later" in await migrates(successors, scene.queue.url)
            await newer.logged("started")
            assert "9.9.9" == (await versions(scene))["newer"]
            assert "9.9.9" in await scene.status()
            await scene.kill(newer)

        await play(scene, fault, relay)
        refused = await migrates_not(scene)
        assert "install the outbox-relay that made it, or a newer one" in refused
        assert 0 == await metric(relay, "relay_lock_lost_total")
        await scene.check(relay, await start(scene, successors, "last"))
    assert [] == relay.of("database_down")


async def migrates_not(scene: Scene) -> str:
    """What this version's `relay migrate` says of a schema that it does not know."""
    with pytest.raises(AssertionError) as refused:
        await scene.relays.command("migrate", database=scene.queue.url)
    return str(refused.value)
