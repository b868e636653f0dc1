"""The process of a relay under measurement: whatever it is written in, started, frozen, ended and killed alike."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from relay.devservers.process import family, kill_family, plain_environment, send
from tests.bench.rivals.rival import Rival, Start
from tests.bench.speed.stage import Stage
from tests.support.relays.processes import peak_memory

PATIENCE = 60.0
_LOOK = 0.05


class RelayProcess:
    """A relay; what it prints is kept in a file."""

    def __init__(self, start: Start, folder: Path) -> None:
        self._start, self._log = start, folder / "log"
        with self._log.open("ab") as log:
            self._began_at = log.tell()
            self._process = subprocess.Popen(
                start.command, cwd=folder, env={**plain_environment(folder), **start.environment},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the first process."""
        return self._process.pid

    @property
    def lines(self) -> list[str]:
        """What it printed, and others in the same folder before it."""
        return self._log.read_text(errors="replace").splitlines()

    async def ready(self) -> None:
        """Wait until it says that it is.

        Raises:
            RuntimeError: it has ended, or says nothing in time; the message has its last words.
        """
        deadline = time.monotonic() + PATIENCE
        while self._start.ready not in self._said():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._start.command[0]} is not ready; its last words: {self._said()[-2000:]}")
            await asyncio.sleep(_LOOK)

    def freeze(self) -> None:
        """Let no process of it run."""
        send(family(self.pid), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        send(family(self.pid), signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash or the kernel would."""
        kill_family(self._process)

    def memory(self) -> float:
        """Megabytes (MiB) of all its processes, each at its peak."""
        return sum(map(peak_memory, family(self.pid))) / (1 << 20)

    def _said(self) -> str:
        with self._log.open(errors="replace") as log:
            log.seek(self._began_at)
            return log.read()


@asynccontextmanager
async def running(stage: Stage, rival: Rival, database: str) -> AsyncIterator[RelayProcess]:
    """Start the relay in a folder of its own; killed in the end."""
    with tempfile.TemporaryDirectory(dir=stage.folder) as folder:
        process = await started(stage, rival, database, Path(folder))
        try:
            yield process
        finally:
            process.kill()


async def started(stage: Stage, rival: Rival, database: str, folder: Path) -> RelayProcess:
    """Start the relay, and return when it is ready; killed if it is not."""
    process = RelayProcess(rival.start(database, stage.rabbitmq.url), folder)
    try:
        await process.ready()
    except BaseException:
        process.kill()
        raise
    return process
