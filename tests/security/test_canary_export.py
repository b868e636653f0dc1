"""The lake holds payloads by design; what the jobs around it say, Spark's own lines and a report's page included, holds none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from relay.pipeline.lake.delta_lake import Lake
from tests.support.database import archives
from tests.support.relays.canary import PASSWORD, PAYLOAD, silent
from tests.support.servers.logins import login

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

COMMAND = (sys.executable, "-c", "from relay.cli.main import main; main()", "pipeline")
DAY = ("--from", "2024-05-01T00:00:00Z", "--to", "2024-05-02T00:00:00Z")
TEXT = json.dumps({"secret": PAYLOAD})
ROWS: Sequence[archives.Row] = (
    {"content": TEXT, "options": json.dumps({"headers": {"x-secret": PAYLOAD}})},
    {"content": "{}", "body": PAYLOAD.encode()},
    {"content": TEXT, "result": "failed", "error_code": "nacked", "error_detail": "the broker refused it"},
    {"content": TEXT, "result": "failed", "options": json.dumps({"priority": PAYLOAD})},
)
MISCAST = """
    ALTER TABLE queue_message_archive ENABLE ROW LEVEL SECURITY;
    CREATE POLICY miscast ON queue_message_archive USING ((content ->> 'secret')::int > 0)
"""
"""A reader meets a value that is not a number, and PostgreSQL quotes it in its error message."""
UNPRINTABLE = """
    UPDATE queue_message_archive SET content = (SELECT to_jsonb(%s::text) || jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000))
    WHERE seq = 1
"""
"""A content that is little as it is stored, and more than a gigabyte as text."""
Job = Callable[..., str]


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection[object]]:
    """The database, with an archive of messages that hold the canary."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        with connection.transaction():
            archives.insert(connection, *ROWS)
        yield connection


@pytest.fixture
def job(database_url: str, database: psycopg.Connection[object], tmp_path: Path) -> Iterator[Job]:
    """Runs a job as a process of its own, for a login whose password is the canary; returns all that it wrote."""
    roles = ("queue_message_etl", "queue_message_replayer")
    with login(database_url, *roles, password=PASSWORD) as url:
        env = {**os.environ, "RELAY_PIPELINE_DATABASE_URL": url, "RELAY_LAKE_URL": str(tmp_path / "lake"), "SPARK_MASTER": "local[1]"}

        def run(*words: str, code: int = 0) -> str:
            done = subprocess.run([*COMMAND, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
            assert code == done.returncode, done.stderr
            return done.stdout + done.stderr

        yield run


def test_jobs_that_succeed_tell_of_no_payload(job: Job, database: psycopg.Connection[object], tmp_path: Path) -> None:
    """Export, numbers, verification, a report, and a replay of which two messages are refused; the lake has all that can be printed."""
    archives.insert_unprintable(database, PAYLOAD)
    told = [job("run", "--json"), job("report", "page.html", *DAY), (tmp_path / "page.html").read_text()]
    told += [job("verify", "--again"), job("replay", "--exchange", "orders", *DAY, code=1)]

    silent(*told)
    assert 2 == told[-1].count("was refused")
    rows = Lake(str(tmp_path / "lake")).opened("archive").to_pyarrow_table(columns=["content", "body"]).to_pylist()
    assert 1 == sum(row["content"] is None for row in rows)
    assert len(ROWS) == sum(PAYLOAD in f"{row['content']}{row['body']!r}" for row in rows)


@pytest.mark.parametrize(
    "spoil", [pytest.param(MISCAST, id="data exception"), pytest.param(UNPRINTABLE, id="unprintable", marks=pytest.mark.long_only)]
)
def test_an_export_that_fails_tells_of_no_payload(job: Job, database: psycopg.Connection[object], spoil: str) -> None:
    """Although PostgreSQL names the value in its error, and Spark the errors of all its workers."""
    with database.transaction():
        database.execute("SET LOCAL session_replication_role = replica")
        database.execute(spoil.encode(), [PAYLOAD] if "%s" in spoil else None)

    silent(said := job("export", code=1))
    assert "PostgreSQL" in said
