"""`relay pipeline run` where a later step fails: the steps before it have done their work, and their results are printed."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from relay.cli.common.pipeline_steps import run_steps
from relay.errors import PipelineError, UnreachableError
from relay.pipeline.lake.after_commit import CommitGuard
from relay.pipeline.lake.delta_lake import Lake
from tests.pipeline.conftest import Archived
from tests.support.relays.cli import Cli

WHEN = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
BREAK = {
    "export": "ALTER TABLE queue_message_export_position RENAME TO another_export_position",
    "metrics": "ALTER TABLE queue_message_stats_day RENAME TO another_stats_day",
    "verify": "ALTER TABLE queue_message_export RENAME TO another_export",
}
"""What makes each step fail, and the steps before it not."""


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
@pytest.mark.parametrize(("step", "before"), [("export", []), ("metrics", ["export"]), ("verify", ["export", "metrics"])])
def test_a_script_gets_the_results_before_a_step_that_fails(pipeline: Cli, database_url: str, step: str, before: list[str]) -> None:
    """The JSON has the steps that were done and the failed one with its error and exit code, which the command ends with."""
    broken(database_url, step)

    found = pipeline.json("pipeline", "run", code=PipelineError.exit_code)

    failed = found.pop("failed")
    assert before == list(found)
    assert (step, PipelineError.exit_code) == (failed["step"], failed["exit_code"])
    assert "The schema is missing or too old" in failed["error"]
    assert [2] * len(before) == [done.get("rows", done.get("messages")) for done in found.values()]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_person_reads_which_step_failed_and_what_was_done_before(pipeline: Cli, database_url: str) -> None:
    """The sentences of the steps that were done are the output; the last line of errors names the failed step."""
    broken(database_url, "verify")

    assert "2 rows exported in 1 batch\n1 day computed, 1 window written\n" == pipeline("pipeline", "run", code=1)

    last = pipeline.stderr.splitlines()[-1]
    assert last.startswith("verify failed after export and metrics were done: The schema is missing or too old")


def test_the_steps_after_a_failure_do_not_run() -> None:
    """A failed step ends the run with its own exit code."""
    ran: list[str] = []

    def lost() -> Any:
        ran.append("second")
        raise UnreachableError("PostgreSQL does not answer.")

    done, failed = run_steps({"first": lambda: ran.append("first"), "second": lost, "third": lambda: ran.append("third")})

    assert (["first", "second"], ["first"]) == (ran, list(done))
    assert failed is not None
    assert {"step": "second", "error": "PostgreSQL does not answer.", "exit_code": 4} == failed.plain()


def test_an_error_that_is_not_known_is_named_by_its_type_alone() -> None:
    """The text of a foreign error may hold a message's content."""

    def broken_step() -> Any:
        raise ZeroDivisionError("a secret")

    _, failed = run_steps({"export": broken_step})

    assert failed is not None
    assert {"step": "export", "error": "An error that relay does not know (ZeroDivisionError).", "exit_code": 1} == failed.plain()


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
    _, failed = run_steps({"export": lambda: None, "metrics": hidden})
    guard = CommitGuard(committed=True)
    with guard.kept():
        hidden()

    assert failed is not None
    assert {"step": "metrics", "error": "SIGTERM stopped it.", "exit_code": 143} == failed.plain()
    assert (True, 143) == (guard.stopped, guard.exit_code)
