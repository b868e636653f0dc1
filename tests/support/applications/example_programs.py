"""How each program of `examples/` is run here, and what it needs that a machine may not have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from relay.devservers.find import find_postgres
from tests import ROOT

EXAMPLES = ROOT / "examples"
_BUILD = ROOT / "build" / "examples"
_DEBIAN_PQ = Path("/usr/share/gocode/src/github.com/lib/pq")
"""Where Debian's golang-github-lib-pq-dev puts the driver, so that Go needs no network."""


class MissingToolError(Exception):
    """A program cannot be run on this machine; the message says what to install."""


class Program(NamedTuple):
    """A command, and the folder that it is typed in."""

    words: Sequence[str]
    folder: Path

    def run(self, environment: Mapping[str, str]) -> str:
        """Run it to its end, which must be a success without a word on standard error; return what it printed."""
        done = subprocess.run(
            self.words, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
        )
        assert (0, "") == (done.returncode, done.stderr), (self.words, done)
        return done.stdout


def program(name: str) -> Program:
    """Make one ready to run.

    Raises:
        MissingToolError: something is not here that it needs.
    """
    return PROGRAMS[name]()


def _python(folder: str, *words: str) -> Callable[[], Program]:
    # A warning, such as of something deprecated, is an error: what people copy should live long.
    return lambda: Program([sys.executable, "-W", "error", *words], EXAMPLES / folder)


def _psql() -> Program:
    own = find_postgres() / "psql"
    psql = shutil.which("psql") or (str(own) if own.exists() else None)
    if psql is None:
        raise MissingToolError("psql was not found; type: sudo apt-get install -y postgresql-client")
    command = f'exec "{psql}" "$DATABASE_URL" -v ON_ERROR_STOP=1 -qAt -f pay.sql'
    return Program(["/bin/sh", "-c", command], EXAMPLES / "psql")


@cache
def _go() -> Program:
    go = shutil.which("go")
    if go is None:
        raise MissingToolError("Go was not found; type: sudo apt-get install -y golang-go golang-github-lib-pq-dev")
    _BUILD.mkdir(parents=True, exist_ok=True)
    source = EXAMPLES / "go"
    modules = _BUILD / "go.mod"
    shutil.copy(source / "go.sum", _BUILD)
    modules.write_text((source / "go.mod").read_text(encoding="utf-8") + _replacement(), encoding="utf-8")
    # Without cgo no C compiler is needed; without downloads of other versions of Go itself.
    settings = {"GOCACHE": str(_BUILD / "go-cache"), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    _tool([go, "vet", f"-modfile={modules}", "."], source, settings)
    _tool([go, "build", f"-modfile={modules}", "-o", str(_BUILD / "pay"), "."], source, settings)
    return Program([str(_BUILD / "pay")], source)


def _replacement() -> str:
    return f"\nreplace github.com/lib/pq => {_DEBIAN_PQ}\n" if (_DEBIAN_PQ / "go.mod").exists() else ""


@cache
def _node() -> Program:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise MissingToolError("Node or npm was not found; type: sudo apt-get install -y nodejs npm")
    folder = _BUILD / "node"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", "pay.js"):
        shutil.copy(EXAMPLES / "node" / name, folder)
    _tool([npm, "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"], folder, {})
    return Program([node, "pay.js"], folder)


def _tool(command: Sequence[str], folder: Path, settings: Mapping[str, str]) -> None:
    """Run what prepares a program, in the user's own environment: it says where packages come from."""
    name = f"`{Path(command[0]).name} {command[1]}`"
    try:
        done = subprocess.run(command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True, check=False, timeout=90)
    except subprocess.TimeoutExpired:
        raise MissingToolError(f"{name} did not end within 90 s; try again with a better network") from None
    if done.returncode != 0:
        said = f"{done.stdout}{done.stderr}"
        if _is_away(said):
            raise MissingToolError(f"{name} found no network for the packages of {folder}")
        raise AssertionError(f"{name} failed in {folder}: {said}")


def _is_away(said: str) -> bool:
    """Whether a tool complains of the network, and not of the example."""
    return any(word in said for word in ("dial tcp", "ENOTFOUND", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "EAI_AGAIN", "ENOTCACHED"))


PROGRAMS: Mapping[str, Callable[[], Program]] = {
    "psql": _psql,
    "psycopg": _python("psycopg", "pay.py"),
    "asyncpg": _python("asyncpg", "pay.py"),
    "sqlalchemy": _python("sqlalchemy", "pay.py"),
    "sqlalchemy, async": _python("sqlalchemy", "pay_async.py"),
    "django": _python("django", "manage.py", "pay"),
    "go": _go,
    "node": _node,
}
