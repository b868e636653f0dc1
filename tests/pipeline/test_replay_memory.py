"""How much memory a replay from the lake takes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from tests.pipeline.conftest import Archived
from tests.support.lake.exporting import export

REPLAY = """
import sys
from pathlib import Path
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.replay import job
from relay.pipeline.replay.selection import Selection
from relay.pipeline.source.database import Database

def most() -> int:
    [kilobytes] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(kilobytes) >> 10

with Database(sys.argv[2]) as database:
    job.run(lake=Lake(sys.argv[1]), database=database, say=lambda _: None, selection=Selection(exchange="none"), dry_run=True)
    before = most()
    done = job.run(lake=Lake(sys.argv[1]), database=database, say=lambda _: None, selection=Selection(exchange=sys.argv[3]), limit=20)
print(done.enqueued, most() - before)
"""


@pytest.mark.parametrize(("exchange", "wanted"), [("large", 20), ("small", 2)])
def test_messages_that_are_not_sent_now_take_no_memory(
    lake: Lake, database: Database, database_url: str, archived: Archived, exchange: str, wanted: int
) -> None:
    """Of 400 MB that match, or lie between small ones that match, only some are in memory at once."""
    body = b"\x00\xff" * (4 << 20)
    archived({"exchange": "small"})
    for _ in range(25):
        archived(*[{"exchange": "large", "content": "{}", "body": body}] * 2)
    archived({"exchange": "small"})
    export(lake, database, group=1)

    words = [sys.executable, "-c", REPLAY, lake.place.url, database_url, exchange]
    done = subprocess.run(words, capture_output=True, text=True, check=True)

    enqueued, mib = map(int, done.stdout.split())
    assert wanted == enqueued
    assert mib < 220
