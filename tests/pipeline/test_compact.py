"""Compaction of closed days, and what a vacuum may take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relay.errors import LakeError, PipelineError
from relay.pipeline import compact, verify
from relay.pipeline.database import Database
from relay.pipeline.lake import Lake
from relay.pipeline.link import offset_of
from tests.support.exporting import Rows, export

if TYPE_CHECKING:
    from tests.pipeline.conftest import Archived

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def quiet(_line: str) -> None:
    """Say nothing."""


@pytest.fixture
def many_files(lake: Lake, database: Database, archived: Archived) -> None:
    """Two days of three files each, with dead messages among them."""
    for _ in range(3):
        archived({"body": b"\x00\xff"}, {"result": "failed"}, {"archived_at": NOON + timedelta(days=1)})
        export(lake, database)


@pytest.mark.usefixtures("many_files")
def test_only_days_that_are_over_become_one_file(lake: Lake, database: Database) -> None:
    """A second run finds nothing to do."""
    lines: list[str] = []
    first = compact.run(lake=lake, database=database, say=lines.append, now=NOON + timedelta(days=1))

    assert ((date(2024, 5, 1),), 6, 4, 0) == (first.days, first.files_before, first.files_after, first.removed)
    assert "2024-05-01: 3 files became 1" in lines
    assert ((), 4) == ((second := compact.run(lake=lake, database=database, say=quiet, now=NOON)).days, second.files_after)


@pytest.mark.usefixtures("many_files")
def test_a_compacted_lake_is_still_what_was_archived(lake: Lake, database: Database) -> None:
    """Rows, types and the export's place are as before, and an export goes on."""
    before = lake.dataset("archive").to_table().sort_by([("xid", "ascending"), ("seq", "ascending")])
    bound = offset_of(lake.opened("archive"))

    compact.run(lake=lake, database=database, say=quiet)

    assert before == lake.dataset("archive").to_table().sort_by([("xid", "ascending"), ("seq", "ascending")])
    assert bound == offset_of(lake.opened("archive"))
    found = verify.run(lake=lake, database=database, say=quiet, again=True)
    assert (9, {"verified"}) == (found.rows, {one.state for one in found.partitions})
    assert export(lake, database)


def test_an_export_that_was_reading_meanwhile_commits(lake: Lake, database: Database, archived: Archived) -> None:
    """Compaction between an export's load and its commit neither refuses it nor loses a row."""
    for _ in range(2):
        archived({})
        export(lake, database)
    archived({})

    def compacted(found: Rows) -> Rows:
        assert compact.run(lake=lake, database=database, say=quiet).days
        return found

    export(lake, database, compacted)

    found = verify.run(lake=lake, database=database, say=quiet)
    assert (3, 0) == (found.rows, found.exit_code)


@pytest.mark.usefixtures("many_files")
def test_files_of_nobody_go_after_a_week(lake: Lake, database: Database) -> None:
    """What a killed export left, and what compaction replaced, once both are older than 168 hours; nothing younger."""
    day = Path(lake.place.url) / "archive" / "day=2024-05-01"
    for name in ("old.parquet", "young.parquet"):
        (day / name).write_bytes(b"not even Parquet")
    past = time.time() - 169 * 3600
    os.utime(day / "old.parquet", (past, past))

    assert 1 == compact.run(lake=lake, database=database, say=quiet).removed
    assert (False, True) == ((day / "old.parquet").exists(), (day / "young.parquet").exists())


@pytest.mark.usefixtures("many_files")
def test_a_shorter_retention_is_refused(lake: Lake, database: Database) -> None:
    """With a sentence, before anything is done."""
    with pytest.raises(PipelineError, match="at least 168 hours"):
        compact.run(lake=lake, database=database, say=quiet, retention_hours=167)

    assert 6 == len(lake.opened("archive").file_uris())


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:-1])])
def test_a_file_that_is_gone_or_cut_stops_it_before_anything_is_rewritten_or_removed(
    lake: Lake, database: Database, damage: Callable[[Path], object]
) -> None:
    """Older versions may be what it can be put back from; the sentence names it."""
    before = lake.opened("archive").version()
    file = max(Path(lake.place.url, "archive").rglob("*.parquet"))
    damage(file)

    with pytest.raises(LakeError, match=rf"Of 6 files .* 1 are missing or of another size .*{file.name}"):
        compact.run(lake=lake, database=database, say=quiet)

    assert before == lake.opened("archive").version()
