"""An environment for each rival below `build/rivals`: made on demand, kept until what is asked for changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from relay.devservers.process import Say
from tests import ROOT
from tests.bench.rivals.rival import NotInstallableError

FOLDER = ROOT / "build" / "rivals"
PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 600.0
"""Seconds that an installation may take."""


def python(name: str, say: Say) -> None:
    """Install `programs/NAME.txt` with pip.

    Raises:
        NotInstallableError: pip does not succeed.
    """
    requirements, folder = PROGRAMS / f"{name}.txt", FOLDER / name
    if _is_there(folder, requirements):
        return
    say(f"{name}: installing {len(requirements.read_text().splitlines())} packages with pip into build/rivals/{name}")
    _run(name, [sys.executable, "-m", "venv", "--clear", str(folder)], folder.parent)
    pip = [str(interpreter(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    _run(name, [*pip, "--requirement", str(requirements)], folder)
    _note(folder, requirements)


def interpreter(name: str) -> Path:
    """The Python of an environment."""
    return FOLDER / name / "bin" / "python"


def node(name: str, say: Say) -> None:
    """Install `programs/NAME.json` with npm.

    Raises:
        NotInstallableError: there is no Node.js or no npm, or npm does not succeed.
    """
    manifest, folder = PROGRAMS / f"{name}.json", FOLDER / name
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NotInstallableError(f"{name} is left out: {program} is not installed here.")
    if _is_there(folder, manifest):
        return
    say(f"{name}: installing with npm into build/rivals/{name}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(manifest, folder / "package.json")
    _run(name, ["npm", "install", "--loglevel=error", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"], folder)
    _note(folder, manifest)


def modules(name: str) -> Path:
    """Where Node.js finds the packages of an environment."""
    return FOLDER / name / "node_modules"


def _run(name: str, command: Sequence[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotInstallableError(f"{name} is left out: {command[0]} did not end within {PATIENCE:g} seconds.") from error
    if done.returncode:
        errors = [line.strip() for line in done.stderr.splitlines() if "error" in line.lower() and "complete log" not in line]
        raise NotInstallableError(f"{name} is left out: it could not be installed ({'; '.join(errors[:2]) or 'no reason given'}).")


def _is_there(folder: Path, wanted: Path) -> bool:
    note = folder / "installed"
    return note.exists() and note.read_text() == wanted.read_text()


def _note(folder: Path, wanted: Path) -> None:
    (folder / "installed").write_text(wanted.read_text())
