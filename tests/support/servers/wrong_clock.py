"""A wall clock that is wrong for one process alone: libfaketime, Debian's, installed or fetched without root."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from relay.devservers.apt import unpack
from tests.support.servers.postgres_clusters import Cluster


class WallClock:
    """The wall clock of a process, by so many seconds off; it may be stepped while the process runs.

    The monotonic clock continues, as in the kernel when the time is set.

    Args:
        library: libfaketime.
        file: where the process looks up, at every call, how wrong the time is.
        off: seconds.
    """

    def __init__(self, library: Path, file: Path, off: int) -> None:
        self._library = library
        self._file = file
        self.step_to(off)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the process."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def step_to(self, off: int) -> None:
        """Be off by so many seconds from now on."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{off:+d}\n")
        fresh.replace(self._file)


class ClockedCluster(Cluster):
    """A PostgreSQL with a wall clock of its own, which may be stepped while it runs."""

    def __init__(self, clock: WallClock) -> None:
        super().__init__()
        self._clock = clock

    def _unprivileged(self, folder: Path) -> list[str]:
        return [*super()._unprivileged(folder), "env", *(f"{name}={value}" for name, value in self._clock.environment.items())]


def libfaketime(say: Callable[[str], None]) -> Path:
    """Path of the library.

    Raises:
        LocalServerError: it is not installed, and apt-get cannot fetch it.
    """
    for installed in Path("/usr/lib").glob("*/faketime/libfaketime.so.1"):
        return installed
    tree = unpack("libfaketime", family=["libfaketime"], say=say, finish=lambda fresh, final: None)
    return next(tree.rglob("libfaketime.so.1"))
