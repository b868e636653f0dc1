"""A private PgBouncer before a server: Debian's package, installed or fetched without root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.devservers.apt import unpack
from relay.devservers.process import free_ports, poll

_CONFIG = """
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = {pool_mode}
ignore_startup_parameters = extra_float_digits
{run_as}
"""


@contextmanager
def pgbouncer(url: str, *, pool_mode: str, folder: Path, say: Callable[[str], None]) -> Iterator[str]:
    """Run one until the end of the block; yield the conninfo of the same database through it."""
    target = {"password": "", **conninfo_to_dict(url)}
    [port] = free_ports(1)
    config = folder / "pgbouncer.ini"
    run_as = "user = nobody" if os.getuid() == 0 else ""
    config.write_text(_CONFIG.format(**target, listen_port=port, pool_mode=pool_mode, run_as=run_as))
    command, environment = _program(say)
    process = subprocess.Popen([*command, str(config)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    through = make_conninfo(host="127.0.0.1", port=port, user=str(target["user"]), dbname=str(target["dbname"]))
    try:
        _wait_for(process, through)
        yield through
    finally:
        process.terminate()
        process.wait(10)


def _program(say: Callable[[str], None]) -> tuple[list[str], dict[str, str]]:
    if found := shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return [found], {}
    tree = unpack("pgbouncer", family=["pgbouncer"], say=say, finish=lambda fresh, final: None)
    libraries = {str(library.parent) for library in tree.rglob("*.so*")}
    return [str(tree / "usr" / "sbin" / "pgbouncer")], {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}


def _wait_for(process: subprocess.Popen[bytes], conninfo: str) -> None:
    assert poll(lambda: process.poll() is not None or _answers(conninfo), seconds=20), "pgbouncer does not answer"
    assert process.poll() is None, f"pgbouncer ended with {process.returncode}"


def _answers(conninfo: str) -> bool:
    try:
        with closing(psycopg.connect(conninfo)):
            return True
    except psycopg.OperationalError:
        return False
