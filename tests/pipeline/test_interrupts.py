"""Jobs that are interrupted: one line, the signal's exit code, a lake that is as it was or whole, and a next run that is right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from relay.devservers.process import poll
from relay.pipeline.export import job as export
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from relay.pipeline.source.partitions import ArchivePartition, PartitionRange
from relay.pipeline.source.ranges import BEYOND, RowRange
from relay.pipeline.verify import comparison
from relay.pipeline.verify import job as verify
from tests.support.database.archives import SETTLED, insert_many
from tests.support.lake import exporting
from tests.support.lake.contents import compare, strangers

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

Export = Callable[..., export.Exported]
ROWS = 20_000
SIGNALS = [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long_only)]


class Job:
    """`relay pipeline …` as a process group of its own; signals go to all of it, as those of a terminal do."""

    def __init__(self, url: str, lake: Lake, folder: Path) -> None:
        self._env = {**os.environ, "RELAY_DATABASE_URL": url, "RELAY_LAKE_URL": lake.place.url, "SPARK_MASTER": "local[2]"}
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a job, after the one before."""
        self.close()
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from relay.cli.main import main; main()", "pipeline", *words],
            cwd=self._folder, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        return self._process

    def read_until(self, words: str) -> None:
        """Read its progress up to a line with these words."""
        assert self._process is not None
        assert self._process.stderr is not None
        said = list[str]()
        for line in self._process.stderr:
            said.append(line)
            if words in line:
                return
        raise AssertionError(said)

    def interrupted(self, number: signal.Signals, *, progress: bool = False) -> str:
        """Send the signal; it ends with its exit code, and with one line on the error output, but for `progress`.

        Returns its output.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        os.killpg(self._process.pid, number)
        self._process.wait(timeout=60)
        errors = self._process.stderr.read()
        assert 128 + number == self._process.returncode, (self._process.returncode, errors)
        # A JVM that was still on its way ends once it has arrived; it has the output open until then.
        said = self._process.stdout.read()
        lines = errors.splitlines()
        line = f"Stopped by {number.name}: nothing half-done counts, and the next run continues from there."
        assert [line] == (lines[-1:] if progress else lines)
        return said

    def close(self) -> None:
        """End what still runs."""
        if self._process is None:
            return
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def job(database_url: str, lake: Lake, tmp_path: Path) -> Iterator[Job]:
    """Commands with this test's database and lake."""
    made = Job(database_url, lake, tmp_path)
    yield made
    made.close()


def fill(url: str) -> None:
    """Two days of rows."""
    for days in (0, 1):
        with psycopg.connect(url) as connection:
            insert_many(connection, ROWS // 2, archived_at=SETTLED + timedelta(days=days))


def waits(url: str, condition: str) -> None:
    """Until a statement of a job is in such a state."""
    asked = f"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND {condition})"
    with psycopg.connect(url, autocommit=True) as connection:
        poll(lambda: connection.execute(asked.encode()).fetchone() == (True,), seconds=120)


@pytest.mark.parametrize("number", SIGNALS)
def test_an_export_that_is_interrupted_while_rows_travel_goes_on_the_next_time(
    number: signal.Signals, job: Job, database_url: str, lake: Lake, exported: Export
) -> None:
    """What was committed stays and is the result, nothing else is read by anybody."""
    fill(database_url)
    job.start("export", "--batch-rows", "5000", "--json")
    job.read_until(" exported, ")
    waits(database_url, "state = 'active' AND query LIKE 'COPY %'")
    done = json.loads(job.interrupted(number))

    assert (lake.dataset("archive").count_rows(), 128 + number) == (done["rows"], done["exit_code"])
    assert done["failure"].endswith(f" the next run continues from there: {number.name} stopped it.")
    assert 0 == strangers(database_url, lake)
    exported()
    assert (ROWS, 0, 0, 0) == compare(database_url, lake)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_job_that_is_interrupted_while_spark_starts_has_done_nothing(
    number: signal.Signals, job: Job, database_url: str, lake: Lake
) -> None:
    """The table is not even made, and the JVM goes too."""
    fill(database_url)
    process = job.start("export")
    poll(lambda: javas(process.pid) != [], seconds=120)
    assert "" == job.interrupted(number)

    assert lake.open("archive") is None
    poll(lambda: javas(process.pid) == [], seconds=60)


def test_metrics_that_are_interrupted_are_counted_the_next_time(job: Job, database_url: str, exported: Export) -> None:
    """In mid-count, in Spark."""
    fill(database_url)
    exported()
    job.start("metrics")
    job.read_until("messages to count")
    assert "" == job.interrupted(signal.SIGINT)

    done = job.start("metrics")
    done.communicate(timeout=200)
    with psycopg.connect(database_url) as connection:
        [found] = connection.execute("SELECT sum(published)::int FROM queue_message_stats_day").fetchall()
    assert (0, (ROWS,)) == (done.returncode, found)


def test_a_run_that_is_interrupted_prints_the_steps_before(job: Job, database_url: str) -> None:
    """The export is done, and the metrics are named as what was stopped."""
    fill(database_url)
    job.start("run", "--json")
    job.read_until("messages to count")
    found = json.loads(job.interrupted(signal.SIGTERM))

    assert (["export", "failed", "failures"], ROWS) == (list(found), found["export"]["rows"])
    assert {"step": "metrics", "error": "SIGTERM stopped it.", "exit_code": 143} == found["failed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_replay_that_is_interrupted_says_what_it_has_enqueued(
    number: signal.Signals, job: Job, database_url: str, database: Database, lake: Lake
) -> None:
    """Its ledger has as many, and a result's sentence is printed for a person too."""
    fill(database_url)
    exporting.export(lake, database)
    with psycopg.connect(database_url, autocommit=True) as owner:
        job.start("replay", "--exchange", "exchange-1", "--job", "again", "--rate", "5")
        poll(lambda: owner.execute("SELECT count(*) > 2 FROM queue_message_replay_ledger").fetchone() == (True,), seconds=120)
        said = job.interrupted(number, progress=True).splitlines()
        [[enqueued]] = owner.execute("SELECT count(*) FROM queue_message_replay_ledger").fetchall()

    assert f"{enqueued} messages enqueued" == said[-1]
    [failure] = [line.removeprefix("failure").strip() for line in said if line.startswith("failure")]
    sentence = f"{enqueued} messages enqueued, and the next run continues from there: {number.name} stopped it."
    assert f"The replay was cut short: {sentence}" == failure


@pytest.mark.parametrize("number", SIGNALS)
def test_a_verification_that_is_interrupted_leaves_no_statement_behind(
    number: signal.Signals, job: Job, database_url: str, database: Database, lake: Lake
) -> None:
    """Nothing is verified, and PostgreSQL has nothing more to do for it."""
    fill(database_url)
    exporting.export(lake, database)
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE queue_message_archive_20240502 IN ACCESS EXCLUSIVE MODE")
        job.start("verify")
        waits(database_url, "wait_event_type = 'Lock'")
        assert "" == job.interrupted(number)
        waits(database_url, "NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")

    assert {"verified"} == {one.state for one in verify.run(lake=lake, database=database, say=lambda _line: None).partitions}


def javas(group: int) -> list[int]:
    """Java processes of a group."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_java(pid, group)]  # noqa: PTH208


def _is_java(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group and Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "java"
    except (OSError, UnicodeDecodeError):
        return False


def test_nobody_waits_for_postgresql_once_the_lakes_side_is_interrupted(
    database_url: str, database: Database, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides are added up at once; the statement that still runs is cancelled."""
    fill(database_url)
    exporting.export(lake, database)

    def interrupt(*_: object) -> None:
        waits(database_url, "wait_event_type = 'Lock'")
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "add_up", interrupt)
    made = comparison.Comparison(database.complete_conninfo("test"), "public", tuple(database.columns()), lake.place, seconds=60)
    day = ArchivePartition.of_day("queue_message_archive_20240502", (SETTLED + timedelta(days=1)).date())
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE queue_message_archive_20240502 IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(KeyboardInterrupt):
            made.compare(PartitionRange(day, RowRange(0, BEYOND)))
        waits(database_url, "NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
