"""Compaction next to other jobs, and with a commit that fails, is unheard or late: no row is lost, doubled or brought back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relay.errors import ConflictError, LakeError
from relay.pipeline.compact import job as compact
from relay.pipeline.lake import delta_lake as lake_module
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from tests.support.lake.compacting import data_files, meanwhile, quiet, rows_in
from tests.support.lake.exporting import export

if TYPE_CHECKING:
    from tests.pipeline.conftest import Archived

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

Meanwhile = Callable[[Lake, Database], object]
REWRITTEN: dict[str, Meanwhile] = {
    "by the same job": lambda lake, database: compact.run(lake=lake, database=database, say=quiet),
    "by another program": lambda lake, _: lake.opened(TABLE).optimize.compact(),
    "and rows deleted": lambda lake, _: lake.opened(TABLE).delete("result = 'failed'"),
}


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("looked", [False, True], ids=["before the look", "after it"])
@pytest.mark.parametrize("rewritten", REWRITTEN)
def test_files_that_were_rewritten_meanwhile_are_left_alone(
    lake: Lake, database: Database, monkeypatch: pytest.MonkeyPatch, rewritten: str, looked: bool
) -> None:
    """No row comes twice, and none comes back; the next run continues."""
    after: list[list[int]] = []

    def act() -> None:
        REWRITTEN[rewritten](lake, database)
        after.append(rows_in(lake))

    meanwhile(monkeypatch, act, looked=looked)
    with pytest.raises(ConflictError, match="Another job rewrote the same files"):
        compact.run(lake=lake, database=database, say=quiet)

    assert after == [rows_in(lake)]
    compact.run(lake=lake, database=database, say=quiet)
    assert after == [rows_in(lake)]


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("looked", [False, True], ids=["before the look", "after it"])
def test_what_is_exported_meanwhile_stays(
    lake: Lake, database: Database, archived: Archived, monkeypatch: pytest.MonkeyPatch, looked: bool
) -> None:
    """Into the same day too; the work is not done twice for it."""

    def act() -> None:
        for _ in range(2):
            archived({}, {"archived_at": NOON + timedelta(days=1)})
            export(lake, database)

    before = rows_in(lake)
    meanwhile(monkeypatch, act, looked=looked)
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
