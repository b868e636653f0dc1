"""Packages of Debian and Ubuntu for a private server: installed as root, else unpacked into a cache folder."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from relay.devservers.process import Say
from relay.errors import LocalServerError

_SILENCE = 5.0
"""Seconds between two lines of progress."""

_POLICY = Path("/usr/sbin/policy-rc.d")


def cache_folder() -> Path:
    """Return the cache folder: below XDG_CACHE_HOME or ~/.cache, else below /var/tmp."""
    home = os.environ.get("XDG_CACHE_HOME") or f"{Path('~').expanduser()}/.cache"
    for folder in (Path(home) / "outbox-relay", Path(f"/var/tmp/outbox-relay-{os.getuid()}")):  # noqa: S108
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
            return folder
    message = f"Neither {home} nor /var/tmp can be written for downloads; set XDG_CACHE_HOME to a folder that can."
    raise LocalServerError(message)


def tree_of(package: str) -> Path:
    """Return where `unpack` puts a package for this distribution and processor."""
    release = platform.freedesktop_os_release()
    return cache_folder() / f"{package}-{release.get('ID', 'linux')}{release.get('VERSION_ID', '')}-{platform.machine()}"


def install(package: str, *, say: Say) -> None:
    """Install a package as root; starts and enables no service.

    Raises:
        LocalServerError: apt-get failed; the message ends with its own words.
    """
    options = ["-o", "DPkg::Lock::Timeout=120", "--no-install-recommends"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _one_at_a_time(), _no_service_starts():
        _follow(["apt-get", "update"], say=say, label=f"{package}: apt-get update", env=environment, must=False)
        _follow(["apt-get", "install", "-y", *options, package], say=say, label=f"{package}: apt-get install", env=environment)
        if shutil.which("systemctl"):
            subprocess.run(["systemctl", "disable", "--quiet", package], check=False, capture_output=True)


def unpack(package: str, *, family: Sequence[str], say: Say, finish: Callable[[Path, Path], None]) -> Path:
    """Download a package and its dependencies without root, and unpack them; return the folder, which is kept.

    Args:
        package: its name for apt.
        family: prefixes of the packages that are needed even if the machine has them; of other packages only missing
            libraries are fetched.
        say: takes the progress.
        finish: called with the new tree and with the path that it will have in the end.

    Raises:
        LocalServerError: apt-get or dpkg failed; the message ends with their own words.
    """
    tree = tree_of(package)
    with _one_at_a_time():
        if not tree.exists():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
                fresh = Path(folder) / "tree"
                _download(package, family, Path(folder), say)
                for archive in sorted(Path(folder).glob("*.deb")):
                    _follow(["dpkg", "-x", str(archive), str(fresh)], say=say, label=f"{package}: unpacking")
                finish(fresh, tree)
                fresh.rename(tree)
    return tree


def _download(package: str, family: Sequence[str], folder: Path, say: Say) -> None:
    """Fetch the archives with our own package lists and cache, because the machine's belong to root."""
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "archives" / "partial").mkdir(parents=True)
    (folder / "nothing-installed").touch()
    ours = [
        f"Dir::State={folder}",
        f"Dir::State::lists={folder}/lists",
        f"Dir::Cache={folder}",
        "Debug::NoLocking=1",
        "APT::Sandbox::User=",
    ]
    apt = ["apt-get", *(word for option in ours for word in ("-o", option))]
    _follow([*apt, "-o", "Dir::State::status=/var/lib/dpkg/status", "update"], say=say, label=f"{package}: apt-get update")
    everything = _would_install([*apt, "-o", f"Dir::State::status={folder}/nothing-installed"], package)
    missing = _would_install([*apt, "-o", "Dir::State::status=/var/lib/dpkg/status"], package)
    names = {name for name in everything if name.startswith(tuple(family))} | {name for name in missing if name.startswith("lib")}
    _follow([*apt, "download", *sorted(names)], say=say, label=f"{package}: downloading {len(names)} packages", folder=folder)


def _would_install(apt: Sequence[str], package: str) -> set[str]:
    command = [*apt, "install", "--simulate", "--no-install-recommends", package]
    said = subprocess.run(command, capture_output=True, check=False, text=True)
    if said.returncode != 0:
        message = f"apt-get does not know how to install {package}; read its last words: {said.stderr[-500:]}"
        raise LocalServerError(message)
    return set(re.findall(r"^Inst (\S+)", said.stdout, re.MULTILINE))


def _follow(
    command: Sequence[str], *, say: Say, label: str, env: dict[str, str] | None = None, folder: Path | None = None, must: bool = True
) -> None:
    """Run a slow command, and print its progress."""
    last, began, spoke = "", time.monotonic(), time.monotonic()
    with subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            last = line.strip() or last
            if time.monotonic() - spoke > _SILENCE:
                spoke = time.monotonic()
                say(f"{label}: {last[:80]} ({spoke - began:.0f} s)")
    if must and process.returncode != 0:
        message = f"`{' '.join(command[:2])}` failed for {label}; read its last words: {last}"
        raise LocalServerError(message)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Block other runs of the same user, so that they use the result of the first."""
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Forbid packages to start services while they are installed (Debian's policy-rc.d; 101 is "forbidden")."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)
