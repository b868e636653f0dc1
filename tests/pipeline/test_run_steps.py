"""`relay pipeline run` where a step fails: the others do their work, and their results are printed."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay.cli.common.pipeline_steps import run_steps
from relay.errors import LakeError, PipelineError, UnreachableError
from relay.pipeline.after_commit import CommitGuard
from relay.pipeline.lake.delta_lake import Lake
from tests.pipeline.conftest import Archived
from tests.support.relays.cli import Cli

WHEN = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
BREAK = {
    "export": "ALTER TABLE queue_message_export_position RENAME TO another_export_position",
    "metrics": "ALTER TABLE queue_message_stats_day RENAME TO another_stats_day",
    "verify": "ALTER TABLE queue_message_export RENAME TO another_export",
}
"""What makes each step fail, and not the others; without any export there is nothing to do for the others."""


@pytest.fixture
def pipeline(cli: Cli, lake: Lake, archived: Archived) -> Cli:
    """The command line, with the test's lake and two messages to export."""
    archived({"archived_at": WHEN}, {"archived_at": WHEN})
    cli.env["RELAY_LAKE_URL"] = lake.place.url
    return cli


def broken(url: str, step: str) -> None:
    """Take away a table that the step needs."""
    with psycopg.connect(url) as owner:
        owner.execute(BREAK[step].encode())


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("steps", "others"),
    [(["export", "verify"], []), (["metrics"], ["export", "verify"]), (["verify"], ["export", "metrics"]),
     (["metrics", "verify"], ["export"])],
)  # fmt: skip
def test_a_script_gets_the_results_beside_steps_that_fail(pipeline: Cli, database_url: str, steps: list[str], others: list[str]) -> None:
    """The JSON has the steps that were done, and all that failed with error and exit code; the command ends with the first one's."""
    for step in [step for step in steps if step == "export" or "export" not in steps]:
        broken(database_url, step)

    found = pipeline.json("pipeline", "run", code=PipelineError.exit_code)

    failed, failures = found.pop("failed"), found.pop("failures")
    assert (others, failures[0]) == (list(found), failed)
    assert [(step, PipelineError.exit_code) for step in steps] == [(one["step"], one["exit_code"]) for one in failures]
    assert "The schema is missing or too old" in failed["error"]
    assert [2] * len(others) == [done.get("rows", done.get("messages")) for done in found.values()]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_damaged_file_keeps_no_other_day_from_its_verification(pipeline: Cli, archived: Archived, lake: Lake) -> None:
    """The metrics that must read it end with their sentence, and the run with theirs; verify names the day, and verifies the other."""
    pipeline("pipeline", "export")
    [file] = Path(lake.place.url).glob("archive/day=*/*.parquet")
    file.unlink()
    archived({"archived_at": WHEN + timedelta(days=1)})

    found = pipeline.json("pipeline", "run", code=LakeError.exit_code)

    assert [found["failed"]] == found["failures"]
    assert "metrics" == found["failed"]["step"]
    assert file.name in found["failed"]["error"]
    states = {one["partition"][-8:]: one["state"] for one in found["verify"]["partitions"]}
    assert ("damaged", "verified") == (states["20200102"], states["20200103"])


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_person_reads_which_step_failed_and_what_was_done(pipeline: Cli, database_url: str) -> None:
    """The sentences of the steps that were done are the output; the last line of errors names the first that failed."""
    broken(database_url, "verify")

    assert "2 rows exported in 1 batch\n1 day computed, 1 window written\n" == pipeline("pipeline", "run", code=1)
    last = pipeline.stderr.splitlines()[-1]
    assert last.startswith("verify failed (export and metrics were done): The schema is missing or too old")

    broken(database_url, "metrics")
    pipeline("pipeline", "run", code=1)
    second, first = pipeline.stderr.splitlines()[-2:]
    assert second.startswith("verify failed: ")
    assert first.startswith("metrics failed (export was done): ")


def lost() -> Any:
    """A step without PostgreSQL."""
    raise UnreachableError("PostgreSQL does not answer.")


def test_a_step_does_not_run_without_the_result_that_it_needs() -> None:
    """The lake that an export is refused may belong to another database: its numbers would replace this one's."""
    done, failed = run_steps({"export": lost, "metrics": lambda: 1, "verify": lambda: 2}, needs={"metrics": "export"})
    assert ({"verify": 2}, ["export"]) == (done, [one.step for one in failed])
    done, _ = run_steps({"export": lambda: 0, "metrics": lambda: 1}, needs={"metrics": "export"})
    assert {"export": 0, "metrics": 1} == done


def test_the_steps_after_a_failure_run() -> None:
    """The failures are in order, each with its own exit code."""
    ran: list[str] = []

    done, failed = run_steps({"first": lambda: ran.append("first"), "second": lost, "third": lambda: ran.append("third"), "fourth": lost})

    assert (["first", "third"], ["first", "third"]) == (ran, list(done))
    assert [{"step": step, "error": "PostgreSQL does not answer.", "exit_code": 4} for step in ("second", "fourth")] == [
        one.plain() for one in failed
    ]


@dataclass
class CutShort:
    """The result of a step that ended early behind a commit."""

    exit_code: int
    failure: str = "It was cut short."


@pytest.mark.parametrize(("code", "after"), [(6, ["third"]), (130, []), (143, [])])
def test_a_step_that_was_cut_short_ends_the_run_if_it_was_a_signal(code: int, after: list[str]) -> None:
    """After one the process has little time left; after anything else the next step does its work."""
    done, failed = run_steps({"first": lost, "second": lambda: CutShort(code), "third": lambda: None})

    assert ["second", *after] == list(done)
    assert [("first", 4), ("second", code)] == [(one.step, one.exit_code) for one in failed]


def test_an_error_that_is_not_known_is_named_by_its_type_alone() -> None:
    """The text of a foreign error may hold a message's content."""

    def broken_step() -> Any:
        raise ZeroDivisionError("a secret")

    _, failed = run_steps({"export": broken_step})

    assert {"step": "export", "error": "An error that relay does not know (ZeroDivisionError).", "exit_code": 1} == failed[0].plain()


class Dying:
    """Ends as Spark's own blocks do where its JVM has got the signal too."""

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, *_: object) -> None:
        """The connection is gone."""
        raise ConnectionError


def hidden() -> Any:
    """A signal that only the context of an error tells of."""
    try:
        with Dying():
            raise KeyboardInterrupt(signal.SIGTERM)
    except ConnectionError as error:
        raise PipelineError("Spark could not run the job.") from error


def test_a_signal_behind_another_error_is_a_signal() -> None:
    """For the run's failed step, and for a job that it cuts short behind a commit."""
    done, failed = run_steps({"export": lambda: None, "metrics": hidden, "verify": lambda: None})
    guard = CommitGuard(committed=True)
    with guard.kept():
        hidden()

    assert ["export"] == list(done)
    assert [{"step": "metrics", "error": "SIGTERM stopped it.", "exit_code": 143}] == [one.plain() for one in failed]
    assert (True, 143) == (guard.stopped, guard.exit_code)
