"""What the figures were made on, and what its processes hold in memory."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import psycopg

_EVERY = 0.1
"""Seconds between two looks at the memory."""
MIB = 1 << 20


def described(postgres_url: str, packages: Sequence[str]) -> dict[str, str]:
    """Machine and versions."""
    with psycopg.connect(postgres_url) as connection:
        [server] = connection.execute("SHOW server_version").fetchone() or [""]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "machine": f"{os.cpu_count()} cores ({processor()}), {memory / (1 << 30):.0f} GB memory, {free_bytes() / (1 << 30):.0f} GB free",
        "load at the beginning": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "postgresql": str(server).split()[0],
        **{name: version(name) for name in packages},
    }


def free_bytes() -> int:
    """Room on the disk that servers and lakes are put on."""
    return shutil.disk_usage(tempfile.gettempdir()).free


@dataclass
class Resident:
    """Bytes of a driver in memory: of its Python, and of its JVM; before something began, and at most since."""

    python: list[int] = field(default_factory=list)
    jvm: list[int] = field(default_factory=list)

    def look(self, pid: int) -> None:
        """Take down what is held now."""
        self.python.append(_resident(pid))
        self.jvm.append(sum(_resident(child) for child in _children(pid)))


@contextmanager
def watched(pid: int) -> Iterator[Resident]:
    """Look at a driver's memory as long as the block runs."""
    seen, over = Resident(), threading.Event()
    seen.look(pid)

    def look() -> None:
        while not over.wait(_EVERY):
            seen.look(pid)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _children(pid: int) -> list[int]:
    """The JVM; its executors are children of its own."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(rest.split()[1]) == pid and name == "java":
            found.append(int(folder.name))
    return found


def processor() -> str:
    """What the machine calls its processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
