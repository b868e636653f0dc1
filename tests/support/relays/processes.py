"""Fixture: relays as processes of their own, as in production, with nothing of the user's in their environment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from relay.devservers.process import plain_environment
from tests import ROOT
from tests.support.database.queue import PATIENCE

COMMAND = (sys.executable, "-m", "relay")
"""Whose code `COMMAND` runs: that of these tests, which may be a copy of what is installed."""
Line = dict[str, Any]


class RelayProcess:
    """One `relay run`: its log, line by line, and the signals that it gets."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.lines: list[Line] = []
        """Log lines so far; a line that is not JSON is kept under `text`."""
        self._process = process
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def id(self) -> int:
        """What `locked_by` holds of this relay."""
        return int(self.of("started")[-1]["relay_id"])

    def of(self, event: str) -> list[Line]:
        """Lines of one event, oldest first."""
        return [line for line in self.lines if line.get("event") == event]

    async def logged(self, event: str, count: int = 1, *, seconds: float = PATIENCE) -> Line:
        """Wait until an event has been logged `count` times; return that line.

        Raises:
            AssertionError: the time is over, or the process has ended.
        """
        try:
            async with asyncio.timeout(seconds):
                while len(self.of(event)) < count:
                    assert not self._reader.done(), f"{self.name} ended without {event}: {self.lines[-10:]}"
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pytest.fail(f"{self.name} did not log {event} within {seconds:g} s: {self.lines[-10:]}")
        return self.of(event)[count - 1]

    def send(self, number: signal.Signals) -> None:
        """Signal the process."""
        self._process.send_signal(number)

    async def ended(self, seconds: float = PATIENCE) -> int:
        """Wait for the end; return the exit code, negative for a signal."""
        async with asyncio.timeout(seconds):
            await self._reader
            return await self._process.wait()

    async def last_words(self, seconds: float = 2) -> str:
        """What it said last, and how it ended if it does within this time: for who finds that it does not answer."""
        with suppress(TimeoutError):
            await self.ended(seconds)
        return f"exit code {self._process.returncode}, {self.lines[-10:]}"

    async def stop(self) -> int:
        """End it in order, as a deployment would; return the exit code."""
        self.send(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        """End it as a crash or the kernel would."""
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    async def _read(self) -> None:
        assert self._process.stderr is not None
        try:
            async for text in self._process.stderr:
                self.lines.append(_parsed(text))
                self._changed.set()
        finally:
            self._changed.set()


def _parsed(text: bytes) -> Line:
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"text": text.decode(errors="replace").rstrip()}


class Relays:
    """Starts relays; all are killed in the end.

    Args:
        command: the words that begin the command line.
        folder: where they run, without an `.env`.

    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = command
        code = {"PYTHONPATH": str(ROOT)} if command == COMMAND else {}
        self._environment = {**plain_environment(folder), "RELAY_LOG_FORMAT": "json", "RELAY_HTTP_PORT": "", **code}
        self._folder = folder
        self._started: list[RelayProcess] = []

    async def start(
        self,
        name: str = "relay",
        *,
        database: str,
        broker: str,
        ready: bool = True,
        settings: Mapping[str, str] | None = None,
        command: str | Sequence[str] = "run",
    ) -> RelayProcess:
        """Start `relay run`, and with `ready` return when both servers know it; settings are variables such as RELAY_WINDOW."""
        words = [command] if isinstance(command, str) else command
        own = {"RELAY_NAME": name, "RELAY_DATABASE_URL": database, "RELAY_AMQP_URL": broker}
        process = await asyncio.create_subprocess_exec(
            *self._command, *words, cwd=self._folder, env={**self._environment, **own, **(settings or {})},
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, limit=1 << 20,
        )  # fmt: skip
        relay = RelayProcess(name, process)
        self._started.append(relay)
        if ready:
            await relay.logged("receiving" if command == "receive" else "started")
            if "work" not in words:
                await relay.logged("broker_up")
        return relay

    async def command(self, *words: str, database: str, settings: Mapping[str, str] | None = None) -> str:
        """Run another command to its end, which must be a success; return what it printed."""
        process = await asyncio.create_subprocess_exec(
            *self._command, *words, cwd=self._folder, env={**self._environment, "RELAY_DATABASE_URL": database, **(settings or {})},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def close(self) -> None:
        """Kill what still runs, also what is frozen."""
        for relay in self._started:
            await relay.kill()


@pytest.fixture
def relay_command() -> Sequence[str]:
    """How `relay` is started: from the checkout, unless a folder says otherwise."""
    return COMMAND


@pytest.fixture
async def relays(relay_command: Sequence[str], tmp_path: Path) -> AsyncIterator[Relays]:
    """Starts relays as processes of their own."""
    made = Relays(relay_command, tmp_path)
    yield made
    await made.close()


def seconds_between(first: Line, last: Line) -> float:
    """Time between two lines of a relay, by its own clock."""
    return (datetime.fromisoformat(last["timestamp"]) - datetime.fromisoformat(first["timestamp"])).total_seconds()


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def queued_seconds(pid: int) -> float:
    """Time for which a process could run and others had the processors (proc(5), schedstat)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def peak_memory(pid: int) -> int:
    """Largest resident size of a process so far, in bytes."""
    [kilobytes] = [line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(kilobytes) * 1024
