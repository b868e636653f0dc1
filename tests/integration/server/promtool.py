"""Prometheus' own checker: the one of this machine, else Debian's, fetched without root and kept for the next time."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from relay.devservers.apt import tree_of, unpack
from relay.errors import LocalServerError

_PACKAGE = "prometheus"
_IN_TREE = "usr/bin/promtool"
_MISSING = "promtool was not found and cannot be fetched ({reason}); install Prometheus, which it comes with, and put it into PATH"


def promtool(say: Callable[[str], None]) -> Path:
    """Path of promtool.

    Raises:
        LocalServerError: it is in no PATH, and apt-get cannot fetch it; the message says what to do.
    """
    if installed := shutil.which("promtool"):
        return Path(installed)
    try:
        return _fetched(say)
    except (LocalServerError, OSError) as error:
        raise LocalServerError(_MISSING.format(reason=error)) from error


def said_wrong(program: Path, *task: str) -> str:
    """What promtool has against a task; empty if nothing."""
    done = subprocess.run([program, *task], capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr if done.returncode else ""


def _fetched(say: Callable[[str], None]) -> Path:
    if not (tree_of(_PACKAGE) / _IN_TREE).exists():
        say("promtool: fetching Debian's prometheus (60 MB, 20 to 60 s)")
    return unpack(_PACKAGE, family=[_PACKAGE], say=say, finish=_keep_promtool) / _IN_TREE


def _keep_promtool(tree: Path, _: Path) -> None:
    """Drop the server and its pages, 200 MB that nothing here uses."""
    (tree / "usr/bin/prometheus").unlink(missing_ok=True)
    shutil.rmtree(tree / "usr/share", ignore_errors=True)
