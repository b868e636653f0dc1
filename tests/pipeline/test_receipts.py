"""Receipts of files: Parquet, CSV and JSON lines, checked before anything is compared."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from relay.errors import PipelineError
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.reconcile.receipts import SCHEMA, _files, _spans, read_file

TIME = datetime(2024, 5, 1, 12, 0, 0, 500_000, tzinfo=UTC)
ROWS = [{"message_id": "ab", "queue": "q", "received_at": TIME}, {"message_id": "cd", "queue": "", "received_at": TIME}]
CSV = 'consumer,received_at,queue,message_id\n"a,b",2024-05-01T12:00:00.5Z,q,AB\n,2024-05-01 14:00:00.5+02:00,, cd \n'
JSON = (
    '{"message_id": "AB", "queue": "q", "received_at": "2024-05-01T12:00:00.5Z", "more": {"a": [1]}}\n'
    '{"received_at": "2024-05-01T13:00:00.500+01:00", "message_id": "cd", "queue": null}\n'
)


def read(path: Path) -> list[dict[str, Any]]:
    """All receipts of a file."""
    place = LakeLocation(str(path.parent), setting="--receipts")
    rows: list[dict[str, Any]] = pa.Table.from_batches(read_file(place, str(path)), SCHEMA).to_pylist()
    return rows


def write(folder: Path, name: str, content: str | bytes) -> Path:
    """A file with this content."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(("name", "content"), [("a.csv", CSV), ("a.jsonl", JSON), ("a.json", JSON), ("A.NDJSON", JSON)])
def test_text_is_read_whatever_else_it_holds(tmp_path: Path, name: str, content: str) -> None:
    """Columns in any order and with others between them, times in any zone, ids in any letters, queues left out; packed or not."""
    assert ROWS == read(write(tmp_path, name, content))
    assert ROWS == read(write(tmp_path, f"{name}.gz", gzip.compress(content.encode())))


def test_parquet_is_read_with_times_in_any_unit(tmp_path: Path) -> None:
    """With or without a column for the queue."""
    times = pa.array([TIME, TIME]).cast(pa.timestamp("ns", "Europe/Berlin"))
    parquet.write_table(pa.table({"received_at": times, "message_id": ["AB", "cd"], "n": [1, 2]}), tmp_path / "a.parquet")

    assert [{**row, "queue": ""} for row in ROWS] == read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "message_id,received_at\na,2024-05-01T12:00:00\n"),
        ("a.csv", "message_id,received_at\na,yesterday\n"),
        ("a.csv", "received_at\n2024-05-01T12:00:00Z\n"),
        ("a.csv", "message_id,queue\na,q\n"),
        ("a.csv", ""),
        ("a.jsonl", '{"message_id": "a", "received_at": "2024-05-01T12:00:00"}\n'),
        ("a.jsonl", '{"message_id": null, "received_at": "2024-05-01T12:00:00Z"}\n'),
        ("a.jsonl", '{"message_id": "a", "received_at": 1714564800}\n'),
        ("a.jsonl", '{"queue": "a"}\n'),
        ("a.jsonl", "no json\n"),
    ],
)
def test_what_is_no_receipt_is_refused_with_the_file_s_name(tmp_path: Path, name: str, content: str) -> None:
    """One sentence that says what each must have."""
    with pytest.raises(
        PipelineError, match=rf"receipts in .*/{name} cannot be read: each needs message_id, and received_at with a time zone"
    ):
        read(write(tmp_path, name, content))


def test_times_of_parquet_need_a_zone_too(tmp_path: Path) -> None:
    """What such a time means depends on who wrote it."""
    parquet.write_table(pa.table({"received_at": [TIME.replace(tzinfo=None)], "message_id": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(PipelineError, match="no zone"):
        read(tmp_path / "a.parquet")


def test_a_folder_is_all_its_files_of_known_formats(tmp_path: Path) -> None:
    """Folders below it too; a folder without any is refused, or nothing would look like everything lost."""
    (tmp_path / "deep").mkdir()
    for name in ("a.csv", "deep/b.jsonl.gz", "c.txt", "_SUCCESS"):
        write(tmp_path, name, "")
    place = LakeLocation.of(str(tmp_path), {})

    assert [str(tmp_path / "a.csv"), str(tmp_path / "deep/b.jsonl.gz")] == _files(place)
    assert [str(tmp_path / "a.csv")] == _files(LakeLocation.of(str(tmp_path / "a.csv"), {}))
    for missing in ("c.txt", "nowhere"):
        with pytest.raises(PipelineError, match=r"There are no receipts in .*: it must be a file or a folder"):
            _files(LakeLocation.of(str(tmp_path / missing), {}))


def test_spans_cover_every_microsecond_once() -> None:
    """Whatever their number."""
    for first, last, count in ((5, 5, 1), (5, 5, 9), (0, 10, 3), (-7, 1_000, 64), (1, 2, 2)):
        spans = _spans(first, last, count)
        assert list(range(first, last + 1)) == [moment for low, high in spans for moment in range(low, high + 1)]
        assert len(spans) <= count
