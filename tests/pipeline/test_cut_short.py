"""A conflict or a signal behind a commit: the job ends with the result of what it has done, and before any it has done nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from relay.errors import PipelineError
from relay.pipeline.lake import witness
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from tests.pipeline.batch_jobs import Compact, Erase, Export, Job, Metrics, Replay
from tests.pipeline.conftest import Archived
from tests.support.lake.contents import in_lake, in_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CAUSES = ("conflict", signal.SIGTERM, signal.SIGINT)


@pytest.fixture(params=[Export, Metrics, Compact, Erase, Replay], ids=lambda kind: kind.__name__.lower())
def job(
    request: pytest.FixtureRequest, lake: Lake, database_url: str, spark: SparkSession, archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> Job:
    """Each job, with its work."""
    made: Job = request.param(lake, database_url, spark, monkeypatch)
    made.arrange(archived)
    return made


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """SIGTERM interrupts as the command line lets it."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def cut(job: Job, cause: str | signal.Signals, batch: int, *, inside: bool = False) -> int:
    """Cut a job short in a batch; returns the exit code that this has."""

    def act() -> None:
        if isinstance(cause, signal.Signals):
            signal.raise_signal(cause)
        else:
            with Database(job.url) as other:
                job.overtake(other)

    job.at(batch, act, inside=inside)
    return 128 + cause if isinstance(cause, signal.Signals) else job.conflict


def check_rest(job: Job, database: Database) -> None:
    """The next run does what is left, and nothing twice."""
    job.patch.undo()
    before = job.there()
    assert (3 - before, 0) == (job.done(done := job.run(database)), done.exit_code)
    assert 3 == job.there()
    assert in_postgres(job.url) == in_lake(job.lake)
    assert 0 == job.done(job.run(database))


@pytest.mark.parametrize("cause", CAUSES, ids=str)
def test_the_first_batch_is_all_or_nothing(job: Job, database: Database, cause: str | signal.Signals) -> None:
    """Whatever comes before its commit ends the job as it always did."""
    code = cut(job, cause, 1)

    with pytest.raises((PipelineError, KeyboardInterrupt)) as caught:
        job.run(database)

    error = caught.value
    assert code == (error.exit_code if isinstance(error, PipelineError) else 128 + error.args[0])
    assert not any("cut short" in line for line in job.said)
    check_rest(job, database)


@pytest.mark.parametrize("cause", CAUSES, ids=str)
def test_a_later_batch_takes_nothing_from_the_result(job: Job, database: Database, cause: str | signal.Signals) -> None:
    """The result counts what is committed, says what cut the job short, and has the exit code of that."""
    code = cut(job, cause, 2)

    done = job.run(database)

    assert (1, code) == (job.done(done), done.exit_code)
    assert "was cut short: " in done.failure
    assert isinstance(cause, str) or done.failure.endswith(f": {cause.name} stopped it.")
    assert [done.failure] == [line for line in job.said if "cut short" in line]
    assert isinstance(cause, str) or 1 == job.there()
    check_rest(job, database)


def test_ctrl_c_in_a_notebook_is_a_signal_too(job: Job, database: Database) -> None:
    """Python's own handler raises without a number; what is committed is reported all the same."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cut(job, signal.SIGINT, 2)

    done = job.run(database)

    assert (1, 130) == (job.done(done), done.exit_code)
    assert str(done.failure).endswith(": SIGINT stopped it.")
    check_rest(job, database)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("cause", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_signal_while_something_is_committed_is_heard_behind_it(job: Job, database: Database, cause: signal.Signals, batch: int) -> None:
    """A commit that is there is counted."""
    cut(job, cause, batch, inside=True)

    done = job.run(database)

    assert (batch, batch, 128 + cause) == (job.done(done), job.there(), done.exit_code)
    check_rest(job, database)


@pytest.mark.parametrize("job", [Export], indirect=True)
def test_a_signal_during_the_look_behind_an_export_is_part_of_its_result(job: Job, database: Database) -> None:
    """All rows are in the lake then, but no look has shown whether each of its files is there."""
    job.patch.setattr(witness, "run_afterwards", lambda *_: signal.raise_signal(signal.SIGTERM))

    done = job.run(database)

    assert (3, "SIGTERM stopped it.", 128 + signal.SIGTERM) == (job.done(done), done.unseen, done.exit_code)
    assert (None, None, None) == (done.noted, done.registered, done.lag_seconds)
    check_rest(job, database)
