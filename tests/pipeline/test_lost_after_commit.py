"""PostgreSQL is lost behind a commit to the lake: the job says what is there and what is not known, and the next run continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relay.errors import UnreachableError
from relay.pipeline.export import again
from relay.pipeline.export import job as export
from relay.pipeline.lake import epoch
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.epoch import offset_of
from relay.pipeline.metrics import job as metrics
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from tests.pipeline.conftest import Archived
from tests.pipeline.cutting import Cut, CuttingProxy, cutting_proxy
from tests.support.lake.adding import DAY
from tests.support.lake.contents import in_lake, in_postgres
from tests.support.relays.cli import Cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAY_AT = datetime.combine(DAY, time(12), UTC)
Armed = Callable[[Cut], None]


@dataclass(frozen=True)
class Jobs:
    """Jobs between the test's lake and its database, with what they said."""

    lake: Lake
    database: Database
    url: str
    spark: SparkSession
    said: list[str] = field(default_factory=list)

    def export(self, database: Database, **options: Any) -> export.Exported:
        """Export through a connection."""
        return export.run(lake=self.lake, database=database, spark=lambda: self.spark, say=self.said.append, **options)

    def again(self, database: Database) -> again.Added:
        """Add what the lake lacks of the day, through a connection."""
        return again.run(lake=self.lake, database=database, spark=lambda: self.spark, say=self.said.append, days=[DAY])

    def noted(self) -> bool:
        """Whether PostgreSQL knows how far the export is."""
        return epoch.read(self.database).offset == offset_of(self.lake.opened(TABLE))

    def whole(self) -> bool:
        """Whether the lake has each row of the archive once."""
        return in_postgres(self.url) == in_lake(self.lake)


@pytest.fixture
def jobs(lake: Lake, database: Database, database_url: str, spark: SparkSession) -> Jobs:
    """Jobs of this test."""
    return Jobs(lake, database, database_url, spark)


@pytest.fixture
def proxy(database_url: str) -> Iterator[CuttingProxy]:
    """Between the job and PostgreSQL."""
    with cutting_proxy(database_url) as made:
        yield made


@pytest.fixture
def through(proxy: CuttingProxy, database_url: str) -> Iterator[Database]:
    """The test's database through the proxy."""
    with Database(proxy.url(database_url)) as made:
        yield made


@pytest.fixture
def behind_commit(proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch) -> Armed:
    """Let the proxy break the connection at a statement behind the next commit of rows to the lake."""
    commit = Lake.commit

    def arm(cut: Cut) -> None:
        def commit_and_arm(*given: Any, **named: Any) -> None:
            commit(*given, **named)
            proxy.cut = cut

        monkeypatch.setattr(Lake, "commit", commit_and_arm)

    return arm


BEHIND = ("read_lag", "read_link", "commit_export", "register_export", "read_cluster", "read_turn", "note_seen", "read_registered")
"""Statements that an export asks behind its commit."""
WRITES = ("commit_export", "register_export", "note_seen")
CUTS = [(name, True, True) for name in BEHIND] + [(name, *how) for name in WRITES for how in ((True, False), (False, True), (False, False))]


def asked(database: Database, name: str) -> bytes:
    """The statement as it is sent, up to its first value."""
    return database.statement(name).split(b"%(")[0]


@pytest.mark.parametrize(("name", "answered", "away"), CUTS)
def test_an_export_says_what_it_has_committed_when_postgresql_is_lost(
    jobs: Jobs, archived: Archived, through: Database, behind_commit: Armed, proxy: CuttingProxy, name: str, *, answered: bool, away: bool
) -> None:
    """Whatever statement it is lost at; what the result says of PostgreSQL is so, or not known, and the next run has each row once."""
    archived({}, {})
    behind_commit(Cut(asked(through, name), answered=answered, away=away))

    done = jobs.export(through, register=True)

    assert proxy.broken
    assert (2, 1, 1, UnreachableError.exit_code) == (done.rows, done.files, done.batches, done.exit_code)
    assert "PostgreSQL does not answer" in str(done.failure or done.unseen)
    assert done.failure is None or "2 rows in 1 file are in the lake" in done.failure
    assert (done.failure or f"the lake was not seen after the commit: {done.unseen}") == jobs.said[-1]
    assert done.noted in {None, jobs.noted()}
    assert not away or done.registered is None
    proxy.cut = None
    archived({})
    after = jobs.export(jobs.database, register=True)
    assert (1, True, True, None, 0) == (after.rows, after.noted, after.registered, after.failure, after.exit_code)
    assert jobs.whole()


def test_an_export_that_has_committed_nothing_is_a_sentence(jobs: Jobs, archived: Archived, through: Database, proxy: CuttingProxy) -> None:
    """Lost before the commit, nothing is known but that."""
    archived({})
    jobs.export(jobs.database)
    archived({})
    proxy.cut = Cut(asked(through, "begin_export"), answered=True, away=True)

    with pytest.raises(UnreachableError):
        jobs.export(through)


@pytest.mark.parametrize("name", ["read_link", "commit_export", "note_seen"])
def test_a_day_that_is_added_again_says_what_it_has_committed(
    jobs: Jobs, archived: Archived, through: Database, behind_commit: Armed, name: str
) -> None:
    """Behind its commit a day may not be compared any more: it is named, and done when the command is run again."""
    archived({})
    jobs.export(jobs.database)
    archived({"archived_xid": "3"})
    behind_commit(Cut(asked(through, name), answered=True, away=True))

    done = jobs.again(through)

    finished = [] if done.unfinished else [DAY]
    assert (1, UnreachableError.exit_code, finished) == (done.added, done.exit_code, [one.day for one in done.days])
    assert (name == "note_seen") == bool(finished) == (done.failure is None)
    assert "PostgreSQL does not answer" in str(done.failure or done.unseen)
    assert done.failure is None or "1 row in 1 file is in the lake" in done.failure
    after = jobs.again(jobs.database)
    assert (0, 0, (), [None]) == (after.added, after.exit_code, after.unfinished, [one.difference for one in after.days])
    assert jobs.whole()


def test_a_day_of_which_only_damaged_files_were_removed_says_so(
    jobs: Jobs, archived: Archived, through: Database, behind_commit: Armed
) -> None:
    """They leave the table before their rows are taken from PostgreSQL again. The next run adds those."""
    archived({})
    jobs.export(jobs.database)
    [file] = Path(jobs.lake.place.url, TABLE).rglob("*.parquet")
    file.write_bytes(b"")
    behind_commit(Cut(asked(through, "read_link"), answered=True, away=True))

    done = jobs.again(through)

    assert (0, UnreachableError.exit_code, (DAY,)) == (done.added, done.exit_code, done.unfinished)
    assert "1 damaged file left the table, 0 rows in 0 files are in the lake" in str(done.failure)
    assert 1 == jobs.again(jobs.database).added
    assert jobs.whole()


BEHIND_METRICS = {"stage_stats": 1, "write_stats": 1, "count_stats": 2, "write_lake_days": 2}
"""Statements of the metrics once one of two days is done, and how many are done when the connection breaks there."""


@pytest.mark.parametrize(("name", "days"), BEHIND_METRICS.items())
def test_metrics_say_which_days_are_done_when_postgresql_is_lost(
    jobs: Jobs, archived: Archived, through: Database, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch, name: str, days: int
) -> None:
    """The result has the days that are in both places; the others stay due, and the next run counts them."""
    monkeypatch.setattr(metrics, "_ROWS_AT_ONCE", 1)
    archived(*({"archived_at": DAY_AT + timedelta(days=place)} for place in range(2)))
    jobs.export(jobs.database)
    cut = Cut(asked(through, name).split(b"@")[0], answered=True, away=True)
    spoken: list[str] = []

    def say(text: str) -> None:
        spoken.append(text)
        if len(spoken) == 2:
            proxy.cut = cut

    done = metrics.run(lake=jobs.lake, database=through, spark=lambda: jobs.spark, say=say)

    assert proxy.broken
    assert (days, days, UnreachableError.exit_code) == (done.days, done.messages, done.exit_code)
    assert done.failure == spoken[-1]
    assert f"the numbers of {days} day" in str(done.failure)
    proxy.cut = None
    after = metrics.run(lake=jobs.lake, database=jobs.database, spark=lambda: jobs.spark, say=spoken.append)
    assert (2 - days, None, 0) == (after.days, after.failure, after.exit_code)
    assert 0 == metrics.run(lake=jobs.lake, database=jobs.database, spark=lambda: jobs.spark, say=spoken.append).days


@pytest.fixture
def _lost(cli: Cli, jobs: Jobs, archived: Archived, through: Database, behind_commit: Armed, proxy: CuttingProxy) -> None:
    """Two rows to export by the command line, from a PostgreSQL that is lost behind the commit."""
    archived({}, {})
    behind_commit(Cut(asked(through, "commit_export"), answered=True, away=True))
    cli.env |= {"RELAY_LAKE_URL": jobs.lake.place.url, "RELAY_PIPELINE_DATABASE_URL": proxy.url(jobs.url)}


@pytest.mark.usefixtures("_lost")
def test_a_run_ends_with_an_export_that_was_cut_short(cli: Cli, jobs: Jobs) -> None:
    """The JSON has both the export's result and the failed step; no later step had a database, and the next run does all of it."""
    found = cli.json("pipeline", "run", code=4)

    assert ["export", "failed", "failures"] == list(found)
    assert (2, None, 4) == (found["export"]["rows"], found["export"]["noted"], found["export"]["exit_code"])
    assert {"step": "export", "error": found["export"]["failure"], "exit_code": 4} == found["failed"]
    cli.env["RELAY_PIPELINE_DATABASE_URL"] = jobs.url
    found = cli.json("pipeline", "run")
    assert (0, 1, None) == (found["export"]["rows"], found["metrics"]["days"], found["failed"])
    assert jobs.whole()


@pytest.mark.usefixtures("_lost")
def test_a_person_reads_once_why_a_run_was_cut_short(cli: Cli) -> None:
    """The export says it; the run adds the name of the step."""
    assert "2 rows exported in 1 batch\n" == cli("pipeline", "run", code=4)

    assert 1 == cli.stderr.count("was cut short: 2 rows in 1 file are in the lake")
    assert "export failed." == cli.stderr.splitlines()[-1]
