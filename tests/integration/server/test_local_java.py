"""Java for Spark: the user's own where Spark runs on it, else one that is fetched without touching the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.devservers import apt as local_apt
from relay.devservers import java
from relay.errors import LocalServerError


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], list[str]]:
    """Hide every Java of the machine, and remember what is said; downloads go to a folder of the test's own."""
    said: list[str] = []
    below, which = java._homes_below, shutil.which
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_homes_below", lambda root: [] if root == Path("/") else below(root))
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "java" else which(name))
    return lambda: said


def _fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2030-01-01' >&2\n")
    program.chmod(0o755)
    return home


def test_the_java_of_java_home_is_taken_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME names the Java that is used, whatever else the machine has."""
    home = _fake_java(tmp_path, "21.0.4")
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert home == java.find_java()


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402", "25"])
def test_a_java_that_spark_does_not_run_on_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare: Callable[[], list[str]], version: str
) -> None:
    """A Java of another version is no answer: without apt-get the sentence says what to type."""
    assert bare() == []
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "other", version)))
    monkeypatch.setattr(shutil, "which", lambda _name: None)

    with pytest.raises(LocalServerError, match="sudo apt-get install -y openjdk-17-jre-headless"):
        java.find_java()


@pytest.mark.slow
def test_without_root_a_java_is_unpacked_and_finds_its_settings(monkeypatch: pytest.MonkeyPatch, bare: Callable[[], list[str]]) -> None:
    """The unpacked Java runs from the cache folder, with every link to its settings inside of it, and is found the next time."""
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get here: Java can be unpacked on Debian and Ubuntu alone")
    said = bare()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    home = java.find_java(say=said.append)

    assert home.is_relative_to(local_apt.cache_folder())
    assert java.version_of(home) in java.VERSIONS
    assert (home / "conf" / "security" / "java.security").is_file()
    dangling = subprocess.run(["find", str(home), "-xtype", "l"], capture_output=True, text=True, check=True).stdout.split()
    assert [] == [link for link in dangling if not link.endswith(("cacerts", "blacklisted.certs", "src.zip"))]
    fetched = len(said)
    assert home == java.find_java(say=said.append)
    assert fetched == len(said)
