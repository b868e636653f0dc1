"""The lake without Spark: tables, commits, files, and who may read them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from relay.errors import ConflictError, LakeError
from relay.pipeline.lake.data_files import batches_of
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.parquet_writer import DataFile, DayWriter
from relay.pipeline.source.columns import DAY

SCHEMA = pa.schema(
    [pa.field("number", pa.int64(), nullable=False), pa.field("at", pa.timestamp("us", "UTC"), nullable=False), ("body", pa.binary()), DAY]
)


def batch(*rows: tuple[int, datetime]) -> pa.RecordBatch:
    """Rows of SCHEMA."""
    return pa.RecordBatch.from_pylist(
        [{"number": number, "at": at, "body": b"\x00\xff", "day": at.date()} for number, at in rows], schema=SCHEMA
    )


def at(day: int, *, year: int = 2024) -> datetime:
    """Noon and a microsecond."""
    return datetime(year, 5, day, 12, 0, 0, 1, tzinfo=UTC)


@pytest.fixture
def handle(lake: Lake) -> DeltaTable:
    """A handle of an empty table."""
    return lake.create("numbers", SCHEMA, properties={"outbox_relay.format": "1"})


def files_below(lake: Lake) -> list[str]:
    """Every Parquet file of the lake, committed or not."""
    return sorted(str(path.relative_to(lake.place.url)) for path in Path(lake.place.url).rglob("*.parquet"))


def test_rows_come_back_as_they_were_by_day(lake: Lake, handle: DeltaTable) -> None:
    """Two days and the first and last year, with their types; days are folders."""
    rows = batch((1, at(1)), (2, at(2)), (3, at(1)), (4, at(1, year=1)), (5, at(1, year=9999)))

    lake.append(handle, "numbers", [rows])

    found = lake.dataset("numbers").to_table()
    assert SCHEMA == found.schema
    assert rows.to_pylist() == found.sort_by("number").to_pylist()
    assert [date(1, 5, 1), date(2024, 5, 1), date(2024, 5, 2), date(9999, 5, 1)] == lake.days("numbers")
    assert [2] == lake.dataset("numbers", days=[date(2024, 5, 2)]).to_table()["number"].to_pylist()


def test_a_filter_on_any_column_finds_its_rows(lake: Lake) -> None:
    """Through the data set that DuckDB and polars read, also on texts, of which the log says nothing, and on what is null throughout."""
    schema = pa.schema([pa.field("number", pa.int64(), nullable=False), ("text", pa.string()), ("maybe", pa.int64()), DAY])
    row = {"number": 1, "text": "a", "maybe": None, "day": date(2024, 5, 1)}
    lake.append(lake.create("texts", schema), "texts", [pa.RecordBatch.from_pylist([row], schema=schema)])
    found = lake.dataset("texts")

    for wanted, rows in (
        (ds.field("text") == "a", 1),
        (ds.field("text") == "b", 0),
        (ds.field("maybe").is_null(), 1),
        (ds.field("number") == 2, 0),
    ):
        assert rows == found.count_rows(filter=wanted), str(wanted)


def test_statistics_tell_readers_which_files_to_leave_out(lake: Lake, handle: DeltaTable) -> None:
    """The log has least and greatest values of numbers and times, never of contents."""
    lake.append(handle, "numbers", [batch((1, at(1))), batch((9, at(1)))])

    [known] = pa.table(lake.opened("numbers").get_add_actions(flatten=True)).to_pylist()
    assert (2, 1, 9, at(1), at(1)) == tuple(known[name] for name in ("num_records", "min.number", "max.number", "min.at", "max.at"))
    assert known.get("min.body") is None


def test_data_and_offset_are_one_commit(lake: Lake, handle: DeltaTable) -> None:
    """The table's log has the offset next to the files."""
    lake.append(handle, "numbers", [batch((1, at(1)))], offsets=[("tests", 17)])

    assert 17 == lake.opened("numbers").transaction_version("tests")


def test_of_two_commits_through_handles_of_the_same_version_one_is_refused(lake: Lake, handle: DeltaTable) -> None:
    """The second leaves no file behind, although its offset is another one."""
    other = lake.opened("numbers")
    lake.append(handle, "numbers", [batch((1, at(1)))], offsets=[("tests", 17)])
    before = files_below(lake)

    with pytest.raises(ConflictError, match="Another export was faster"):
        lake.append(other, "numbers", [batch((2, at(1)))], offsets=[("tests", 18)])

    assert before == files_below(lake)
    assert [1] == lake.dataset("numbers").to_table()["number"].to_pylist()


@pytest.mark.parametrize("folder", ["lake", "data lake", "link"])
def test_a_commit_whose_answer_was_lost_is_not_undone(tmp_path: Path, folder: str) -> None:
    """Files that are in the table although the commit seemed to fail stay there, also behind blanks and symbolic links."""
    (tmp_path / "behind").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "behind")
    lake = Lake(str(tmp_path / folder))
    lake.create("numbers", SCHEMA)
    handle = lake.opened("numbers")
    files = lake.append(handle, "numbers", [batch((1, at(1)))], offsets=[("tests", 17)])

    lake._refused(handle, "numbers", files, (), OSError("connection lost"))

    assert [1] == lake.dataset("numbers").to_table()["number"].to_pylist()


def test_a_commit_without_files_whose_answer_was_lost_counts(lake: Lake, handle: DeltaTable) -> None:
    """Its offsets say that it is in the table; those of another commit say that this one is not."""
    lake.commit(handle, "numbers", (), offsets=[("tests", 17), ("epoch", 5)])

    lake._refused(handle, "numbers", (), (("tests", 17), ("epoch", 5)), OSError("connection lost"))
    with pytest.raises(ConflictError, match="Another export was faster"):
        lake._refused(handle, "numbers", (), (("tests", 17), ("epoch", 6)), OSError("connection lost"))


@pytest.mark.parametrize("name", ["content", "body", "options"])
def test_rows_that_share_a_large_value_are_read_some_at_a_time(lake: Lake, name: str) -> None:
    """Whatever few bytes they take in the file: a job has to hold them as they are."""
    schema = pa.schema([(name, pa.binary() if name == "body" else pa.string()), DAY])
    rows, size = 600, 250_000
    writer = DayWriter(lake.place, "numbers", schema, "large")
    values = pa.array([b"x" * size] * rows, schema.field(name).type)
    writer.write(pa.RecordBatch.from_arrays([values, pa.array([date(2024, 5, 1)] * rows)], schema=schema))
    [file] = writer.close()

    read = [batch.nbytes for batch in batches_of(lake.place, "numbers", file.path)]
    assert max(read) <= 40 << 20
    assert sum(read) >= rows * size


@pytest.mark.parametrize("kept", [True, False], ids=["committed", "aborted"])
def test_a_full_file_is_finished_and_its_day_gets_another(lake: Lake, handle: DeltaTable, kept: bool) -> None:
    """Each day for itself; a writer that gives up removes what it has finished, too."""
    writer = DayWriter(lake.place, "numbers", schema_of(handle), "rolled", full=1)
    for rows in ([(1, at(1)), (2, at(2))], [(3, at(1))]):
        writer.write(batch(*rows))
    if not kept:
        writer.abort()
        assert [] == files_below(lake)
        return

    files = writer.close()

    assert [(1, 1), (1, 1), (2, 1)] == sorted((file.day.day, file.rows) for file in files if file.day)
    lake.commit(handle, "numbers", files)
    assert [1, 2, 3] == sorted(lake.dataset("numbers").to_table()["number"].to_pylist())


def test_a_file_of_wrong_types_is_not_committed(lake: Lake, handle: DeltaTable) -> None:
    """The table library would take it unseen; its footer is read first, and it is removed."""
    writer = DayWriter(lake.place, "numbers", pa.schema([("number", pa.string()), DAY]), "wrong")
    writer.write(pa.RecordBatch.from_pylist([{"number": "1", "day": date(2024, 5, 1)}], schema=pa.schema([("number", pa.string()), DAY])))

    with pytest.raises(LakeError, match="is not of its schema"):
        lake.commit(handle, "numbers", writer.close())

    assert [] == files_below(lake)


def test_a_file_with_fewer_rows_than_were_written_is_not_committed(lake: Lake, handle: DeltaTable) -> None:
    """What a footer says is compared with what was written."""
    writer = DayWriter(lake.place, "numbers", schema_of(handle), "short")
    writer.write(batch((1, at(1))))
    [file] = writer.close()

    with pytest.raises(LakeError, match="is not of its schema"):
        lake.commit(handle, "numbers", [DataFile(file.path, file.day, file.size, 2, file.stats)])


def test_footers_are_read_several_at_a_time(lake: Lake, handle: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a store answer late: none is opened before four wait."""
    opened, together = pq.ParquetFile, Barrier(4, timeout=30)

    def late(source: object, **options: object) -> object:
        together.wait()
        return opened(source, **options)

    monkeypatch.setattr(pq, "ParquetFile", late)
    lake.append(handle, "numbers", [batch(*((day, at(day)) for day in range(1, 5)))])

    monkeypatch.undo()
    assert 4 == lake.dataset("numbers").count_rows()


def test_a_table_for_newer_readers_is_refused(lake: Lake, handle: DeltaTable) -> None:
    """A reader that does not know a feature would show wrong rows."""
    log = Path(lake.place.url, "numbers/_delta_log/00000000000000000001.json")
    log.write_text(json.dumps({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}), encoding="utf-8")

    with pytest.raises(LakeError, match="needs reader version 2"):
        lake.open("numbers")


def test_looking_for_a_table_makes_nothing(lake: Lake) -> None:
    """No folder, no log."""
    assert lake.open("archive") is None
    assert [] == lake.days("archive")
    with pytest.raises(LakeError, match="no table archive yet"):
        lake.dataset("archive")
    assert not Path(lake.place.url).exists()


@pytest.mark.parametrize("url", ["ftp://host/x", "s3:///x", "s3://key:secret@bucket/x"])
def test_a_url_that_cannot_be_a_lake_is_refused(url: str) -> None:
    """With a sentence that does not repeat a secret."""
    with pytest.raises(LakeError, match="RELAY_LAKE_URL") as refused:
        Lake(url)

    assert "secret" not in str(refused.value)


def test_storage_options_are_never_shown() -> None:
    """Neither the lake nor its place prints them."""
    lake = Lake("s3://bucket/x", {"AWS_SECRET_ACCESS_KEY": "hidden"})

    assert "hidden" not in f"{lake!r} {lake.place!r} {lake.place}"


def test_a_lower_offset_through_a_fresh_handle_is_the_callers_to_refuse(lake: Lake, handle: DeltaTable) -> None:
    """Delta itself takes it: who commits offsets reads the last one from the handle that it commits through."""
    lake.append(handle, "numbers", [batch((1, at(1)))], offsets=[("tests", 17)])

    lake.opened("numbers").create_write_transaction(
        [],
        "append",
        lake.opened("numbers").schema(),
        ["day"],
        commit_properties=CommitProperties(app_transactions=[Transaction("tests", 3)]),
    )

    assert 3 == lake.opened("numbers").transaction_version("tests")
