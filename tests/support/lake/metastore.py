"""A private Hive metastore, started from Spark's own jars as the README of `examples/catalogue` says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from relay.devservers.java import find_java
from relay.devservers.process import Keeper, free_ports, kill_family, plain_environment, poll
from tests.support.applications.example_programs import EXAMPLES
from tests.support.lake.readers import READERS, SHORT_LIVED

SECONDS = 120.0
"""Until it answers: it makes its database first, on a busy machine too."""


@contextmanager
def metastore() -> Iterator[str]:
    """Yield its URL; its database is in a folder that goes with it."""
    [jars] = READERS.glob("lib/python3*/site-packages/pyspark/jars")
    [port] = free_ports(1)
    words = [*SHORT_LIVED, "-cp", f"{EXAMPLES / 'catalogue'}:{jars}/*", "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
    keeper = Keeper("outbox-metastore-")
    process = keeper.spawn("metastore", [str(find_java() / "bin" / "java"), *words], plain_environment(keeper.folder), end_by="KILL")
    try:
        assert poll(lambda: process.poll() is not None or _answers(port), seconds=SECONDS), keeper.output("metastore")
        assert process.poll() is None, keeper.output("metastore")
        yield f"thrift://127.0.0.1:{port}"
    finally:
        kill_family(process)
        keeper.close()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
