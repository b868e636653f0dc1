"""The product as its users get it: the built wheel, in an environment that cannot see the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import ROOT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout without an index."""
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def wheel_relay(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the command `relay` from the wheel; a file that is missing from the wheel is missing here."""
    home = tmp_path_factory.mktemp("venv")
    _run(sys.executable, "-m", "venv", "--without-pip", str(home))
    python = home / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    # The dependencies of this environment, but not its editable install: a .pth file that a .pth file leads to is not read.
    _site_packages(python).joinpath("dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    imported = Path(_run(str(python), "-c", "import relay; print(relay.__file__)").strip())
    assert imported.is_relative_to(home), f"{imported} is not the wheel's"
    return home / "bin" / "relay"


@pytest.fixture
def relay_command(wheel_relay: Path) -> Sequence[str]:
    """The wheel's `relay` is what the tests of this folder start."""
    return (str(wheel_relay),)


def _site_packages(python: Path) -> Path:
    return Path(_run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def _run(*command: str) -> str:
    """Run a command away from the checkout; a failure shows what it said."""
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
