"""How much memory an erasure in the lake takes."""

from __future__ import annotations

import subprocess
import sys

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from tests.pipeline.conftest import Archived
from tests.support.lake.erasing import erase_in_postgres
from tests.support.lake.exporting import export

ERASE = """
import sys
from pathlib import Path
from relay.pipeline.erase import job
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database

def most() -> int:
    [kilobytes] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(kilobytes) >> 10

with Database(sys.argv[2]) as database:
    job.run(lake=Lake(sys.argv[1]), database=database, say=lambda _: None, keys=["none"])
    before = most()
    done = job.run(lake=Lake(sys.argv[1]), database=database, say=lambda _: None, keys=["k"])
print(done.messages, most() - before)
"""


def test_large_bodies_are_rewritten_some_at_a_time(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """A file of 400 MB, half of whose messages are erased, takes a part of that."""
    body = b"\x00\xff" * (4 << 20)
    for _ in range(25):
        archived({"ordering_key": "k", "body": body}, {"body": body})
    export(lake, database, group=4)
    erase_in_postgres(database_url, "ordering_key = 'k'")

    done = subprocess.run([sys.executable, "-c", ERASE, lake.place.url, database_url], capture_output=True, text=True, check=True)

    messages, mib = map(int, done.stdout.split())
    assert 25 == messages
    assert mib < 320
