"""RabbitMQ of another Debian release: its packages, unpacked into a tree of the cache folder, and run there by `unshare` and `chroot`."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from relay.devservers.apt import cache_folder
from relay.devservers.process import Say
from relay.errors import LocalServerError

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PACKAGES = ("rabbitmq-server", "base-files", "dash", "bash", "coreutils", "sed", "grep", "mawk", "hostname")
"""RabbitMQ, and what every Debian has and no package asks for."""
_MERGED = ("bin", "sbin", "lib", "lib64")
_MOUNTED = ("tmp", "proc", "dev")


def rabbitmq_of(release: str, *, say: Say) -> Path:
    """Return the tree of a release such as trixie, made at the first time.

    Raises:
        LocalServerError: it cannot be had here; the message says why.
    """
    tree = cache_folder() / f"rabbitmq-of-{release}-{platform.machine()}"
    if not tree.exists():
        say(f"rabbitmq: fetching Debian {release}'s into {tree} (70 MB, 15 to 60 s)")
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            _unpack(_fetch(release, Path(folder)), Path(folder) / "tree")
            (Path(folder) / "tree").rename(tree)
    return tree


def _fetch(release: str, folder: Path) -> list[Path]:
    """Download RabbitMQ of a release and all that it needs, with lists and a cache of our own."""
    for name in ("lists/partial", "archives/partial", "parts", "packages"):
        (folder / name).mkdir(parents=True)
    (folder / "nothing-installed").touch()
    (folder / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {_mirror()} {release} main\n")
    options = (
        f"Dir::State={folder}", f"Dir::State::lists={folder}/lists", f"Dir::State::status={folder}/nothing-installed",
        f"Dir::Cache={folder}", f"Dir::Etc::sourcelist={folder}/sources.list", f"Dir::Etc::sourceparts={folder}/parts",
        "Debug::NoLocking=1", "APT::Sandbox::User=", "Acquire::Languages=none",
    )  # fmt: skip
    apt = ["apt-get", *(word for option in options for word in ("-o", option))]
    _run([*apt, "update"], folder)
    said = _run([*apt, "install", "--simulate", "--no-install-recommends", *_PACKAGES], folder)
    _run([*apt, "download", *re.findall(r"^Inst (\S+)", said, re.MULTILINE)], folder / "packages")
    return sorted((folder / "packages").glob("*.deb"))


def _mirror() -> str:
    """Where this machine takes Debian from."""
    words = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages"]
    found = re.search(r"^Debian (\S+/debian/)$", _run(words, Path("/")) if shutil.which("apt-get") else "", re.MULTILINE)
    if found is None:
        message = "this machine takes no packages from Debian"
        raise LocalServerError(message)
    return found[1]


def _unpack(archives: Sequence[Path], tree: Path) -> None:
    for name in (*(f"usr/{name}" for name in _MERGED), *_MOUNTED, "etc"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    for name in _MERGED:
        (tree / name).symlink_to(f"usr/{name}")
    for archive in archives:
        _run(["dpkg", "-x", str(archive), str(tree)], tree)
    (tree / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"`{command[0]} {command[-1]}` failed: {done.stderr.strip()[-300:]}"
        raise LocalServerError(message)
    return done.stdout
