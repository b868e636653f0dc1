"""Finds a Java for Spark on this machine: the user's own, else Debian's, installed or unpacked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from relay.devservers import apt as local_apt
from relay.devservers.process import Say
from relay.errors import LocalServerError

VERSIONS = (21, 17)
"""Java versions for Spark 4.3, the preferred one first."""
QUICK_START = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Variables with which a Spark for a few rows takes half the processor time: Java compiles its code once, not twice."""
_MISSING = "Java 17 or 21 was not found and cannot be fetched ({reason}); type: sudo apt-get install -y openjdk-17-jre-headless"


def find_java(*, say: Say | None = None) -> Path:
    """Return the home of a suitable Java: JAVA_HOME, PATH, an installed one, a fetched one; else fetch it.

    Raises:
        LocalServerError: there is none and it cannot be fetched; the message is the line to type.
    """
    tell = say or (lambda _: None)
    found = _present()
    if found is not None:
        return found
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise LocalServerError(_MISSING.format(reason="there is no apt-get here"))
    return _fetch_first(tell)


def version_of(home: Path) -> int | None:
    """Return the major version of the Java of this home, None if it does not run."""
    try:
        said = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, check=False, text=True).stderr
    except OSError:
        return None
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else None


def _present() -> Path | None:
    return next((home for home in _homes() if version_of(home) in VERSIONS), None)


def _homes() -> list[Path]:
    named = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    in_path = shutil.which("java")
    called = [Path(in_path).resolve().parent.parent] if in_path else []
    roots = [Path("/"), *(local_apt.tree_of(package) for package in _packages())]
    return [*named, *called, *(home for root in roots for home in _homes_below(root))]


def _homes_below(root: Path) -> list[Path]:
    return [home for version in VERSIONS for home in sorted(root.glob(f"usr/lib/jvm/java-{version}-openjdk-*"))]


def _packages() -> list[str]:
    return [f"openjdk-{version}-jre-headless" for version in VERSIONS]


def _fetch_first(say: Say) -> Path:
    failed: list[str] = []
    for package in _packages():
        try:
            _fetch(package, say)
        except (LocalServerError, OSError) as error:
            failed.append(str(error))
        if (found := _present()) is not None:
            return found
    raise LocalServerError(_MISSING.format(reason=failed[-1] if failed else "the fetched package does not run"))


def _fetch(package: str, say: Say) -> None:
    if os.geteuid() == 0:
        say(f"java: installing {package} by apt-get (20 to 60 s)")
        local_apt.install(package, say=say)
        return
    say(f"java: fetching {package} into {local_apt.cache_folder()} (50 MB, 10 to 60 s)")
    local_apt.unpack(package, family=("openjdk", "ca-certificates-java", "java-common"), say=say, finish=_point_settings_home)


def _point_settings_home(tree: Path, home: Path) -> None:
    """Redirect links into /etc to the future path of the tree: an unpacked Java has no files in /etc."""
    for link in tree.glob("usr/lib/jvm/java-*/**/*"):
        if link.is_symlink() and str(link.readlink()).startswith("/etc/"):
            target = home / str(link.readlink()).lstrip("/")
            link.unlink()
            link.symlink_to(target)
