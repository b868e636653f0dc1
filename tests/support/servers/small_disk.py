"""A file system that runs full or cannot be written to, for one process and its children alone: a mount in a namespace of their own."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path

from relay import devservers

_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
_AS_NOBODY = ("unshare", "--user", "--map-user=65534", "--map-group=65534")
_SMALL = 'mkdir -p "$2" && mount -t tmpfs -o "size=$1,mode=0700" none "$2" && shift 2 && exec "$@"'
_READ_ONLY = """
for place in / /dev/shm /home /root /run /tmp /var /var/tmp "$1"; do mount -o remount,bind,ro "$place" 2>/dev/null; done
for place in "$1" /dev/shm /tmp /var/tmp; do touch "$place/written" 2>/dev/null && exit 99; done
shift
exec "$@"
"""


@functools.cache
def refusal() -> str:
    """Why this machine allows no mount; empty where it does."""
    done = subprocess.run([*_NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False, text=True)
    return "" if done.returncode == 0 else f"no file system can be mounted here: {done.stderr.strip()}"


def read_only(folder: Path) -> Sequence[str]:
    """Words before a command for which no file system can be written to; it ends with 99 where one can be all the same."""
    return (*_NAMESPACE, "sh", "-c", _READ_ONLY, "sh", str(folder))


class SmallPostgres(devservers.Postgres):
    """A private server that has, in addition to its folder, a tablespace `small` of so many megabytes, which is gone with a restart."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        self._megabytes = megabytes

    @property
    def small(self) -> Path:
        """The place, which only the server sees."""
        return self.folder / "small"

    def _unprivileged(self, folder: Path) -> list[str]:
        return [*_NAMESPACE, "sh", "-c", _SMALL, "sh", f"{self._megabytes}m", str(folder / "small"), *_AS_NOBODY]
