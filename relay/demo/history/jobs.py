"""Runs the pipeline's commands as a scheduler does, each in a process of its own, and shows their progress; one of them is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from relay.demo.errors import DemoError
from relay.demo.screen import Screen
from relay.demo.sidecars import COMMAND
from relay.devservers.java import QUICK_START
from relay.devservers.process import Keeper, kill_family, plain_environment

_LOOK: Final = 0.1
_CLOSE_LOOK: Final = 0.002
"""Seconds between two checks of a process; the shorter time is for a process that must be caught between two of its steps."""
# Result and progress are written to separate files, as a scheduler does.
_WITH_RESULT: Final = ("/bin/sh", "-c", 'result=$1; shift; exec "$@" >"$result"', "sh")


class _Job(NamedTuple):
    words: str
    process: subprocess.Popen[bytes]
    result: Path
    progress: Path


class Jobs:
    """Runs `relay pipeline …`. At the end of the block, or when this process is killed, all commands that still run are killed.

    Args:
        settings: environment variables of every command.
        java: the home directory of a Java for Spark.
        screen: shows the progress.
    """

    def __init__(self, settings: Mapping[str, str], java: Path, screen: Screen) -> None:
        self._keeper = Keeper("relay-jobs-")
        folder = str(self._keeper.folder)
        # With a few thousand rows, most of the time would be spent on Spark's default of two hundred tasks for each join.
        (self._keeper.folder / "spark-defaults.conf").write_text("spark.sql.shuffle.partitions 2\n")
        # The files of a killed Spark are deleted with the folder. Spark gets two cores, so that the demo is the same on every machine.
        places = {"SPARK_CONF_DIR": folder, "SPARK_LOCAL_DIRS": folder, "TMPDIR": folder}
        spark = {"JAVA_HOME": str(java), "SPARK_MASTER": "local[2]", **places, **QUICK_START}
        self._environment = {**plain_environment(self._keeper.folder), **spark, **settings}
        self._screen = screen
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._keeper.close()

    async def run(self, *words: str, may_end_with: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """Run a command to its end, and show its progress; return the JSON that it printed.

        Raises:
            DemoError: the command ended with another exit code; the message is the command's output.
        """
        job = self._start(words)
        told = 0
        with self._screen.progress():
            while job.process.poll() is None:
                told = self._tell(job, told)
                self._screen.update(f"{job.words} is at work")
                await asyncio.sleep(_LOOK)
        self._keeper.forget(job.progress.stem)
        said = job.progress.read_text(errors="replace").strip()
        if job.process.returncode not in may_end_with:
            raise DemoError(f"{job.words} ended with exit code {job.process.returncode}: {said[-1000:]}")
        self._tell(job, told)
        return json.loads(job.result.read_text(encoding="utf-8"))  # type: ignore[no-any-return]

    async def kill_in_the_middle(self, table: Path, *words: str) -> list[Path]:
        """Run a command, and kill it and its children by SIGKILL when it has written files of the table but not committed them.

        Returns:
            The files that the command has left; an empty list if the command ended before it could be killed.
        """
        job = self._start(words)
        catching = asyncio.create_task(asyncio.to_thread(_catch, job.process, table))
        with self._screen.progress():
            while not catching.done():
                self._screen.update(f"{job.words} is at work, and will be killed as soon as it has written a file")
                await asyncio.wait([catching], timeout=_LOOK)
        self._keeper.forget(job.progress.stem)
        return await catching

    def _start(self, words: tuple[str, ...]) -> _Job:
        self._number += 1
        name, result = f"job-{self._number}", self._keeper.folder / f"job-{self._number}.json"
        command = [*_WITH_RESULT, str(result), *COMMAND, "pipeline", *words, "--json"]
        process = self._keeper.spawn(name, command, self._environment, end_by="KILL")
        return _Job(f"relay pipeline {words[0]}", process, result, self._keeper.folder / f"{name}.out")

    def _tell(self, job: _Job, told: int) -> int:
        """Show the lines that the command has printed after the first `told`; return the number of all its lines."""
        lines = job.progress.read_text(errors="replace").split("\n")[:-1]
        for line in lines[told:]:
            self._screen.say(f"{job.words}: {line}")
        return len(lines)


def files_of(table: Path) -> set[Path]:
    """Data files below a table's folder, including files that belong to no version of the table."""
    return set(table.rglob("*.parquet"))


def _commits_of(table: Path) -> set[Path]:
    return set((table / "_delta_log").glob("*.json"))


def _catch(process: subprocess.Popen[bytes], table: Path) -> list[Path]:
    """Freeze a process as soon as it has written a file; kill it and its children unless it has committed."""
    files, commits = files_of(table), _commits_of(table)
    while process.poll() is None:
        if new := files_of(table) - files:
            # Only the process itself commits, so nothing is committed while it is frozen.
            os.kill(process.pid, signal.SIGSTOP)
            if _commits_of(table) == commits:
                kill_family(process)
                return sorted(new)
            os.kill(process.pid, signal.SIGCONT)
            process.wait()
        time.sleep(_CLOSE_LOOK)
    return []
