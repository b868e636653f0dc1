"""The base of every pipeline command: opens lake and database by the settings, starts Spark on demand, and prints the result."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from relay.cli.common.interrupts import interruptible
from relay.cli.common.output import show_fields, show_json
from relay.cli.common.support import complain, settings
from relay.errors import PipelineError, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from relay.pipeline.lake.delta_lake import Lake
    from relay.pipeline.source.database import Database

Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Where Spark runs, such as local[4] or k8s://…; by default Spark's own settings decide.")
]


class Workplace(NamedTuple):
    """The lake and the archive of one job."""

    lake: Lake
    database: Database

    def now(self) -> datetime:
        """The database's time."""
        found: datetime = self.database.one("read_now")[0]
        return found


@contextmanager
def workplace() -> Iterator[Workplace]:
    """The same as `_opened`, with signals handled: a signal ends the job cleanly, and then the process."""
    with interruptible(), _opened() as place:
        yield place


@contextmanager
def _opened() -> Iterator[Workplace]:
    """The lake and the database that this process's settings name.

    Raises:
        SettingsError: a setting is invalid, or RELAY_LAKE_URL is missing.
        PipelineError: the extra [pipeline] is not installed.
    """
    chosen = settings()
    if chosen.lake_url is None:
        raise SettingsError("RELAY_LAKE_URL is not set: name the folder or the object store that holds the lake, or shall hold it.")
    # Hides the table library's warnings about its first attempts. The library reads the variable when it is loaded. The job reports
    # failures itself.
    os.environ.setdefault("RUST_LOG", "off")
    try:
        from relay.pipeline.lake.delta_lake import Lake  # noqa: PLC0415 - as above
        from relay.pipeline.source.database import Database  # noqa: PLC0415 - only the pipeline's commands need it
    except ImportError as error:
        raise PipelineError(f"The pipeline is not installed ({error.name} is missing): pip install 'outbox-relay[pipeline]'.") from error
    with Database(
        chosen.pipeline_conninfo,
        schema=chosen.schema_name,
        replica=chosen.pipeline_replica,
        connections=chosen.pipeline_connections,
        snapshot_seconds=chosen.pipeline_snapshot_seconds,
    ) as database:
        yield Workplace(Lake(chosen.lake_url, chosen.lake_storage), database)


@contextmanager
def spark(job: str, master: str | None) -> Iterator[Callable[[], SparkSession]]:
    """A function that starts a Spark session on its first call, for the length of a job; a job without work needs no session.

    The call raises PipelineError if Spark does not start, for example without Java.
    """
    from relay.pipeline.spark.session import spark_session, started  # noqa: PLC0415 - as in workplace

    made: list[SparkSession] = []

    def start() -> SparkSession:
        if not made and not started():
            made.append(spark_session(f"outbox-relay {job}", master))
        return spark_session(f"outbox-relay {job}", master)

    try:
        yield start
    finally:
        for session in made:
            session.stop()


def say(line: str) -> None:
    """Print a line of progress to the error output."""
    complain(line)


def finish(result: Any, *, as_json: bool, words: Callable[[Any], str]) -> None:
    """Print the result of a job, and end with its exit code if it found a problem.

    A job that a signal may cut short calls this function within its `workplace`, where a signal ends the process.
    """
    if as_json:
        show_json(plain(result))
    else:
        fields = {
            name: value for name, value in plain(result).items() if name != "exit_code" and not isinstance(value, list | tuple | dict)
        }
        show_fields({name: round(value, 1) if isinstance(value, float) else value for name, value in fields.items()})
        typer.echo(words(result))
    if code := getattr(result, "exit_code", 0):
        raise typer.Exit(code)


def plain(result: Any) -> dict[str, Any]:
    """A result's fields by name, with its exit code."""
    fields = (
        dict(dataclasses.asdict(result)) if dataclasses.is_dataclass(result) and not isinstance(result, type) else dict(result._asdict())
    )
    return {**fields, "exit_code": getattr(result, "exit_code", 0)}
