"""Checks large contents in a child process, one at a time. The process starts on demand and ends when idle.

The library holds the interpreter's lock during a check, so a thread would block everything else.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final, NamedTuple

from relay.contracts.check_process import NO_MEMORY
from relay.contracts.fair_queue import FairTurns
from relay.contracts.violation import Violation
from relay.memory import of_check

_SECONDS: Final = 10
"""Processor seconds that a check may take, plus one for each MiB of content: ten times the usual duration."""
_WALL_CLOCK_FACTOR: Final = 20
"""The limit in elapsed time on a busy machine, as a multiple of the limit in processor seconds."""
_MAX_TURN: Final = 60.0
"""The most elapsed seconds that a check counts in the exchanges' fair shares."""
_IDLE: Final = 10.0
"""Seconds after which an idle process ends, so that its memory is freed."""
_KEPT_ENV: Final = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUTF8", "LANG", "LC_ALL", "LC_CTYPE")
"""Environment variables that Python needs. No other variables are passed on, because some contain secrets."""
_PIECE: Final = 1 << 20
"""How many bytes of a content are sent at once, so that no buffer has a second copy of the whole content."""


class CheckFailure(StrEnum):
    """Why a check did not finish."""

    TIME = "its check takes too much time"
    MEMORY = "its check takes too much memory"
    LOST = "the process that checks it ended, or could not be started"
    """The process ended; the message is not necessarily the cause."""


class CheckResult(NamedTuple):
    """The result of a check."""

    found: Sequence[Violation | None]
    """For each schema in order; complete if `end` is None."""
    end: CheckFailure | None


def seconds_for(size: int) -> int:
    """The processor seconds that the check of a content of this size may take."""
    return _SECONDS + (size >> 20)


class LargeChecks:
    """Checks contents in a child process, one at a time; exchanges get equal shares of its time."""

    def __init__(self) -> None:
        self._turns = FairTurns(max_seconds=_MAX_TURN, clock=time.monotonic)
        self._process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.subprocess.Process | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def judge(self, exchange: str, content: bytes, schemas: Sequence[str]) -> CheckResult:
        """The violations of these schemas by a content. The method raises no error, whatever the content."""
        async with self._turns.turn(exchange):
            self._cancel_idle_timer()
            reused, found = self._is_running, list[Violation | None]()
            try:
                async with asyncio.timeout(seconds_for(len(content)) * _WALL_CLOCK_FACTOR):
                    end = await self._check(content, schemas, found)
                    if reused and (end is CheckFailure.MEMORY or (end is CheckFailure.LOST and not found)):
                        # The process may have died while idle, or earlier contents may have filled its memory: try a new process.
                        found.clear()
                        end = await self._check(content, schemas, found)
            except TimeoutError:
                end = CheckFailure.LOST
            finally:
                # After a cancellation the process was ended, because its late response would be read as the response to the next request.
                self._idle_timer = asyncio.get_running_loop().call_later(_IDLE, self._end) if self._process else None
            return CheckResult(found, end)

    async def aclose(self) -> None:
        """End the process, and start no further process; may be called at any time and repeatedly."""
        self._closed = True
        self._end()
        async with self._turns.turn(""):  # waits for the running check, which may be starting a process
            self._cancel_idle_timer()
            self._end()
        if self._ending is not None:
            await self._ending.wait()

    async def _check(self, content: bytes, schemas: Sequence[str], found: list[Violation | None]) -> CheckFailure | None:
        process = None
        try:
            process = await self._ensure_process()
            await _ask(process, content, schemas)
            while len(found) < len(schemas) and (line := await _stdout(process).readline()):
                answer = json.loads(line)
                found.append(answer and Violation._make(answer))
        except (OSError, ValueError):  # ValueError: a line that is cut off, or too long for the reader
            pass
        except BaseException:
            self._end()
            raise
        return None if len(found) == len(schemas) else await self._failure_of(process)

    async def _ensure_process(self) -> asyncio.subprocess.Process:
        if not self._is_running and not self._closed:
            # The process gets a session of its own, so that Ctrl-C reaches only the relay, and no secrets in its environment. Its stderr is
            # dropped.
            starting = asyncio.ensure_future(asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "relay.contracts.check_process", str(os.getpid()),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                env=_environment(), start_new_session=True,
            ))  # fmt: skip
            try:
                self._process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                self._process = await starting  # stored, so that the process is ended and does not outlive its caller
                raise
        if self._closed or self._process is None:
            self._end()
            raise ProcessLookupError
        return self._process

    @property
    def _is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _failure_of(self, process: asyncio.subprocess.Process | None) -> CheckFailure:
        self._end()
        code = None if process is None else await process.wait()
        if code == -signal.SIGPROF:
            return CheckFailure.TIME
        return CheckFailure.MEMORY if code in (NO_MEMORY, -signal.SIGABRT) else CheckFailure.LOST

    def _cancel_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _end(self) -> None:
        if self._process is None:
            return
        self._ending, self._process = self._process, None
        if self._ending.returncode is None:
            with suppress(ProcessLookupError):  # the process has ended, but is not reaped yet
                self._ending.kill()


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT_ENV if name in os.environ} | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


async def _ask(process: asyncio.subprocess.Process, content: bytes, schemas: Sequence[str]) -> None:
    size = len(content)
    request = {"size": size, "seconds": seconds_for(size), "memory": of_check(size), "schemas": schemas}
    await _send(process, json.dumps(request).encode() + b"\n")
    for start in range(0, size, _PIECE):
        await _send(process, content[start : start + _PIECE])


async def _send(process: asyncio.subprocess.Process, octets: bytes) -> None:
    """Send octets. Raises OSError if the process has closed the pipe; uvloop would raise a RuntimeError."""
    assert process.stdin is not None
    if process.stdin.is_closing():
        raise BrokenPipeError
    process.stdin.write(octets)
    await process.stdin.drain()


def _stdout(process: asyncio.subprocess.Process) -> asyncio.StreamReader:
    assert process.stdout is not None
    return process.stdout
