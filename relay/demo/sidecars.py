"""Runs the relays of the demo, each in a process as in production, with the demo's settings and without the user's settings."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from relay.demo.errors import DemoError
from relay.devservers.process import LOOPBACK, Keeper, free_ports, plain_environment

COMMAND: Final = (sys.executable, "-m", "relay")
"""The command `relay` of this installation."""
_READY_SECONDS: Final = 30.0
_END_SECONDS: Final = 20.0
_LOOK: Final = 0.05
_NONE: Final[Mapping[str, str]] = {}


class Sidecars:
    """Runs `relay` commands. At the end of the block, or when this process is killed, all commands that still run are ended.

    Args:
        settings: environment variables of every command, such as RELAY_DATABASE_URL.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._keeper = Keeper("relay-demo-")
        self._environment = {**plain_environment(self._keeper.folder), **settings}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            for process in self._running.values():
                process.terminate()
                process.send_signal(signal.SIGCONT)  # the process may be frozen
            for process in self._running.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECONDS)
        finally:
            self._keeper.close()  # kills the processes that did not end

    async def command(self, *words: str, settings: Mapping[str, str] = _NONE) -> str:
        """Run a command to its end, with further settings; return its output.

        Raises:
            DemoError: the command failed; the message ends with its error output.
        """
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *words,
            cwd=self._keeper.folder,
            env={**self._environment, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate()
        if process.returncode != 0:
            raise DemoError(f"relay {' '.join(words)} ended with exit code {process.returncode}: {err.decode(errors='replace').strip()}")
        return out.decode()

    async def start(self, *names: str, words: Sequence[str] = ("run",), settings: Mapping[str, str] = _NONE) -> None:
        """Start a relay for each name, or the command given by `words`, with further settings; return when all are ready.

        Raises:
            DemoError: a process is not ready in time; the message ends with its last output.
        """
        ports = free_ports(len(names))
        for name, port in zip(names, ports, strict=True):
            own = {**settings, "RELAY_NAME": name, "RELAY_HTTP_PORT": str(port)}
            self._running[name] = self._keeper.spawn(name, [*COMMAND, *words], self._environment | own, end_by="TERM")
        for name, port in zip(names, ports, strict=True):
            await self._wait_ready(name, port)

    def pause(self, name: str) -> None:
        """Freeze a relay between two instructions."""
        self._running[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """Let a frozen relay continue."""
        self._running[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        """End a relay by SIGKILL, as a crash or the kernel would."""
        process = self._running.pop(name)
        process.kill()
        process.wait()
        self._keeper.forget(name)

    async def stop(self) -> None:
        """End the living relays by SIGTERM, as a deployment would.

        Raises:
            DemoError: a relay did not end by itself with exit code 0.
        """
        for name, process in list(self._running.items()):
            process.terminate()
            code = await asyncio.to_thread(process.wait, _END_SECONDS)
            del self._running[name]
            self._keeper.forget(name)
            if code != 0:
                raise DemoError(f"{name} ended with exit code {code} after SIGTERM: {self._keeper.output(name).strip()}")

    async def _wait_ready(self, name: str, port: int) -> None:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not await asyncio.to_thread(_answers, f"http://{LOOPBACK}:{port}/readyz"):
                    self._expect_alive(name)
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            raise DemoError(f"{name} is not ready after {_READY_SECONDS:g} s: {self._keeper.output(name).strip()}") from None

    def _expect_alive(self, name: str) -> None:
        if (code := self._running[name].poll()) is not None:
            raise DemoError(f"{name} ended with exit code {code}: {self._keeper.output(name).strip()}")


def _answers(url: str) -> bool:
    """Whether the probe succeeds. The request is never sent through a proxy."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False
