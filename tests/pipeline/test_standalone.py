"""The pipeline's jobs by `spark-submit` on a standalone cluster of two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay.devservers.process import poll
from relay.errors import PipelineError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.ranges import LEAST
from tests.pipeline.spark_cluster import WORKERS, SparkCluster, spark_cluster
from tests.pipeline.spark_packages import bare_python, packed
from tests.support.database.archives import insert_many
from tests.support.lake.contents import committed, in_lake, in_postgres
from tests.support.servers.logins import login

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = WORKERS * LEAST
"""Of one transaction: its parts, by `seq`, are tasks."""
HELD = """
    ALTER TABLE queue_message_archive ENABLE ROW LEVEL SECURITY;
    CREATE POLICY held ON queue_message_archive
        USING (current_query() NOT LIKE '{}' OR pg_advisory_xact_lock_shared(1) IS NOT NULL)
"""
"""Tasks that do not own the archive wait, by what they ask for, for as long as the test holds a lock."""
ALL = "COPY %"
LAST = f"COPY %= {WORKERS - 1}\n%"
WAITING = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY %' AND wait_event = 'advisory'
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """One for all tests."""
    with spark_cluster() as made:
        yield made


@pytest.fixture
def etl(database_url: str, lake: Lake) -> Iterator[dict[str, str]]:
    """The environment of a job that has the rights of the role `etl` alone."""
    with login(database_url, "queue_message_etl") as url:
        yield {"RELAY_DATABASE_URL": url, "RELAY_LAKE_URL": lake.place.url}


def archive(url: str) -> None:
    """Archive rows of one transaction."""
    with psycopg.connect(url) as connection:
        insert_many(connection, ROWS)


@contextmanager
def held(url: str, tasks: str) -> Iterator[Callable[[int], bool]]:
    """Let tasks wait; yield what says whether so many do."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(HELD.format(tasks).encode())
        connection.execute("SELECT pg_advisory_lock(1)")
        yield lambda count: connection.execute(WAITING).fetchone() == (count,)


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a job printed as JSON."""
    said, errors = process.communicate(timeout=240)
    assert 0 == process.returncode, f"{said} {errors}"
    # spark-submit writes what a job says on both its streams to one.
    found: dict[str, Any] = json.loads(said[said.index("{\n") :])
    return found


def test_all_jobs_run_with_executors_that_come_and_go(cluster: SparkCluster, etl: dict[str, str], database_url: str, lake: Lake) -> None:
    """Export, metrics and verification in one, with dynamic allocation; executors of both workers take part."""
    archive(database_url)

    done = ended(cluster.submit("run", "--json", env=etl, dynamicAllocation__enabled="true"))

    assert (ROWS, 1, 0) == (done["export"]["rows"], done["metrics"]["days"], done["verify"]["exit_code"])
    assert in_postgres(database_url) == in_lake(lake)
    assert WORKERS == len({event["Executor ID"] for event in cluster.events("SparkListenerExecutorAdded")})


@pytest.mark.long_only
def test_an_executor_that_dies_while_it_reads_costs_nothing(
    cluster: SparkCluster, etl: dict[str, str], database_url: str, lake: Lake
) -> None:
    """Spark gives its task to another, and each row is in the lake once."""
    archive(database_url)
    with held(database_url, ALL) as waiting:
        job = cluster.submit("export", "--json", env=etl)
        assert poll(lambda: waiting(WORKERS), seconds=120)
        os.kill(cluster.executors()[0], signal.SIGKILL)

    assert ROWS == ended(job)["rows"]
    assert in_postgres(database_url) == in_lake(lake)
    assert [] != [*cluster.events("SparkListenerExecutorRemoved")]


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that looks like an executor of another cluster on this machine."""
    words = ["org.apache.spark.executor.CoarseGrainedExecutorBackend", "--worker-url", "spark://Worker@127.0.0.9:1"]
    with subprocess.Popen([sys.executable, "-c", "input()", *words], stdin=subprocess.PIPE, text=True) as process:
        yield process.pid
        process.communicate("\n")


@pytest.mark.usefixtures("stranger")
def test_a_task_that_is_carried_out_twice_adds_its_rows_once(
    cluster: SparkCluster, etl: dict[str, str], database_url: str, lake: Lake
) -> None:
    """With speculation a slow task is begun again elsewhere; the table has one file a part, whatever the slower of the two wrote."""
    archive(database_url)
    early = {"speculation__interval": "50ms", "speculation__quantile": "0.25", "speculation__multiplier": "1.01"}
    with held(database_url, LAST) as waiting:
        job = cluster.submit("export", "--json", env=etl, speculation="true", speculation__minTaskRuntime="10ms", **early)
        assert poll(lambda: waiting(2), seconds=120)
        assert WORKERS == len(cluster.executors())

    assert ROWS == ended(job)["rows"]
    assert in_postgres(database_url) == in_lake(lake)
    assert any('"Speculative": true' in json.dumps(event) for event in cluster.events("SparkListenerTaskStart"))
    assert WORKERS == len(committed(lake))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of a cluster whose hosts have a Python, and none of the packages."""
    return {"pyspark__driver__python": sys.executable, "pyspark__python": str(bare_python(tmp_path_factory.mktemp("bare")))}


@pytest.mark.long_only
def test_executors_without_packages_get_them_by_an_archive(
    cluster: SparkCluster, etl: dict[str, str], bare: dict[str, str], database_url: str, lake: Lake, tmp_path: Path
) -> None:
    """Their own Python has none; the archive that the documentation describes holds them."""
    archive(database_url)
    packages = {"archives": f"{packed(tmp_path / 'packages.tar')}#packages", "executorEnv__PYTHONPATH": "packages"}

    done = ended(cluster.submit("run", "--json", env=etl, **bare, **packages))

    assert (ROWS, 1, 0) == (done["export"]["rows"], done["metrics"]["days"], done["verify"]["exit_code"])
    assert in_postgres(database_url) == in_lake(lake)


NO_PYTHON = {"pyspark__python": "/nonexistent/python"}


@pytest.mark.long_only
@pytest.mark.parametrize(
    ("more", "sentence"), [({}, "The executors' Python has no package pyarrow"), (NO_PYTHON, "There is no Python at /nonexistent/python")]
)
def test_a_python_that_does_not_fit_is_named(
    cluster: SparkCluster, etl: dict[str, str], bare: dict[str, str], database_url: str, more: dict[str, str], sentence: str
) -> None:
    """One sentence says what the executors lack."""
    archive(database_url)
    job = cluster.submit("export", env=etl, **{**bare, **more})

    said, _ = job.communicate(timeout=240)

    assert (PipelineError.exit_code, sentence) == (job.returncode, said[: len(sentence)])
