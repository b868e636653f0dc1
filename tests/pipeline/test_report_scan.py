"""What a report reads from the archive's rows, in one piece or many."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.report import archive_reader
from relay.pipeline.report.archive_reader import Scanned
from relay.pipeline.report.model import Failure, ReportSpan, SlowKey
from relay.pipeline.source.columns import schema_of
from relay.pipeline.spark.items import Carrier, Start
from tests.support.lake.rows import COLUMNS, NOON, dead, row, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPAN = ReportSpan(NOON - timedelta(hours=1), NOON + timedelta(hours=1), timedelta(minutes=5))
SCAN = """
import sys
from datetime import datetime, timedelta
from pathlib import Path
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.report import archive_reader
from relay.pipeline.report.model import ReportSpan
from relay.pipeline.spark.items import Carrier

def most() -> int:
    [kilobytes] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(kilobytes) >> 10

def scan(noon: datetime) -> int:
    span = ReportSpan(noon - timedelta(hours=1), noon + timedelta(hours=1), timedelta(minutes=5))
    return archive_reader.read(Lake(sys.argv[1]), span, Carrier(None, print, most=1), lambda line: None).rows

noon = datetime.fromisoformat(sys.argv[2])
scan(noon - timedelta(days=9))
before = most()
print(scan(noon), most() - before)
"""


def _read(lake: Lake, spark: Start | None = None) -> Scanned:
    return archive_reader.read(lake, SPAN, Carrier(spark, lambda _line: None, most=2), lambda _line: None)


def _filled(lake: Lake, rows: Sequence[dict[str, Any]], files: int) -> None:
    lake.create("archive", schema_of(COLUMNS))
    for number in range(files):
        offset = "outbox-relay/export", number + 1
        lake.append(lake.opened("archive"), "archive", table(rows[number::files]).to_batches(), offsets=[offset])


def _some(chance: random.Random) -> list[dict[str, Any]]:
    """Messages of many keys, several as slow as others, some of them dead or outside the span."""
    rows = []
    for number in range(1, 400):
        at = NOON + timedelta(minutes=chance.choice([-90, -30, 0, 0, 30, 90]))
        key: dict[str, Any] = {
            "routing_key": f"r{chance.randrange(60)}",
            "ordering_key": chance.choice([None, f"o{chance.randrange(200)}"]),
        }
        if chance.random() < 0.3:
            rows.append(dead(number, chance.choice([None, *"abcdefghijklmnopqrst"]), at=at, error_detail=f"text {number}", **key))
        else:
            rows.append(row(number, at=at, wait=chance.choice([1, 5, 5, 9, 1000]), attempts=chance.choice([1, 2]), **key))
    return rows


def _in_plain_words(rows: Sequence[dict[str, Any]]) -> Scanned:
    inside = [one for one in rows if SPAN.since <= one["archived_at"] < SPAN.until]
    sent = [one for one in inside if one["result"] == "success"]
    failed = [one for one in inside if one["result"] != "success"]
    return Scanned(len(inside), tuple(_failures(failed)), (*_slow_keys("routing", sent), *_slow_keys("ordering", sent)))


def _failures(rows: Sequence[dict[str, Any]]) -> list[Failure]:
    kinds: dict[tuple[str, str | None], list[dict[str, Any]]] = defaultdict(list)
    for one in rows:
        kinds[one["result"], one["error_code"]].append(one)
    found = []
    for (result, code), them in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0][0], item[0][1] or ""))[:15]:
        last = max(them, key=lambda one: (one["archived_at"], one["xid"], one["seq"]))
        example = last["id"], last["exchange"], last["routing_key"], last["error_detail"], last["archived_at"]
        found.append(Failure(result, code, len(them), *example))
    return found


def _slow_keys(kind: Literal["routing", "ordering"], rows: Sequence[dict[str, Any]]) -> list[SlowKey]:
    ways: dict[str, list[int]] = defaultdict(list)
    for one in rows:
        due = one["created_at"] if one["attempts"] > 1 else max(one["created_at"], one.get("available_at") or one["created_at"])
        if (key := one[f"{kind}_key"]) is not None:
            ways[key].append((one["confirmed_at"] - due) // timedelta(microseconds=1))
    slowest = sorted(ways.items(), key=lambda item: (-max(item[1]), item[0]))[:10]
    return [SlowKey(kind, key, len(them), sum(them) / len(them) / 1000, max(them) / 1000) for key, them in slowest]


@pytest.mark.parametrize("seed", range(5))
def test_a_scan_in_pieces_finds_what_plain_rules_name(lake: Lake, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Slowest keys with all their messages, and dead messages with the latest of each kind, whatever file or piece they lie in."""
    monkeypatch.setattr(archive_reader, "_TASK_ROWS", 50)
    monkeypatch.setattr(archive_reader, "_ROWS", 7)
    rows = _some(random.Random(seed))
    _filled(lake, rows, files=9)

    assert _in_plain_words(rows) == _read(lake)


@pytest.mark.spark
def test_spark_finds_what_one_process_finds(lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large archive is scanned in tasks."""
    _filled(lake, _some(random.Random(1)), files=4)
    alone = _read(lake)
    monkeypatch.setattr(archive_reader, "_TASK_ROWS", 50)
    asked = Counter[str]()

    def start() -> SparkSession:
        asked["session"] += 1
        return spark

    assert alone == _read(lake, start)
    assert asked


def test_files_from_before_a_column_count(lake: Lake) -> None:
    """The archive of an older version had no ordering keys; its messages have none."""
    without = [column for column in COLUMNS if column.name != "ordering_key"]
    schema = schema_of(without)
    handle = lake.create("archive", schema)
    lake.append(handle, "archive", table([row(1, wait=20)]).select(schema.names).to_batches(), offsets=[("outbox-relay/export", 1)])

    found = _read(lake)

    assert (1, [("routing", "order")]) == (found.rows, [(one.kind, one.key) for one in found.slow_keys])


def test_a_report_takes_no_memory_for_each_key(lake: Lake) -> None:
    """300,000 keys of a kilobyte are read in bounded memory."""
    lake.create("archive", schema_of(COLUMNS))
    usual = table([row(1)])
    for number in range(10):
        keys = pa.array([f"{number}-{key:01000}" for key in range(30_000)])
        rows = pa.concat_tables([usual] * len(keys)).combine_chunks()
        places = pa.array(range(number * 30_000, (number + 1) * 30_000), pa.int64())
        for name, values in (("ordering_key", keys), ("routing_key", keys), ("seq", places)):
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
        lake.append(lake.opened("archive"), "archive", rows.to_batches(), offsets=[("outbox-relay/export", number + 1)])

    words = [sys.executable, "-c", SCAN, lake.place.url, NOON.isoformat()]
    done = subprocess.run(words, capture_output=True, text=True, check=True)

    rows_read, mib = map(int, done.stdout.split())
    assert 300_000 == rows_read
    assert mib < 400
