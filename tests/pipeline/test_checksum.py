"""The checksum that PostgreSQL and the lake compute alike."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from relay.pipeline.lake.day_ranges import ComparisonPlan
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.source.columns import ArchiveColumn
from relay.pipeline.source.database import Database
from relay.pipeline.source.partitions import ArchivePartition
from relay.pipeline.verify.checksum import Sum, add_up, digests, total
from relay.pipeline.verify.comparison import Comparison
from tests.support.lake.exporting import export

if TYPE_CHECKING:
    from tests.pipeline.conftest import Archived

COLUMNS = [ArchiveColumn("seq", "int8"), ArchiveColumn("a", "text"), ArchiveColumn("b", "text")]
DAY = datetime(2024, 5, 1, tzinfo=UTC).date()
HOSTILE = [
    "", " ", "~", "~0", "~1", "~2", "~~", "a~1b", "null", "NULL", "\\", "'", '"', "\n\r\t\x01\x7f\x85", "é", "e\u0301", "\U0001f980" * 9,
    "\ufeff",
    "x" * 100_000,
]  # fmt: skip


def rows(*values: tuple[str | None, str | None], seq: int = 1) -> pa.RecordBatch:
    """Rows with two texts."""
    return pa.RecordBatch.from_pylist([{"seq": seq, "a": a, "b": b} for a, b in values])


def test_a_digest_is_the_first_15_digits_of_what_postgresql_sends() -> None:
    """By hand: the number of columns, and of each its type, its length (-1 for null) and its value."""
    row = [3, 20, 8, 0, 7, 25, 3]
    text = b"".join(number.to_bytes(4) for number in row) + b"x~y" + (25).to_bytes(4) + b"\xff" * 4
    [digest] = digests(rows(("x~y", None), seq=7), COLUMNS)

    assert digest == int(hashlib.sha256(text).hexdigest()[:15], 16)


def test_no_two_rows_share_a_text() -> None:
    """The digest distinguishes where a value ends, null and empty."""
    values: list[str | None] = [None, "", "a", "b", "ab", "bc", "abc", "c", "~", "~1", "~2", "~0", "a~1", "~1c", "a~1b~1c", "1"]
    every = [(one, other) for one in values for other in values]

    assert len(every) == len(set(digests(rows(*every), COLUMNS)))


def test_sums_need_no_order() -> None:
    """Any partition of the rows into batches gives the same sum; a doubled row is another one."""
    one, two = rows(("a", "b"), ("c", "d"), seq=5), rows(("e", "f"), seq=2)

    whole = add_up([one, two], COLUMNS)

    assert whole == add_up([two, one.slice(1), one.slice(0, 1)], COLUMNS)
    assert whole == total([add_up([one], COLUMNS), add_up([two], COLUMNS)])
    assert 3 == whole.rows
    assert whole != add_up([one, two, two], COLUMNS)
    assert whole != add_up([one], COLUMNS)
    assert Sum(0, 0) == total([]) == add_up([], COLUMNS)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Apia"])
def test_postgresql_and_the_lake_agree_on_hostile_rows(
    lake: Lake, database: Database, database_url: str, archived: Archived, zone: str
) -> None:
    """Byte for byte: texts of every kind, numbers of thirty digits, bodies, the first and the last microsecond, null everywhere."""
    separator = "&" if "?" in database_url else "?"
    elsewhere = Database(f"{database_url}{separator}options=-c%20TimeZone%3D{zone}%20-c%20DateStyle%3DGerman%20-c%20extra_float_digits%3D0")
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    archived(
        *({"routing_key": text, "error_detail": text, "ordering_key": text} for text in HOSTILE),
        {"content": '{"n": 123456789012345678901234567890.10, "s": "\\u00e9\\"\\\\ \\u0001", "a": [null, true, {}]}'},
        {
            "body": bytes(range(256)),
            "available_at": first,
            "expires_at": last,
            "claimed_at": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        },
        {"body": b"", "created_at": first, "confirmed_at": datetime(2024, 5, 1, 0, 0, 0, 1, tzinfo=UTC), "attempts": 2**31 - 1},
        {"body": b"\x00" * 1_000_000, "error_code": None, "handled_by": None},
    )
    below = export(lake, database)
    partition = ArchivePartition.of_day("queue_message_archive_20240501", DAY)
    [one] = ComparisonPlan(database, files(lake.opened("archive")), below).ranges(partition)
    with elsewhere:
        comparison = Comparison(elsewhere.complete_conninfo("test"), "public", tuple(database.columns()), lake.place, seconds=30)
    found = comparison.compare(one)

    assert (len(HOSTILE) + 4, False) == (found.ours.rows, found.differs)
    assert found.ours == found.theirs
