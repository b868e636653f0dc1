"""A relay that gets too little of the processor."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.conftest import Scene
from tests.faults.test_many_relays import SMALL, producing
from tests.support.queue import until

SPIN = "import os\nwhile os.getppid() == {parent}: pass"
"""Ends by itself if the test dies."""
STARVED = 3.0


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
    """The lowest priority on a machine that others fill, for as long as its locks last, while another relay lives: as if it stood still."""
    starved, other = [await scene.start(name, **SMALL) for name in ("starved", "other")]
    async with producing(scene):
        await until(lambda: scene.holds(starved))
        os.setpriority(os.PRIO_PROCESS, starved.pid, 19)
        with spinning():
            scene.producer.fault(2 * int(SMALL["RELAY_WINDOW"]))
            await asyncio.sleep(STARVED)  # how long it is starved is the fault itself
    await scene.check(starved, other, recovery=None)
