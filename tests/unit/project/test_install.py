"""What an installation leaves on the disk of a developer or a CI."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

BYTES = 2_000_000
"""Of a small package under the name of the large one that is published as source only."""
BACKEND = """\
import pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(pathlib.Path(folder) / "pyspark-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write("bulky.bin")
        wheel.writestr("pyspark-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: pyspark\\nVersion: 1.0\\n")
        wheel.writestr("pyspark-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("pyspark-1.0.dist-info/RECORD", "")
    return "pyspark-1.0-py3-none-any.whl"
"""
FILES = {
    "PKG-INFO": b"Metadata-Version: 2.1\nName: pyspark\nVersion: 1.0\n",
    "pyproject.toml": b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "backend.py": BACKEND.encode(),
    "bulky.bin": os.urandom(BYTES),
}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """An index of packages whose answers must not be cached, and the hash of the one package that it offers."""
    page = tmp_path / "index" / "simple" / "pyspark"
    page.mkdir(parents=True)
    with tarfile.open(page / "pyspark-1.0.tar.gz", "w:gz") as source:
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"pyspark-1.0/{name}")
            member.size = len(content)
            source.addfile(member, io.BytesIO(content))
    digest = hashlib.sha256((page / "pyspark-1.0.tar.gz").read_bytes()).hexdigest()
    (page / "index.html").write_text(f'<a href="pyspark-1.0.tar.gz#sha256={digest}">pyspark-1.0.tar.gz</a>')
    with _served(tmp_path / "index") as port:
        yield f"http://127.0.0.1:{port}/simple", digest


class _Uncached(SimpleHTTPRequestHandler):
    """Forbids to keep its answers."""

    def end_headers(self) -> None:
        """Send the headers, with the one that forbids."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing."""


@contextmanager
def _served(folder: Path) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Uncached, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _installed(environment: Path, index: tuple[str, str], cache: Path) -> int:
    """Install the package into a new environment; return how many bytes the cache has then."""
    subprocess.run([".venv/bin/uv", "venv", "--quiet", "--no-project", environment], check=True)
    locked = environment / "locked.txt"
    locked.write_text(f"pyspark==1.0 --hash=sha256:{index[1]}\n")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    variables |= {"PIP_INDEX_URL": index[0], "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([".ci/install", environment, locked], env=variables, check=True, timeout=60, capture_output=True, text=True)
    assert "" == done.stderr, "pip did it"
    assert list(environment.glob("lib/python*/site-packages/bulky.bin"))
    return sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())


def test_a_second_installation_takes_no_more_of_the_disk_although_the_index_forbids_caching(tmp_path: Path, index: tuple[str, str]) -> None:
    """Each build of a package that an index offers as source only would stay in the cache: for Spark, 2 GB each time."""
    first = _installed(tmp_path / "first", index, tmp_path / "cache")
    assert _installed(tmp_path / "second", index, tmp_path / "cache") < first + BYTES / 2
