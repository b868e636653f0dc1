"""A file that is missing, cut, empty or something else is the same sentence in each job that reads it: it names the file and what to do."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from relay.errors import DamagedError, LakeError, PipelineError
from relay.pipeline.lake import data_files, spark_reader
from relay.pipeline.lake.already_exported import AlreadyExported
from relay.pipeline.lake.day_ranges import ComparisonPlan
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import LoggedFile, files
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_writer import DataFile
from relay.pipeline.lake.splits import Parts
from relay.pipeline.metrics import aggregate, lake_sink
from relay.pipeline.reconcile import job as reconcile
from relay.pipeline.reconcile.receipts import read_file
from relay.pipeline.replay import job as replay
from relay.pipeline.replay.selection import Selection
from relay.pipeline.report import archive_reader, metrics_reader
from relay.pipeline.report.model import ReportSpan
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.source.partitions import ArchivePartition
from relay.pipeline.spark.items import Carrier
from relay.pipeline.verify import lake_rows
from tests.pipeline.conftest import Archived
from tests.support.lake.adding import DAY, NOON
from tests.support.lake.exporting import export
from tests.support.lake.rows import append, row, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _full(lake: Lake, file: LoggedFile) -> str:
    return f"{lake.place.path(lake.place.table(TABLE))}/{file.path}"


def _compare(lake: Lake, database: Database, file: LoggedFile) -> Iterable[Any]:
    plan = ComparisonPlan(database, [file], 1 << 40, 1000)
    for one in plan.ranges(ArchivePartition.of_day(f"queue_message_archive_{DAY:%Y%m%d}", DAY)):
        yield from lake_rows.batches(lake.place, one, ["seq", "result", "archived_at", "archived_xid"])


def _report(lake: Lake, _database: Database, _file: LoggedFile) -> Iterable[Any]:
    span = ReportSpan(NOON - timedelta(days=1), NOON + timedelta(days=1), timedelta(hours=1))
    yield archive_reader.read(lake, span, Carrier(None, lambda _line: None, most=1), lambda _line: None)


def _footers(lake: Lake, _database: Database, file: LoggedFile) -> Iterable[Any]:
    written = DataFile(file.path, file.day, file.size, file.rows, "{}")
    data_files.check_footers(lake.place, TABLE, schema_of(lake.opened(TABLE)), [written])
    return ()


def _replay(lake: Lake, database: Database, _file: LoggedFile) -> Iterable[Any]:
    yield replay.run(lake=lake, database=database, say=lambda _line: None, selection=Selection(exchange="orders"))


def _known(lake: Lake, _database: Database, file: LoggedFile) -> Iterable[Any]:
    rows = [{"xid": xid, "seq": 1, "archived_xid": xid, "archived_at": NOON} for xid in (1, file.first, 1 << 40)]
    schema = pa.schema([schema_of(lake.opened(TABLE)).field(name) for name in rows[0]])
    yield AlreadyExported([file]).without(lake.place, pa.RecordBatch.from_pylist(rows, schema=schema))


READERS: dict[str, Callable[[Lake, Database, LoggedFile], Iterable[Any]]] = {
    "verify": _compare,
    "metrics": lambda lake, _, file: Parts.of(lake.place, TABLE, [file]).batches(0, ["seq"]),
    "analysis": lambda lake, _, file: spark_reader._reader(lake.place, [_full(lake, file)], schema_of(lake.opened(TABLE)))(0),
    "whole": lambda lake, _, file: data_files.batches_of(lake.place, TABLE, file.path),
    "footers": _footers,
    "receipts": lambda lake, _, file: read_file(LakeLocation(f"{lake.place.url}/{TABLE}", setting="--receipts"), _full(lake, file)),
    "known": _known,
    "report": _report,
    "replay": _replay,
}
DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "shortened": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "foreign": lambda path: path.write_bytes(b"no such thing" * 100),
}


@pytest.fixture
def file(lake: Lake, database: Database, archived: Archived) -> LoggedFile:
    """The only file of the lake."""
    archived({})
    export(lake, database)
    [found] = files(lake.opened(TABLE))
    return found


def sentence(path: str) -> str:
    """What is said of a file."""
    return (
        rf"^The file (archive/)?{path} of (the lake )?/\S+ is missing or damaged: put it back from a copy, "
        r"or correct (RELAY_LAKE_URL|--receipts) \([^\n]+\)\.$"
    )


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_file_is_the_same_sentence(lake: Lake, database: Database, file: LoggedFile, reader: str, damage: str) -> None:
    """Each reader reads it well before."""
    if reader != "receipts":  # messages are no receipts
        list(READERS[reader](lake, database, file))
    DAMAGE[damage](Path(_full(lake, file)))

    with pytest.raises(DamagedError, match=sentence(file.path)) as found:
        list(READERS[reader](lake, database, file))

    assert ("--receipts" in str(found.value)) == (reader == "receipts")


@pytest.mark.spark
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_sparks_own_reader_cannot_read_is_the_same_sentence(
    lake: Lake, database: Database, spark: SparkSession, file: LoggedFile, damage: str
) -> None:
    """This process looks at the file that Spark names, and says what is wrong with it."""
    DAMAGE[damage](Path(_full(lake, file)))
    question = reconcile.Question(since=NOON - timedelta(days=1), may_lack_receipts=True)

    with pytest.raises(LakeError, match=sentence(file.path)):
        reconcile.run(lake=lake, database=database, spark=lambda: spark, say=lambda _line: None, question=question)


SPAN = ReportSpan(NOON - timedelta(days=1), NOON + timedelta(days=1), timedelta(hours=1))
NUMBERS: dict[str, tuple[str, Callable[[Lake], object]]] = {
    "which days are due": ("day", lake_sink.numbers_by_day),
    "what an open day builds on": ("window", lambda lake: lake_sink.bases(lake, [NOON.date()])),
    "what PostgreSQL gets": ("hour", lambda lake: lake_sink.read(lake, "hour", [NOON.date()])),
    "what is replaced": ("day", lambda lake: lake_sink.replace(lake, "day", aggregate.empty(), [NOON.date()], archive_version=2)),
    "report": ("hour", lambda lake: metrics_reader.read(lake, SPAN)),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("reader", NUMBERS)
def test_a_damaged_file_of_numbers_is_the_same_sentence(lake: Lake, reader: str, damage: str) -> None:
    """Metrics and report read them with the table library, and say what every other reader says."""
    append(lake, row(at=NOON))
    windows = aggregate.count(table([row(at=NOON)]), target_ms=1)
    for grain in ("window", "hour", "day"):
        lake_sink.replace(lake, grain, windows, [NOON.date()], archive_version=1)
    grain, read = NUMBERS[reader]
    if reader != "what is replaced":
        read(lake)
    [file] = files(lake.opened(f"stats_{grain}"))
    DAMAGE[damage](Path(lake.place.url, f"stats_{grain}", file.path))

    with pytest.raises(DamagedError, match=sentence(f"stats_{grain}/{file.path}")):
        read(lake)


TEXTS = {
    "a.csv": b"message_id,received_at\n" + b"a,2024-05-01T12:00:00Z\n" * 50_000,
    "a.jsonl": b'{"message_id": "a", "received_at": "2024-05-01T12:00:00Z"}\n' * 50_000,
}
"""Plain text has no form by which a cut file or another text could be distinguished from wrong receipts."""
TEXT_DAMAGE = [("", "missing"), *((".gz", damage) for damage in DAMAGE)]


@pytest.mark.parametrize(("packed", "damage"), TEXT_DAMAGE)
@pytest.mark.parametrize("name", TEXTS)
def test_a_damaged_file_of_receipts_is_the_same_sentence(tmp_path: Path, name: str, packed: str, damage: str) -> None:
    """Missing, or packed and not to be unpacked."""
    path = tmp_path / (name + packed)
    path.write_bytes(gzip.compress(TEXTS[name]) if packed else TEXTS[name])
    place = LakeLocation(str(tmp_path), setting="--receipts")
    assert 50_000 == sum(batch.num_rows for batch in read_file(place, str(path)))
    DAMAGE[damage](path)

    with pytest.raises(PipelineError, match=sentence(path.name) if damage != "empty" else "cannot be read: each needs message_id"):
        list(read_file(place, str(path)))
