"""The commands of the pipeline: what they print for people and for scripts, how they refuse, and their exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from relay.pipeline.lake.delta_lake import Lake
from tests.pipeline.conftest import Archived
from tests.support.relays.cli import Cli

WHEN = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def pipeline(cli: Cli, lake: Lake) -> Cli:
    """The command line, with the test's lake."""
    cli.env["RELAY_LAKE_URL"] = lake.place.url
    return cli


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_scheduler_runs_export_metrics_and_verification_in_one(pipeline: Cli, archived: Archived) -> None:
    """`run` copies, counts and compares; run again with nothing new it changes nothing, and both end with exit code 0."""
    archived({"archived_at": WHEN}, {"archived_at": WHEN + timedelta(seconds=1)})

    first, second = pipeline.json("pipeline", "run"), pipeline.json("pipeline", "run")

    assert (2, 1, 0) == (first["export"]["rows"], first["metrics"]["days"], first["verify"]["exit_code"])
    assert (0, 0, 0) == (second["export"]["rows"], second["metrics"]["days"], second["verify"]["exit_code"])


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_difference_is_an_exit_code_and_a_line(pipeline: Cli, archived: Archived, database_url: str) -> None:
    """A row that is in PostgreSQL only makes `verify` and `run` end with exit code 5 and name the partition."""
    archived({"archived_at": WHEN}, {"archived_at": WHEN + timedelta(seconds=1)})
    pipeline("pipeline", "export")
    with psycopg.connect(database_url) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE queue_message_archive SET exchange = 'another' WHERE archived_at = '2020-01-02T03:04:05Z'")

    assert "1 differs" in pipeline("pipeline", "verify", code=5)
    assert "queue_message_archive_20200102" in pipeline.stderr
    found = pipeline.json("pipeline", "run", code=5)["verify"]
    assert ["different"] == [one["kind"] for day in found["partitions"] for one in day["findings"]]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_day_is_exported_again(pipeline: Cli, archived: Archived) -> None:
    """Missing rows are added. A row that still differs is exit code 5 and a line, and another option with it is wrong usage."""
    archived({"archived_at": WHEN})
    pipeline("pipeline", "export")
    archived({"archived_at": WHEN, "archived_xid": "3"})
    command = ("pipeline", "export", "--again", "2020-01-02")

    assert "1 row added to 1 day" in pipeline(*command)
    assert "2020-01-02: 1 row added; the lake has all 2 rows of PostgreSQL" in pipeline.stderr
    archived({"archived_at": WHEN, "archived_xid": "3", "expires_at": "infinity"})
    found = pipeline.json(*command, code=5)
    assert ["missing"] == [one["kind"] for day in found["days"] for one in day["findings"]]
    assert "2020-01-02 DIFFERS" in pipeline.stderr
    assert "export first, then this" in pipeline.refused(*command, "--adopt", code=2)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("command", ["metrics", "run"])
def test_so_many_exchanges_are_named_as_are_asked_for(pipeline: Cli, archived: Archived, database_url: str, command: str) -> None:
    """Those with the most messages of the day; none at all is wrong usage."""
    archived(*({"archived_at": WHEN, "exchange": name, "routing_key": "paid"} for name in "aaabbc"))
    pipeline("pipeline", "export")
    assert "--top-exchanges" in pipeline.refused("pipeline", command, "--top-exchanges", "0", code=2)

    pipeline("pipeline", command, "--top-exchanges", "1")

    with psycopg.connect(database_url) as connection:
        found = connection.execute("SELECT exchange, routing_key, published FROM queue_message_stats_day ORDER BY published").fetchall()
    assert [("a", "paid", 3), ("*other*", "*other*", 3)] == sorted(found, reverse=True)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_receipts_decide_about_reconciliation(pipeline: Cli, archived: Archived, database_url: str, tmp_path: Path) -> None:
    """Without any it is refused unless asked for, when everything is lost and the exit code is 5; with those of the consumers it is 0."""
    archived({"archived_at": WHEN, "exchange": "orders"})
    pipeline("pipeline", "export")
    with psycopg.connect(database_url) as connection:
        [id_] = connection.execute("SELECT id::text FROM queue_message_archive").fetchone() or ()
    receipts = tmp_path / "receipts.jsonl"
    receipts.write_text(json.dumps({"message_id": id_, "queue": "billing", "received_at": "2020-01-02T03:04:05Z"}) + "\n")

    command = ["pipeline", "reconcile", "--from", "2020-01-01T00:00:00Z"]
    assert "" == pipeline(*command, code=1)
    assert "There is no receipt" in pipeline.stderr
    lost = pipeline(*command, "--allow-no-receipts", code=5)
    found = pipeline(*command, "--receipts", str(receipts))

    assert "2020-01-02 orders: 1 message, 1 lost" in lost
    assert "2020-01-02 orders: 1 message, 0 lost" in found


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_replay_is_counted_then_done_once(pipeline: Cli, archived: Archived) -> None:
    """A dry run enqueues nothing, and keeps to the limit; the job enqueues, and does nothing when it is run again."""
    archived(*[{"archived_at": WHEN, "exchange": "orders"}] * 2)
    pipeline("pipeline", "export")
    filtered = ["pipeline", "replay", "--exchange", "orders", "--job", "monday"]

    assert "2 messages to enqueue" in pipeline(*filtered, "--dry-run")
    assert "1 message to enqueue" in pipeline(*filtered, "--dry-run", "--limit", "1")
    assert 2 == pipeline.json(*filtered)["enqueued"]
    assert (0, 2) == ((again := pipeline.json(*filtered))["enqueued"], again["done_before"])


@pytest.mark.parametrize("command", [["replay", "--job", "one"], ["reconcile"], ["report"]], ids=" ".join)
def test_a_time_in_which_nothing_can_lie_is_wrong_usage(pipeline: Cli, command: list[str]) -> None:
    """Whether by times or by lengths, before anything is read."""
    assert "Nothing matches: --from must be before --to" in pipeline.refused("pipeline", *command, "--from", "1h", "--to", "2h", code=2)


def test_a_replay_of_the_last_hour_needs_a_name(pipeline: Cli) -> None:
    """Its filter is another one in each run, so a second run would send everything twice; counting needs none."""
    assert "--job" in pipeline.refused("pipeline", "replay", "--from", "1h", code=2)
    assert "relay pipeline export" in pipeline.refused("pipeline", "replay", "--from", "1h", "--job", "hour", code=1)
    assert "relay pipeline export" in pipeline.refused("pipeline", "replay", "--from", "1h", "--dry-run", code=1)


def test_a_missing_lake_is_a_sentence(cli: Cli) -> None:
    """Without RELAY_LAKE_URL every command says what to set, with exit code 2."""
    assert "RELAY_LAKE_URL" in cli.refused("pipeline", "verify", code=2)


def test_a_lake_without_rows_yet_says_what_to_run(pipeline: Cli) -> None:
    """Before the first export, or with a mistyped URL, a job that reads the lake says what to run first."""
    for job in ("verify", "metrics", "report", "compact"):
        assert "relay pipeline export" in pipeline.refused("pipeline", job, code=1)


def test_a_database_that_is_away_is_a_sentence_without_its_password(pipeline: Cli) -> None:
    """A wrong database URL ends with exit code 4 and one sentence that does not repeat the URL."""
    url = "postgresql://someone:hush-hush@127.0.0.1:1/none"

    for command in (["export"], ["replay", "--job", "one", "--from", "1d"], ["reconcile", "--from", "1d"]):
        sentence = pipeline.refused("pipeline", *command, code=4, RELAY_PIPELINE_DATABASE_URL=url)
        assert "RELAY_PIPELINE_DATABASE_URL" in sentence
        assert "hush-hush" not in sentence


def test_without_the_extra_the_sentence_says_what_to_install(tmp_path: Path) -> None:
    """Where the extra is not installed the pipeline says so, and every other command works."""
    hidden = "import sys; sys.modules['pyarrow'] = None; sys.modules['deltalake'] = None; sys.modules['pyspark'] = None"
    code = f"{hidden}; from relay.cli.main import main; main()"
    env = {**os.environ, "RELAY_LAKE_URL": str(tmp_path)}

    refused = subprocess.run([sys.executable, "-c", code, "pipeline", "verify"], env=env, capture_output=True, text=True, check=False)
    version = subprocess.run([sys.executable, "-c", code, "--version"], env=env, capture_output=True, text=True, check=True)

    assert 1 == refused.returncode
    assert "pip install 'outbox-relay[pipeline]'" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert version.stdout.startswith("outbox-relay")


def test_no_java_is_a_sentence(pipeline: Cli, tmp_path: Path) -> None:
    """A job that needs Spark says which Java to install where there is none; lake and archive stay untouched."""
    env = {**pipeline.env, "PATH": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "relay", "pipeline", "export"]

    refused = subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert 1 == refused.returncode, refused.stderr
    assert "JAVA_HOME" in refused.stderr
    assert 1 == refused.stderr.count("\n")
    assert not Path(pipeline.env["RELAY_LAKE_URL"]).exists()


@pytest.mark.spark
@pytest.mark.slow
def test_spark_submit_runs_the_same_job(pipeline: Cli, archived: Archived) -> None:
    """The script that `relay pipeline entry` names does under spark-submit what the command does, and ends with its exit code."""
    archived({"archived_at": WHEN})
    script = pipeline("pipeline", "entry").strip()
    submit = Path(sys.executable).parent / "spark-submit"
    env = {**os.environ, **pipeline.env, "PYSPARK_PYTHON": sys.executable}
    command = [str(submit), "--master", "local[1]", "--conf", "spark.ui.enabled=false", script]

    done = subprocess.run([*command, "export", "--json"], env=env, capture_output=True, text=True, check=False)
    refused = subprocess.run([*command, "replay"], env=env, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stderr[-2000:]
    # spark-submit hands on the standard error of a Python program as standard output.
    assert 1 == json.loads(done.stdout[done.stdout.index("{") :])["rows"]
    assert 1 == refused.returncode
