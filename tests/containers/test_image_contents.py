"""What lies in the built image of the relay: nothing to compile with, nothing that gives rights, nothing of this repository."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.servers.compose import IMAGES, Compose, docker

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
BASE = "python:3.13-slim"
OURS = re.compile(r"opt(/relay(/.*)?|/probe\.py)?")
"""What the image adds to its base."""
TOOLS = re.compile(r"(.*/)?(g?cc|c\+\+|g\+\+|clang|cc1|ld|as|make|cmake|rustc|cargo|go|git|curl|wget|nc|ssh)(-[\d.]+)?")
"""Programs with which something is compiled or fetched."""
FOREIGN = re.compile(
    r".*/(tests?|\.git|\.env[^/]*|requirements[^/]*|Makefile|Dockerfile|docker-compose[^/]*|pip|hatchling|pytest|mypy|pyspark)(/.*)?"
    r"|.*\.(c|cpp|o|a|key|pem|p12|log)"
)
"""What has no use in the environment of the relay: sources, tests, tools of development, keys, logs. (Two wheels bring a C header.)"""
CERTIFICATES = "certifi/cacert.pem"
WRITE = 0o022
SET_ID = 0o6000
Files = Mapping[str, tarfile.TarInfo]


def files(image: str, folder: Path) -> Files:
    """Each file of an image by its path, as its layers lie over each other."""
    name = docker("create", "--network", "none", image).strip()
    try:
        docker("export", "--output", str(folder / "image.tar"), name)
    finally:
        docker("rm", name)
    with tarfile.open(folder / "image.tar") as tar:
        return {entry.name.rstrip("/"): entry for entry in tar}


@pytest.fixture(scope="module")
def built(project: Compose, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of the relay's image."""
    return files(IMAGES["OUTBOX_IMAGE"], tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def added(built: Files, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Those that its base does not have."""
    base = files(BASE, tmp_path_factory.mktemp("base"))
    return {name: entry for name, entry in built.items() if name not in base}


def test_only_the_relay_s_own_folder_is_added(added: Files) -> None:
    """No cache, no list of packages, nothing in a home folder, no source."""
    assert "opt/relay/bin/relay" in added
    assert [] == [name for name in added if not OURS.fullmatch(name)]


def test_nothing_in_the_image_compiles_or_fetches(built: Files) -> None:
    """Neither of the base nor of ours; Python itself can do both, which a container without a writable place and with a policy bounds."""
    assert [] == [name for name, entry in built.items() if entry.mode & 0o111 and not entry.isdir() and TOOLS.fullmatch(name)]


def test_nothing_of_development_is_left(added: Files) -> None:
    """No tests, no build tool, not even pip, no compiled-from source, no key and no log."""
    assert [] == [name for name in added if FOREIGN.fullmatch(name) and not name.endswith(CERTIFICATES)]


def test_what_the_relay_runs_from_it_cannot_change(added: Files) -> None:
    """Everything belongs to root, no other user may write it, and no file gives rights to the user who starts it."""
    assert {(0, 0)} == {(entry.uid, entry.gid) for entry in added.values()}
    assert [] == [name for name, entry in added.items() if not entry.issym() and entry.mode & (WRITE | SET_ID)]
