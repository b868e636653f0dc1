"""What an export that reads rows again asks of the lake: of each file that can hold them its footer, once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from relay.errors import DamagedError
from relay.pipeline.lake.already_exported import AlreadyExported, known_from
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import LoggedFile, files
from relay.pipeline.source.columns import INSTANT, TABLE
from relay.pipeline.source.database import Database
from tests.pipeline.conftest import Archived
from tests.support.lake.adding import NOON
from tests.support.lake.exporting import export

SCHEMA = pa.schema([("xid", pa.int64()), ("seq", pa.int64()), ("archived_xid", pa.int64()), ("archived_at", INSTANT)])


@pytest.fixture
def three(lake: Lake, database: Database, archived: Archived) -> list[LoggedFile]:
    """A file of transactions 10 and 20, in a row group each, one of 30, and one of 40."""
    for xids in ([10, 20], [30], [40]):
        archived(*({"xid": str(xid), "seq": xid} for xid in xids))
        export(lake, database, group=1)
    return sorted(files(lake.opened(TABLE)), key=lambda file: file.first or 0)


def unknown(known: AlreadyExported, lake: Lake, *xids: int) -> list[int]:
    """Which of these rows the lake does not have."""
    rows = [{"xid": xid, "seq": xid, "archived_xid": xid, "archived_at": NOON} for xid in xids]
    found: list[int] = known.without(lake.place, pa.RecordBatch.from_pylist(rows, schema=SCHEMA)).column("xid").to_pylist()
    return found


def lose(lake: Lake, lost: Iterable[LoggedFile]) -> None:
    """Remove files from the folder."""
    for file in lost:
        Path(lake.place.url, TABLE, file.path).unlink()


@pytest.mark.parametrize(
    ("xids", "new", "matter"),
    [([10, 15], [15], [0]), ([25], [25], []), ([30, 40], [], [1, 2]), ([5, 50], [5, 50], []), ([5, 30, 50], [5, 50], [1])],
)
def test_a_file_that_cannot_have_such_rows_is_not_opened(
    lake: Lake, three: list[LoggedFile], xids: Sequence[int], new: list[int], matter: list[int]
) -> None:
    """By what the table's log says of it; one that can is missed where it is gone."""
    known = known_from(lake.opened(TABLE), 0)
    assert known
    lose(lake, [file for number, file in enumerate(three) if number not in matter])

    assert new == unknown(known, lake, *xids)
    lose(lake, [three[number] for number in matter])
    if matter:
        with pytest.raises(DamagedError):
            unknown(AlreadyExported(three), lake, *xids)


def test_a_footer_is_read_once(lake: Lake, three: list[LoggedFile]) -> None:
    """A second batch, of whose rows it tells that they are not there, needs nothing of the file any more."""
    known = AlreadyExported(three)
    assert [15] == unknown(known, lake, 10, 15)
    lose(lake, three)

    assert [15, 16] == unknown(known, lake, 15, 16)


def test_a_file_of_which_the_log_says_nothing_may_have_any_row(lake: Lake, three: list[LoggedFile]) -> None:
    """Other programs write logs without statistics."""
    known = AlreadyExported([file._replace(first=None, last=None) for file in three])

    assert [5] == unknown(known, lake, 5, 20, 30)
