"""Compaction of closed days, and what a vacuum may take."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from relay.errors import ConflictError, LakeError, PipelineError
from relay.pipeline import compact, verify, witness
from relay.pipeline import lake as lake_module
from relay.pipeline.archive import TABLE
from relay.pipeline.database import Database
from relay.pipeline.lake import Lake, schema_of
from relay.pipeline.lake_log import files
from relay.pipeline.link import offset_of
from relay.pipeline.merge import Merge
from relay.pipeline.packing import packs
from tests.support.exporting import Rows, export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Archived

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FIRST = NOON.date()


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


def data_files(lake: Lake) -> list[Path]:
    """The Parquet files in the folder, of whatever version."""
    return [path for path in Path(lake.place.url, TABLE).rglob("*.parquet") if "_delta_log" not in path.parts]


def file_of(lake: Lake, day: date = FIRST) -> Path:
    """The only file of a day."""
    [found] = [file for file in files(lake.opened(TABLE)) if file.day == day]
    return Path(lake.place.url, TABLE, found.path)


def flip(path: Path, place: int) -> None:
    """Change a byte."""
    found = bytearray(path.read_bytes())
    found[place] ^= 64
    path.write_bytes(found)


def reread(lake: Lake, database: Database, database_url: str) -> list[str]:
    """The days of which a look that reads each file finds one damaged."""
    with psycopg.connect(database_url) as owner:
        owner.execute("UPDATE queue_message_export_position SET seen_at = clock_timestamp() - interval '30 days'")
    return list(witness.run(lake, database, quiet).damage)


@pytest.mark.usefixtures("many_files")
def test_a_changed_byte_is_found_in_what_it_wrote(lake: Lake, database: Database, database_url: str) -> None:
    """Its pages carry checksums, as those of an export do."""
    compact.run(lake=lake, database=database, say=quiet)
    assert [] == reread(lake, database, database_url)

    flip(file_of(lake), 100)

    assert ["queue_message_archive_20240501"] == reread(lake, database, database_url)


@pytest.mark.usefixtures("many_files")
def test_a_changed_byte_is_not_written_anew_as_if_it_was_right(lake: Lake, database: Database) -> None:
    """The damaged file stays what it is, so that it can be put back; nothing is left in the folder of what was begun."""
    before, found = lake.opened(TABLE).version(), data_files(lake)
    flip(max(found), 100)

    with pytest.raises(LakeError, match=rf"The file .*{max(found).name} cannot be read: .* is missing or damaged"):
        compact.run(lake=lake, database=database, say=quiet)

    assert (before, sorted(found)) == (lake.opened(TABLE).version(), sorted(data_files(lake)))


@pytest.mark.usefixtures("many_files")
def test_files_with_other_rows_than_the_log_names_are_not_replaced(lake: Lake) -> None:
    """Whatever they were put back from; nothing is left of the new file."""
    handle, found = lake.opened(TABLE), data_files(lake)
    merge = Merge(lake.place, TABLE, schema_of(handle), "part-test")
    [first, *_] = packs(files(handle), FIRST + timedelta(days=1))
    more = first._replace(files=(*first.files[:-1], first.files[-1]._replace(rows=7)))

    with pytest.raises(LakeError, match="Files of the day 2024-05-01 have 6 rows of 11"):
        merge(more)

    assert sorted(found) == sorted(data_files(lake))


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen once between the writing of files and their commit."""
    replace = Lake.replace

    def acting(*values: Any) -> None:
        monkeypatch.setattr(Lake, "replace", replace)
        act()
        replace(*values)

    monkeypatch.setattr(Lake, "replace", acting)


def rows_in(lake: Lake) -> list[int]:
    """The numbers of the table's rows."""
    return sorted(lake.dataset(TABLE).to_table(["seq"])["seq"].to_pylist())


Meanwhile = Callable[[Lake, Database], object]
REWRITTEN: dict[str, Meanwhile] = {
    "by the same job": lambda lake, database: compact.run(lake=lake, database=database, say=quiet),
    "by another program": lambda lake, _: lake.opened(TABLE).optimize.compact(),
    "and rows deleted": lambda lake, _: lake.opened(TABLE).delete("result = 'failed'"),
}


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("rewritten", REWRITTEN)
def test_files_that_were_rewritten_meanwhile_are_left_alone(
    lake: Lake, database: Database, monkeypatch: pytest.MonkeyPatch, rewritten: str
) -> None:
    """No row comes twice, and none comes back; the next run goes on."""
    after: list[list[int]] = []

    def act() -> None:
        REWRITTEN[rewritten](lake, database)
        after.append(rows_in(lake))

    meanwhile(monkeypatch, act)
    with pytest.raises(ConflictError, match="Another job rewrote the same files"):
        compact.run(lake=lake, database=database, say=quiet)

    assert after == [rows_in(lake)]
    compact.run(lake=lake, database=database, say=quiet)
    assert after == [rows_in(lake)]


@pytest.mark.usefixtures("many_files")
def test_what_is_exported_meanwhile_stays(lake: Lake, database: Database, archived: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the same day too; the work is not done twice for it."""

    def act() -> None:
        for _ in range(2):
            archived({}, {"archived_at": NOON + timedelta(days=1)})
            export(lake, database)

    before = rows_in(lake)
    meanwhile(monkeypatch, act)
    done = compact.run(lake=lake, database=database, say=quiet)

    assert (6, 6, len(before) + 4) == (done.files_before, done.files_after, len(rows_in(lake)))
    assert 0 == verify.run(lake=lake, database=database, say=quiet).exit_code


@pytest.mark.usefixtures("many_files")
def test_a_commit_whose_answer_is_lost_is_found(lake: Lake, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the table: nothing of it is removed, and nothing is done again."""
    before, write = rows_in(lake), lake_module._write

    def unheard(*values: Any, **options: Any) -> None:
        write(*values, **options)
        raise OSError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(lake_module, "_write", unheard)
        done = compact.run(lake=lake, database=database, say=quiet)

    assert (2, before) == (done.files_after, rows_in(lake))


@pytest.mark.usefixtures("many_files")
def test_a_new_file_that_is_not_whole_takes_no_others_place(lake: Lake, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that lost its end: the files that it was made of stay the table's, and it goes."""
    before = data_files(lake)

    def cut() -> None:
        for path in set(data_files(lake)) - set(before):
            path.write_bytes(path.read_bytes()[:-9])

    meanwhile(monkeypatch, cut)
    with pytest.raises(LakeError, match="is missing or damaged"):
        compact.run(lake=lake, database=database, say=quiet)

    assert (6, sorted(before)) == (len(files(lake.opened(TABLE))), sorted(data_files(lake)))


@pytest.mark.usefixtures("many_files")
def test_a_commit_that_arrives_after_its_error_finds_its_files(lake: Lake, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store may answer too late: no row is lost by that, and the next run has nothing to do."""
    before, write = rows_in(lake), lake_module._write
    late: list[Callable[[], None]] = []

    def delayed(*values: Any, **options: Any) -> None:
        late.append(lambda: write(*values, **options))
        raise OSError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(lake_module, "_write", delayed)
        with pytest.raises(LakeError):
            compact.run(lake=lake, database=database, say=quiet)
    late[0]()

    assert before == rows_in(lake)
    assert () == compact.run(lake=lake, database=database, say=quiet).days


@pytest.mark.usefixtures("many_files")
def test_a_job_that_ends_before_its_commit_leaves_files_of_nobody(lake: Lake, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is as it was, and the next run does the work."""
    before = rows_in(lake)

    def killed() -> None:
        raise KeyboardInterrupt

    meanwhile(monkeypatch, killed)
    with pytest.raises(KeyboardInterrupt):
        compact.run(lake=lake, database=database, say=quiet)

    assert (6, 8, before) == (len(files(lake.opened(TABLE))), len(data_files(lake)), rows_in(lake))
    assert 2 == compact.run(lake=lake, database=database, say=quiet).files_after


@pytest.mark.spark
@pytest.mark.usefixtures("many_files")
def test_tasks_write_the_same_files(lake: Lake, database: Database, spark: SparkSession) -> None:
    """Where there are several to write; the log says that no row has changed by it."""
    before = lake.dataset(TABLE).to_table().sort_by([("xid", "ascending"), ("seq", "ascending")])

    done = compact.run(lake=lake, database=database, say=quiet, spark=lambda: spark)

    assert (6, 2) == (done.files_before, done.files_after)
    assert before == lake.dataset(TABLE).to_table().sort_by([("xid", "ascending"), ("seq", "ascending")])
    log = max(Path(lake.place.url, TABLE, "_delta_log").glob("*.json")).read_text().splitlines()
    actions = [action for line in log for name, action in json.loads(line).items() if name in {"add", "remove"}]
    assert [False] * 8 == [action["dataChange"] for action in actions]


@pytest.mark.spark
@pytest.mark.usefixtures("many_files")
def test_an_error_of_a_task_is_said_as_it_is(lake: Lake, database: Database, spark: SparkSession) -> None:
    """And what other tasks have written goes."""
    found = data_files(lake)
    flip(max(found), 100)

    with pytest.raises(LakeError, match=rf"The file .*{max(found).name} cannot be read: .* is missing or damaged"):
        compact.run(lake=lake, database=database, say=quiet, spark=lambda: spark)

    assert sorted(found) == sorted(data_files(lake))


def test_files_grow_no_larger_than_they_may(lake: Lake, database: Database, archived: Archived) -> None:
    """A day becomes several of them, each of one stretch of transactions; a row that is larger by itself stays by itself."""
    for _ in range(6):
        archived({"body": secrets.token_bytes(50_000)})
        export(lake, database)
    archived({"body": secrets.token_bytes(200_000)})
    export(lake, database)
    before = rows_in(lake)

    done = compact.run(lake=lake, database=database, say=quiet, full=130_000)

    assert (7, 4) == (done.files_before, done.files_after)
    made = sorted(files(lake.opened(TABLE)), key=lambda file: file.oldest or 0)
    assert all(left.newest < right.oldest for left, right in pairwise(made) if left.newest is not None and right.oldest is not None)
    assert [True] * 3 + [False] == [file.size < 130_000 for file in made]
    assert before == rows_in(lake)
