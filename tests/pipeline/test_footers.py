"""A file that can be read and is another one than the table names: the look at it, `export --again` and compaction name the difference."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from relay.errors import DamagedError, LakeError
from relay.pipeline.compact import job as compact
from relay.pipeline.compact.packing import packs
from relay.pipeline.lake import damage, data_files, witness
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import LoggedFile, files
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.lake.parquet_writer import DataFile
from relay.pipeline.rewriting import Rewriter
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.spark.items import Carrier
from relay.pipeline.verify import job as verify
from tests.pipeline.conftest import Archived
from tests.support.lake.adding import DAY
from tests.support.lake.compacting import quiet
from tests.support.lake.damaging import make_due
from tests.support.lake.exporting import export

Change = Callable[[pa.Table], pa.Table]


def cast(name: str, kind: pa.DataType) -> Change:
    """The column in another type."""
    return lambda rows: rows.set_column(rows.schema.get_field_index(name), name, pc.cast(rows[name], kind))


DIFFERENT: dict[str, tuple[Change, str]] = {
    "rows": (lambda rows: rows.slice(1), "it has 1 row, and the table's log says 2"),
    "type": (cast("seq", pa.int32()), "its column seq is int32, and the table's int64"),
    "zone": (cast("archived_at", pa.timestamp("us", "Asia/Tokyo")), "its column archived_at is timestamp[us, tz=Asia/Tokyo]"),
    "lacking": (lambda rows: rows.drop_columns(["archived_xid"]), "it has no column archived_xid"),
    "more": (lambda rows: rows.append_column("price", rows["seq"]), "it has a column price, and the table none"),
}
"""What becomes of a file, and what is said of it."""
SAME: dict[str, Change] = {
    "as it was": lambda rows: rows,
    "wider offsets": cast("exchange", pa.large_string()),
    "dictionary": lambda rows: rows.set_column(3, "exchange", rows["exchange"].dictionary_encode()),
    "bytes": cast("body", pa.large_binary()),
    "unit": cast("created_at", pa.timestamp("ms", "UTC")),
    "older than a column": lambda rows: rows.drop_columns(["handled_by"]),
}
"""What other programs write, and older versions of the archive."""


@pytest.fixture
def logged(lake: Lake, database: Database, archived: Archived) -> LoggedFile:
    """The lake's only file, of two rows."""
    archived({}, {})
    export(lake, database)
    [file] = files(lake.opened(TABLE))
    return file


def changed(lake: Lake, file: LoggedFile, change: Change) -> None:
    """Write a file again with other content, as if the log had its size."""
    path = Path(lake.place.url, TABLE, file.path)
    pq.write_table(change(pq.ParquetFile(path).read()), path, write_page_checksum=True)


def found(lake: Lake, file: LoggedFile) -> list[str]:
    """What a look at the file finds."""
    check = FooterCheck(lake.place, schema_of(lake.opened(TABLE)))
    return [words for _, words in damage.unreadable(check, [file], Carrier(None, quiet, most=1))]


@pytest.mark.parametrize(("change", "words"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_look_at_a_file_names_what_differs(lake: Lake, logged: LoggedFile, change: Change, words: str) -> None:
    """In the sentence of a damaged file."""
    changed(lake, logged, change)

    [said] = found(lake, logged)

    assert said.startswith(f"the file archive/{logged.path} of the lake {lake.place.url} is missing or damaged: ")
    assert words in said


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_a_file_that_comes_to_the_same_is_well(lake: Lake, logged: LoggedFile, change: Change) -> None:
    """Its rows mean the same to every reader."""
    changed(lake, logged, change)

    assert [] == found(lake, logged)


def test_files_that_the_table_library_has_compacted_are_well(lake: Lake, database: Database, archived: Archived) -> None:
    """They are of its own writer."""
    for _ in range(2):
        archived({}, {"result": "failed", "body": b"\x00"})
        export(lake, database)
    lake.opened(TABLE).optimize.compact()

    assert [[]] == [found(lake, file) for file in files(lake.opened(TABLE))]


@pytest.mark.parametrize(("change", "words"), DIFFERENT.values(), ids=DIFFERENT)
def test_compaction_takes_no_file_that_differs(
    lake: Lake, database: Database, archived: Archived, logged: LoggedFile, change: Change, words: str
) -> None:
    """The other file of the day stays as well."""
    archived({})
    export(lake, database)
    changed(lake, logged, change)
    [pack] = packs(files(lake.opened(TABLE)), DAY + timedelta(days=1))

    with pytest.raises(DamagedError, match=f"^The file archive/{logged.path} of the lake ") as refused:
        Rewriter(lake.place, TABLE, schema_of(lake.opened(TABLE)), "part-test")(pack.files)

    assert words in str(refused.value)
    with pytest.raises(LakeError):  # the size says it too
        compact.run(lake=lake, database=database, say=quiet)


@pytest.mark.parametrize(("change", "words"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_new_file_that_differs_is_not_committed(lake: Lake, logged: LoggedFile, change: Change, words: str) -> None:
    """The sentence says how."""
    changed(lake, logged, change)
    written = DataFile(logged.path, logged.day, logged.size, logged.rows, "{}")

    with pytest.raises(LakeError, match="is not of its schema") as refused:
        data_files.check_footers(lake.place, TABLE, schema_of(lake.opened(TABLE)), [written])

    assert words in str(refused.value)


def test_a_new_file_must_be_exactly_as_the_table_says(lake: Lake, logged: LoggedFile) -> None:
    """What is forgiven another program is a fault here."""
    changed(lake, logged, SAME["wider offsets"])

    with pytest.raises(LakeError, match=r"its column exchange is large_string, and the table's string"):
        data_files.check_footers(
            lake.place, TABLE, schema_of(lake.opened(TABLE)), [DataFile(logged.path, logged.day, logged.size, logged.rows, "{}")]
        )


def test_a_day_whose_file_is_another_one_is_damaged(
    lake: Lake, database: Database, database_url: str, logged: LoggedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the size that the log names, so that the listing says nothing."""
    witness.run(lake, database, quiet)
    make_due(database_url)
    changed(lake, logged, DIFFERENT["type"][0])
    monkeypatch.setattr(witness, "sizes", lambda *_: {logged.path: logged.size})

    seen = witness.run(lake, database, quiet)

    assert ["queue_message_archive_20240501"] == list(seen.damage)
    assert "its column seq is int32" in seen.damage["queue_message_archive_20240501"]


def test_a_file_without_statistics_is_named(lake: Lake, logged: LoggedFile, database: Database) -> None:
    """Another writer may leave them out of the log: a job that needs the number of rows says so, and none ends in an error of its own."""
    [*_, last] = sorted(Path(lake.place.url, TABLE, "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in last.read_text().splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    last.write_text("\n".join(map(json.dumps, lines)))

    with pytest.raises(LakeError, match=f"no statistics of the file {re.escape(logged.path)}"):
        files(lake.opened(TABLE))
    with pytest.raises(LakeError, match="no statistics"):
        verify.run(lake=lake, database=database, say=quiet)
