"""No statement of the driver's own connection holds up the queue's clean-up for longer than was set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from relay.errors import PipelineError
from relay.pipeline.export import skipped_rows
from relay.pipeline.lake.day_ranges import ComparisonPlan
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from relay.pipeline.source.partitions import ArchivePartition
from relay.pipeline.verify import job as verify
from tests.pipeline.conftest import Archived
from tests.support.lake.exporting import export

SECONDS = 0.5
SENTENCE = "RELAY_PIPELINE_SNAPSHOT_SECONDS: see what holds it up, or set more"
DEAD = ArchivePartition.of_dead(None)
ASKS: dict[str, Callable[[Database], object]] = {
    "plan_ranges": lambda database: ComparisonPlan(database, [], 100).ranges(DEAD),
    "has_foreign": lambda database: database.one("has_foreign"),
    "read_newest_archived": lambda database: database.fetch("read_newest_archived", DEAD.values()),
    "plan_batch": lambda database: database.one("plan_batch", {"start": "0", "safe": "9", "most": 5, "step": 5}),
    "count_range": lambda database: database.one("count_range", {"low": "0", "high": None}),
    "read_lag": lambda database: database.one("read_lag", {"end": "0"}),
    "list_left_out": lambda database: skipped_rows.find(database, database.columns(), 0, None),
    "the replica's": lambda database: database.replica and database.replica.one("has_foreign"),
}


@pytest.fixture
def hurried(database_url: str) -> Iterator[Database]:
    """The test's own database, where statements have little time; it is its own replica."""
    with Database(database_url, snapshot_seconds=SECONDS, replica=database_url) as made:
        yield made


@pytest.mark.parametrize("asks", ASKS)
def test_a_statement_that_takes_too_long_is_ended_in_one_sentence(hurried: Database, database_url: str, asks: str) -> None:
    """This holds for every statement; the connection continues, and other connections have no limit."""
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE queue_message_archive IN ACCESS EXCLUSIVE MODE")
        begin = time.monotonic()
        with pytest.raises(PipelineError, match=SENTENCE):
            ASKS[asks](hurried)
        assert SECONDS <= time.monotonic() - begin < SECONDS + 10

    ASKS[asks](hurried)
    with hurried.connection() as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_a_verification_that_cannot_plan_its_work_ends_with_that_sentence(
    lake: Lake, database: Database, hurried: Database, database_url: str, archived: Archived
) -> None:
    """After it has seen the lake, which asks the archive for nothing."""
    archived({}, {"result": "failed"})
    export(lake, database)
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE queue_message_dead IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(PipelineError, match=SENTENCE):
            verify.run(lake=lake, database=hurried, say=lambda _line: None)

    assert 0 == verify.run(lake=lake, database=hurried, say=lambda _line: None).exit_code
