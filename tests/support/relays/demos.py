"""A demo of the built wheel as a user plays it: to its end, up to a line that it prints, or only what it has kept."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """One demo that was played to its end."""

    code: int
    output: str
    seconds: float
    folder: Path


def play(*command: str | Path, folder: Path, cwd: Path, env: Mapping[str, str]) -> Run:
    """Play a demo that keeps what it made in a folder, which the command's last word names."""
    began = time.monotonic()
    done = subprocess.run(
        [*command, folder],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Run(done.returncode, done.stdout, time.monotonic() - began, folder)


def check(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Check what a demo has kept in a folder."""
    return subprocess.run([*command, "--check", folder], cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@contextmanager
def begun(*command: str | Path, until: str, cwd: Path, env: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo that has printed some words, with all that it has said so far; it is killed at the end of the block if it still runs."""
    with subprocess.Popen(command, cwd=cwd, env={**env, "TMPDIR": str(cwd)}, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = ""
        while until not in said:
            line = process.stdout.readline()
            assert line, f"the demo ended early: {said}"
            said += line
        yield process, said
        process.kill()
