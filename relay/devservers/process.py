"""The base of private servers: a folder, free ports, and processes that always end with this one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from relay.errors import LocalServerError

Say = Callable[[str], None]
"""Takes one line of progress."""

LOOPBACK = "127.0.0.1"

_STEP = 0.02
"""Seconds between two polls of a process that starts or ends."""

# The guard sleeps until its pipe closes; the kernel closes the pipe of a killed process too. The servers are in sessions of their own,
# so that no Ctrl-C reaches them before their owner has ended them in order.
_GUARD = """
cat >/dev/null
each() { for ward in "$folder"/wards/*; do [ -e "$ward" ] && read -r signal target <"$ward" && "$@"; done; }
alive() { kill -s 0 -- "$target" && living=yes; }
folder=$1
each eval 'kill -s CONT -- "$target"; kill -s "$signal" -- "$target"'
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  living=no; each alive; [ $living = no ] && break; sleep 0.25
done
each eval 'kill -s KILL -- "$target"'
rm -rf "$folder" || { sleep 1; rm -rf "$folder"; }
"""


class Keeper:
    """A private folder, and a guard that ends the processes started there and removes the folder when this process has ended.

    Args:
        prefix: how the folder's name begins.
        parent: where it is made; None for /tmp.

    """

    def __init__(self, prefix: str, parent: str | None = None) -> None:
        # A socket's path has at most 107 bytes, so never use a deep TMPDIR.
        parent = parent or ("/tmp" if os.access("/tmp", os.W_OK) else None)  # noqa: S108
        self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        (self.folder / "wards").mkdir()
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def spawn(self, name: str, command: Sequence[str], env: Mapping[str, str], *, end_by: str) -> subprocess.Popen[bytes]:
        """Start a server in its own session, with output in the file `name`.out; the guard ends it by the signal `end_by`.

        `end_by` is a signal's name without SIG; KILL goes to the whole process group.
        """
        with (self.folder / f"{name}.out").open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        target = -process.pid if end_by == "KILL" else process.pid
        (self.folder / "wards" / name).write_text(f"{end_by} {target}\n")
        return process

    def forget(self, name: str) -> None:
        """Note that the process of this name has ended, so that the guard leaves it alone."""
        (self.folder / "wards" / name).unlink(missing_ok=True)

    def output(self, name: str) -> str:
        """Return the last lines that the process wrote."""
        path = self.folder / f"{name}.out"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def close(self) -> None:
        """End remaining processes, and remove the folder; may be repeated."""
        if self._guard.stdin is not None and not self._guard.stdin.closed:
            self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Server(ABC):
    """The life of a private server, from `with` or `start` on; `stop` keeps its data, `close` removes all.

    Args:
        title: the server's name in messages.
        name: the process's name in its folder.
        prefix: how the folder's name begins.
        stop_by: signal that shuts it down in order.
        parent: where its folder is made; None for /tmp.

    """

    def __init__(self, title: str, *, name: str, prefix: str, stop_by: signal.Signals, parent: str | None = None) -> None:
        self._title, self._name, self._prefix, self._stop_by, self._parent = title, name, prefix, stop_by, parent
        self._keeper: Keeper | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        """The server's folder: its data, its output and its logs."""
        return self._made().folder

    def start(self) -> None:
        """Start the server, and return when it answers; does nothing if it runs.

        Raises:
            LocalServerError: the server does not start; the message ends with its own words.
        """
        if self._process is None or self._process.poll() is not None:
            self._launch(self._made())

    def stop(self) -> None:
        """Shut the server down cleanly; its data and ports stay for the next `start`."""
        self._end(self._stop_by)

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def crash(self) -> None:
        """Kill all processes of the server at once."""
        kill_family(self._running())
        self._forget()

    def freeze(self) -> None:
        """Stop every process of the server (SIGSTOP): it hangs, but its connections stay open."""
        send(family(self._running().pid), signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume a frozen server."""
        if self._process is not None and self._process.poll() is None:
            send(family(self._process.pid), signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove its files; may be repeated."""
        if self._keeper is None:
            return
        try:
            self._end_for_good()
        finally:
            self._keeper.close()
            self._keeper = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    @abstractmethod
    def _prepare(self, keeper: Keeper) -> None:
        """Prepare a new folder for the first start."""

    @abstractmethod
    def _launch(self, keeper: Keeper) -> None:
        """Start the process, and wait until it answers."""

    @abstractmethod
    def _end_for_good(self) -> None:
        """End every process; the data are not needed any more."""

    def _made(self) -> Keeper:
        if self._keeper is None:
            self._keeper = Keeper(self._prefix, self._parent)
            self._prepare(self._keeper)
        return self._keeper

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            message = f"This {self._title} is not running; start it first."
            raise LocalServerError(message)
        return self._process

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self.thaw()
            send([self._process.pid], number)
            self._process.wait(timeout=60)
            self._forget()

    def _forget(self) -> None:
        self._process = None
        if self._keeper is not None:
            self._keeper.forget(self._name)


def free_ports(count: int) -> list[int]:
    """Return distinct free loopback ports below the range of outgoing connections.

    Otherwise a client that keeps connecting to a stopped server could get the server's port for itself, and the server could not start.
    """
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(10_240, lowest_outgoing) if lowest_outgoing > 12_000 else range(49_152, 65_536)  # noqa: PLR2004
    found: list[int] = []
    for port in random.sample(candidates, len(candidates)):  # not a secret
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    message = "No free loopback port was found; stop some servers and try again."
    raise LocalServerError(message)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def plain_environment(home: Path, *, first_in_path: Sequence[Path] = ()) -> dict[str, str]:
    """Return an environment with only PATH from the user's."""
    path = [*map(str, first_in_path), os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return {"HOME": str(home), "PATH": os.pathsep.join(path), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def poll(condition: Callable[[], bool], *, seconds: float) -> bool:
    """Poll until the condition holds or the time is over; return whether it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_STEP)
    return True


def send(pids: Sequence[int], number: signal.Signals) -> None:
    """Signal these processes; ignore ended ones."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def family(root: int) -> list[int]:
    """Return the process and all its living descendants, the oldest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in _living():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _living() -> Iterator[tuple[int, int]]:
    """Every process and its parent, without zombies."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may contain blanks and parentheses.
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            yield int(stat.parent.name), int(parent)


def kill_family(process: subprocess.Popen[bytes]) -> None:
    """Kill a server with all its children at once, like a power cut, and wait until they have ended."""
    if process.poll() is not None:
        return
    send([process.pid], signal.SIGSTOP)  # so that it starts no more children while they are counted
    members = family(process.pid)
    send(members, signal.SIGKILL)
    process.wait()
    poll(lambda: not {pid for pid, _ in _living()}.intersection(members), seconds=10)
