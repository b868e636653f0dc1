"""An erasure that is killed after any of its steps: the table is whole, no contents come back, and the next run completes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from relay.pipeline.compact import job as compact
from relay.pipeline.erase import job as erase
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from tests.pipeline.conftest import Archived
from tests.support.lake.adding import NOON
from tests.support.lake.compacting import quiet, rows_in
from tests.support.lake.contents import in_lake, in_postgres
from tests.support.lake.erasing import MARK, SECRET, erase_in_postgres, erased_in, files_with
from tests.support.lake.exporting import export

pytestmark = [pytest.mark.faults, pytest.mark.slow]

KEY = str(SECRET["ordering_key"])
ERASE = """
import sys
from relay.pipeline.erase import job
from relay.pipeline.lake import data_files, delta_lake
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database

def telling(function, name):
    def told(*given, **named):
        print("before", name, flush=True), sys.stdin.readline()
        found = function(*given, **named)
        print("after", name, flush=True), sys.stdin.readline()
        return found
    return told

job.AT_ONCE = 1
delta_lake._write = telling(delta_lake._write, "commit")
job.delete_removed = telling(job.delete_removed, "delete")
with Database(sys.argv[2]) as database:
    job.run(lake=Lake(sys.argv[1]), database=database, say=lambda _: None, keys=[sys.argv[3]], at_once=True)
print("done", flush=True)
"""


def killed_after(steps: int, lake: Lake, url: str) -> bool:
    """Start an erasure, and kill it after so many steps; False if it was done before."""
    process = subprocess.Popen(
        [sys.executable, "-c", ERASE, lake.place.url, url, KEY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for step in range(1, steps + 1):
            if process.stdout.readline() == "done\n":
                return False
            if step == steps:
                os.kill(process.pid, signal.SIGKILL)
            else:
                process.stdin.write("\n")
                process.stdin.flush()
    return True


def test_a_killed_erasure_is_completed_by_the_next(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """Each run is killed one step later than the run before."""
    for day in range(3):
        at = {"archived_at": NOON + timedelta(days=day)}
        for _ in range(2):
            archived({**at, **SECRET}, {**at, "replay_of": None})
            export(lake, database)
    compact.run(lake=lake, database=database, say=quiet)
    erase_in_postgres(database_url, f"ordering_key = '{KEY}'")
    rows, erased, steps = rows_in(lake), 0, 1

    while killed_after(steps, lake, database_url):
        assert rows == rows_in(lake)
        assert erased <= (erased := len(erased_in(lake)))
        steps += 1

    assert (6, []) == (erased, files_with(lake, MARK))
    assert steps > 5
    assert in_postgres(database_url) == in_lake(lake)
    done = erase.run(lake=lake, database=database, say=quiet, keys=[KEY])
    assert (0, 0, 0, None) == (done.messages, done.outside, done.unreadable, done.left)
