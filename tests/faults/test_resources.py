"""A relay that gets too little of the processor, or of memory."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.database.queue import until
from tests.support.faults.play import SMALL_SEEN, WINDOW, producing
from tests.support.faults.scene import Scene

SPIN = "import os\nwhile os.getppid() == {parent}: pass"
"""Ends by itself if the test dies."""
STARVED = 3.0
ROOM = 30 << 20
"""Bytes of memory that a relay may take beyond what it has at rest."""


@contextmanager
def spinning() -> Iterator[None]:
    """Processes that take every processor, two for each."""
    command = (sys.executable, "-S", "-c", SPIN.format(parent=os.getpid()))
    spinners = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


@pytest.mark.fault(29, repeats=20)
@pytest.mark.ids("A11", "B9")
async def test_a_relay_without_processor_time_loses_nothing(scene: Scene) -> None:
    """It has the lowest priority on a fully loaded machine for as long as its locks last, next to a live relay: as if it were suspended."""
    starved, other = [await scene.start(name, **SMALL_SEEN) for name in ("starved", "other")]
    async with producing(scene):
        await until(lambda: scene.holds(starved))
        os.setpriority(os.PRIO_PROCESS, starved.pid, 19)
        with spinning():
            scene.producer.fault(2 * WINDOW)
            await asyncio.sleep(STARVED)  # how long it is starved is the fault itself
    await scene.check(starved, other, timed=False)


@pytest.mark.fault(29, repeats=20)
@pytest.mark.ids("A11", "C9")
async def test_a_message_that_no_memory_holds_ends_alone(scene: Scene) -> None:
    """It is locked before it is fetched, so it is counted, goes alone and ends as `lock_expired`; its neighbours arrive, once."""
    for name, value in (("max_body_bytes", 100 << 20), ("max_attempts", 2)):
        await scene.queue.sql("SELECT queue_message_config_set(%s, %s)", name, str(value))
    relay = await scene.start(**SMALL_SEEN)
    await scene.producer.insert(100)
    await scene.queue.settled()
    relay.send(signal.SIGSTOP)
    resource.prlimit(relay.pid, resource.RLIMIT_AS, (address_space(relay.pid) + ROOM, resource.RLIM_INFINITY))
    await scene.producer.insert(100)
    guilty = await scene.insert_body(2 * ROOM)
    scene.producer.vouch([guilty], "lock_expired")
    await scene.producer.insert(100)
    relay.send(signal.SIGCONT)

    await scene.queue.settled(1)
    await until(lambda: dead(scene, guilty))
    assert 0 == await relay.stop()
    report = await scene.report()
    assert ([], 300, 1) == (report.mismatches(recovery_limit=None), report.delivered, report.dead)
    assert "has no memory" in relay.of("database_down")[0]["error"]


async def dead(scene: Scene, id_: str) -> bool:
    """It ended as what a lock that expired too often ends as."""
    return (await scene.queue.results()).get(id_) == "lock_expired"


def address_space(pid: int) -> int:
    """Bytes that a process has mapped."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
