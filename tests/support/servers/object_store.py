"""Fixtures: an object store of these tests' own, as S3 speaks, and a lake in it."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest
from pyarrow import fs

from relay.pipeline.lake.delta_lake import Lake

HIDDEN = "a-secret-of-the-object-store"
KEY = "AKIAHIDDENOFTHESTORE"
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", port=0)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class ObjectStore:
    """A store that runs, with a bucket named lake."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.filesystem = fs.S3FileSystem(
            access_key=KEY, secret_key=HIDDEN, endpoint_override=endpoint.partition("://")[2], scheme="http", region="us-east-1",
            allow_bucket_creation=True,
        )  # fmt: skip
        self.filesystem.create_dir("lake")

    @property
    def options(self) -> dict[str, str]:
        """What RELAY_LAKE_OPTIONS says of it."""
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": HIDDEN, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
        return {"AWS_ENDPOINT_URL": self.endpoint, **keys}

    def files(self, folder: str) -> list[str]:
        """Parquet files below a folder of the bucket, without its name."""
        found = self.filesystem.get_file_info(fs.FileSelector(f"lake/{folder}", recursive=True, allow_not_found=True))
        return sorted(info.path.removeprefix(f"lake/{folder}/") for info in found if info.path.endswith(".parquet"))

    def write(self, path: str, content: bytes) -> None:
        """Put an object into the bucket."""
        with self.filesystem.open_output_stream(f"lake/{path}") as stream:
            stream.write(content)

    @contextmanager
    def knowing_nobody(self) -> Iterator[None]:
        """For so long no key is right."""
        self.refuse_keys()
        try:
            yield
        finally:
            self.accept_keys()

    def refuse_keys(self) -> None:
        """From now on no key is right."""
        self._allow("0")

    def accept_keys(self) -> None:
        """From now on every key is right."""
        self._allow("inf")

    def _allow(self, requests: str) -> None:
        url, headers = f"{self.endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        with urllib.request.urlopen(urllib.request.Request(url, requests.encode(), headers, method="POST")) as answer:  # noqa: S310 - its own
            answer.read()


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """A process of its own, for deltalake keeps Python waiting."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield ObjectStore(f"http://127.0.0.1:{_port(server.stdout)}")
        server.stdin.close()


def _port(said: IO[bytes]) -> int:
    """The server's port, after what it says of itself."""
    return next(int(line) for line in said if line.strip().isdigit())


@pytest.fixture
def bucket(object_store: ObjectStore, unique: str) -> Lake:
    """An empty lake in the store."""
    return Lake(f"s3://lake/{unique}", object_store.options)
