"""Rows that no lake can hold stop no export: they are named with a code, the other rows arrive, and their days stay in PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from relay.pipeline.export.job import Exported
from relay.pipeline.export.skipped_rows import SkippedRows
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from tests.pipeline.conftest import Archived
from tests.support.database.archives import insert_many

TIMES = ("infinity", "-infinity", "0044-03-15 00:00:00+00 BC", "10000-01-01 00:00:00+00")
HUGE = (1 << 63, (1 << 64) - 1)
UNUSABLE = [
    *(({column: time}, "time_out_of_range") for column in ("available_at", "expires_at", "created_at", "confirmed_at") for time in TIMES),
    *(({"xid": str(xid)}, "xid_out_of_range") for xid in HUGE),
    *(({"archived_xid": str(xid)}, "xid_out_of_range") for xid in ((1 << 63) - 1, *HUGE)),
    ({"xid": str(HUGE[0]), "expires_at": "infinity"}, "time_out_of_range"),
]
"""Values by hand, each with its code."""


@pytest.mark.parametrize(("row", "code"), UNUSABLE)
def test_a_row_that_no_lake_can_hold_is_named_and_the_others_are_exported(
    row: dict[str, str], code: str, archived: Archived, exported: Any, lake: Lake
) -> None:
    """Also rows of the same transaction."""
    _, (xid, seq), _ = archived({}, row, {})

    done = exported()

    assert (2, 1, (SkippedRows(xid, seq, code),)) == (done.rows, done.left_out, done.left_out_rows)
    assert 2 == lake.dataset("archive").to_table().num_rows


def test_many_of_them_are_counted_and_some_are_named(exported: Any, database_url: str) -> None:
    """In several batches, each of which says its own."""
    with psycopg.connect(database_url) as owner:
        for _ in range(3):
            insert_many(owner, 6000)
            owner.commit()
        owner.execute("SET session_replication_role = replica; UPDATE queue_message_archive SET expires_at = 'infinity' WHERE seq % 2 = 0")
    said: list[str] = []

    done: Exported = exported(batch_rows=5000, say=said.append)

    assert (9000, 9000, 20) == (done.rows, done.left_out, len(done.left_out_rows))
    assert 3 == sum("3,000 rows left out, because no lake can hold such values: (xid, seq) (" in line for line in said)


def test_the_day_of_such_a_row_stays(archived: Archived, exported: Any, database: Database, lake: Lake) -> None:
    """Each verification says which row it is, until somebody has corrected it."""
    [(xid, seq), _] = archived({"expires_at": "infinity"}, {})
    exported()

    [found] = verify.run(lake=lake, database=database, say=lambda _: None).differing

    assert [("missing", xid, seq)] == [(one.kind, one.xid, one.seq) for one in found.findings]
