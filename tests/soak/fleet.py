"""The relays of a soak: two processes, of which one is never killed, from the same code as this process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import relay
from tests.support.database.queue import until
from tests.support.relays.processes import Line, RelayProcess, Relays

SURVIVOR, VICTIM = "survivor", "victim"
CODE = Path(relay.__file__).resolve().parents[1]
COMMAND = ("setsid", "setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "relay")
"""In a session of their own, so that Ctrl-C reaches them by us alone, and never without us."""
START_SECONDS = 120.0
RELAY_LOG = "relays.jsonl"
"""Every log line of every relay."""


class OtherCodeError(Exception):
    """Processes started here would run another checkout than this one."""


@dataclass
class Life:
    """One process of a relay, from its start to its end."""

    process: RelayProcess
    id: int
    """What `locked_by` holds."""
    port: int
    """Of its metrics."""
    number: int
    """Counts the lives of this name from 1."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the process is there; a zombie is not."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False


class Fleet:
    """Starts relays by name, and says what became of them.

    Args:
        folder: where they run, and where their log lines go.
        database: their way to PostgreSQL.
        broker: their way to RabbitMQ.
        settings: variables such as RELAY_WINDOW.

    """

    def __init__(self, folder: Path, *, database: str, broker: str, settings: Mapping[str, str]) -> None:
        self._relays = Relays(COMMAND, folder)
        self._ways = {"database": database, "broker": broker}
        self._settings = {"RELAY_HTTP_PORT": "0", "PYTHONPATH": str(CODE), **settings}
        self._log = (folder / RELAY_LOG).open("a", encoding="utf-8")
        self.lives: dict[str, Life] = {}
        self.events: Counter[str] = Counter()
        self.tracebacks: list[Line] = []
        """Lines that are no JSON, or tell where in the code something broke; there should be none."""

    def check_code(self) -> None:
        """See that a started process imports the relay from where this one has it.

        Raises:
            OtherCodeError: it does not.
        """
        environment = {**self._relays._environment, **self._settings}
        code = [sys.executable, "-c", "import relay; print(relay.__file__)"]
        said = subprocess.run(code, env=environment, cwd="/", capture_output=True, text=True, check=True).stdout.strip()
        if Path(said).resolve() != Path(relay.__file__).resolve():
            message = f"A relay started here would run {said}, and this is {relay.__file__}: set PYTHONPATH to one checkout."
            raise OtherCodeError(message)

    async def start(self, name: str) -> Life:
        """Start a relay, and return when both servers know it."""
        process = await self._relays.start(name, **self._ways, ready=False, settings=self._settings)
        await until(lambda: all(process.of(event) for event in ("started", "broker_up", "http_up")), START_SECONDS)
        self.read_logs()
        number = self.lives[name].number + 1 if name in self.lives else 1
        self.lives[name] = Life(process, process.id, int(process.of("http_up")[0]["port"]), number)
        return self.lives[name]

    async def end(self, name: str) -> int:
        """End a relay in order; return its exit code."""
        return await self.lives[name].process.stop()

    async def revive(self) -> list[str]:
        """Start again what has died by itself; return its names."""
        dead = [name for name, life in self.lives.items() if not life.alive]
        for name in dead:
            await self.start(name)
        return dead

    def read_logs(self) -> None:
        """Count log lines and write them down, so that they need no memory here."""
        for name, life in self.lives.items():
            for line in life.process.lines:
                self.events[str(line.get("event", "text"))] += 1
                self._log.write(json.dumps({"relay": name, "life": life.number, **line}) + "\n")
                if "text" in line or "where" in line:
                    self.tracebacks.append(line)
            life.process.lines.clear()
        self._log.flush()

    async def close(self) -> None:
        """Kill what still runs."""
        await self._relays.close()
        await asyncio.to_thread(self._log.close)
