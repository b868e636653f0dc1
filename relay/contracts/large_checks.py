"""Checks of large contents in a process beside the relay, one at a time: it is started when one comes, and ends when none has for a while.

The library holds the interpreter's lock for as long as it checks, so a thread would keep everything else waiting.
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
"""Processor seconds that a check may take, and as many again as the content has MiB: ten times what the usual large one takes."""
_PATIENCE: Final = 20
"""Times as long that it may take by the clock, on a machine that has more to do."""
_COUNTED: Final = 60.0
"""Seconds by the clock that a check counts at the most, where exchanges have equal shares of them."""
_IDLE: Final = 10.0
"""Seconds after which a process that checks nothing ends, and its memory is free."""
_KEPT: Final = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUTF8", "LANG", "LC_ALL", "LC_CTYPE")
"""Variables by which Python starts as the relay did; all others stay here, such as those with secrets."""
_PIECE: Final = 1 << 20
"""Bytes of a content that are handed over at once, so that no second copy of it stands in a buffer."""


class CheckFailure(StrEnum):
    """Why a check did not come to its end."""

    TIME = "its check takes too much time"
    MEMORY = "its check takes too much memory"
    LOST = "the process that checks it ended, or could not be started"
    """Nothing of it is the message's fault for certain."""


class CheckResult(NamedTuple):
    """What a check has found."""

    found: Sequence[Violation | None]
    """For each of the first schemas, all of them where `end` is None."""
    end: CheckFailure | None


def seconds_for(size: int) -> int:
    """Processor seconds that the check of a content of so many bytes may take."""
    return _SECONDS + (size >> 20)


class LargeChecks:
    """Checks contents in a process of its own, one at a time; exchanges have equal shares of its time."""

    def __init__(self) -> None:
        self._turns = FairTurns(most=_COUNTED, clock=time.monotonic)
        self._process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._closed = False

    async def judge(self, exchange: str, content: bytes, schemas: Sequence[str]) -> CheckResult:
        """How a content breaks these schemas; never raises for what stands in it."""
        async with self._turns.turn(exchange):
            self._keep()
            reused, found = self._lives, list[Violation | None]()
            try:
                async with asyncio.timeout(seconds_for(len(content)) * _PATIENCE):
                    end = await self._check(content, schemas, found)
                    if reused and (end is CheckFailure.MEMORY or (end is CheckFailure.LOST and not found)):
                        # Neither an end while it was idle nor what others left in its memory is this content's fault.
                        found.clear()
                        end = await self._check(content, schemas, found)
            except TimeoutError:
                end = CheckFailure.LOST
            finally:
                # Also where it was cut off: what it answers then would be taken for the answer to the next one.
                self._idle = asyncio.get_running_loop().call_later(_IDLE, self._end) if self._process else None
            return CheckResult(found, end)

    async def aclose(self) -> None:
        """End the process, and start no other; legal at any time, and again."""
        self._closed = True
        self._end()
        async with self._turns.turn(""):  # behind the check under way, which may be starting a process
            self._keep()
            self._end()
        if self._ending is not None:
            await self._ending.wait()

    async def _check(self, content: bytes, schemas: Sequence[str], found: list[Violation | None]) -> CheckFailure | None:
        process = None
        try:
            process = await self._started()
            await _ask(process, content, schemas)
            while len(found) < len(schemas) and (line := await _stdout(process).readline()):
                answer = json.loads(line)
                found.append(answer and Violation._make(answer))
        except (OSError, ValueError):  # ValueError: a line that is cut, or longer than a reader takes
            pass
        except BaseException:
            self._end()
            raise
        return None if len(found) == len(schemas) else await self._ended(process)

    async def _started(self) -> asyncio.subprocess.Process:
        if not self._lives and not self._closed:
            # In a session of its own, so that a Ctrl-C is the relay's; without secrets in its environment; what it prints is not kept.
            starting = asyncio.ensure_future(asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "relay.contracts.check_process", str(os.getpid()),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                env=_environment(), start_new_session=True,
            ))  # fmt: skip
            try:
                self._process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                self._process = await starting  # so that it is ended, and outlives nobody who asked for it
                raise
        if self._closed or self._process is None:
            self._end()
            raise ProcessLookupError
        return self._process

    @property
    def _lives(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _ended(self, process: asyncio.subprocess.Process | None) -> CheckFailure:
        self._end()
        code = None if process is None else await process.wait()
        if code == -signal.SIGPROF:
            return CheckFailure.TIME
        return CheckFailure.MEMORY if code in (NO_MEMORY, -signal.SIGABRT) else CheckFailure.LOST

    def _keep(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end(self) -> None:
        if self._process is None:
            return
        self._ending, self._process = self._process, None
        if self._ending.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and nobody has noticed yet
                self._ending.kill()


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


async def _ask(process: asyncio.subprocess.Process, content: bytes, schemas: Sequence[str]) -> None:
    size = len(content)
    request = {"size": size, "seconds": seconds_for(size), "memory": of_check(size), "schemas": schemas}
    await _send(process, json.dumps(request).encode() + b"\n")
    for start in range(0, size, _PIECE):
        await _send(process, content[start : start + _PIECE])


async def _send(process: asyncio.subprocess.Process, octets: bytes) -> None:
    """Hand over octets; OSError where the process has closed the pipe, for which uvloop raises a RuntimeError of its own."""
    assert process.stdin is not None
    if process.stdin.is_closing():
        raise BrokenPipeError
    process.stdin.write(octets)
    await process.stdin.drain()


def _stdout(process: asyncio.subprocess.Process) -> asyncio.StreamReader:
    assert process.stdout is not None
    return process.stdout
