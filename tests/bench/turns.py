"""What every part of the pipeline's measurement needs: the server, a folder, rounds in turns, and progress."""

from __future__ import annotations

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relay import devservers


@dataclass
class Bench:
    """What every part needs."""

    server: devservers.Postgres
    folder: Path
    rounds: int
    began: float

    def say(self, line: str) -> None:
        """Tell the person who waits."""
        print(f"[{time.monotonic() - self.began:6.1f} s] {line}", flush=True)  # noqa: T201

    def emptied(self, name: str) -> str:
        """A place where nothing is; what was written before is on the disk, so that nothing has to wait for it."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        os.sync()
        return str(path)

    def take_turns(self, sides: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
        """Seconds of each side and round; every other round goes the other way round."""
        found = defaultdict[str, list[float]](list)
        for number in range(self.rounds + 1):
            for name in sides if number % 2 else reversed(sides):
                seconds = sides[name]()
                self.say(f"{name}: {seconds:.2f} s{'' if number else ' (not counted)'}")
                if number:
                    found[name].append(seconds)
        return found
