"""`relay pipeline`: exports the archive into the lake, and works on the lake. Each command is one job, for an operator or a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relay.cli.commands.pipeline_erase import erase
from relay.cli.commands.pipeline_history import reconcile, replay
from relay.cli.common.archive_filters import Span
from relay.cli.common.arguments import Json
from relay.cli.common.output import count
from relay.cli.common.pipeline_context import Master, Workplace, finish, say, spark, workplace
from relay.cli.common.pipeline_steps import run_steps, show_steps
from relay.cli.common.support import new_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = new_group(
    help="Copy the archive into a lake, count, report, verify, replay and reconcile; requires the package's extra named pipeline."
)

BatchRows = Annotated[int | None, typer.Option(min=1, metavar="ROWS", help="About this many rows in one commit.")]
Adopt = Annotated[
    bool,
    typer.Option(
        "--adopt",
        help="Let the lake follow this server, for example after a failover or a restore; rows that the lake already has are left out.",
    ),
]
NewLake = Annotated[
    bool, typer.Option("--new-lake", help="Begin a new lake: no day counts as verified until it has been compared with the new lake.")
]
Register = Annotated[bool, typer.Option("--register", help="From now on retention drops only days whose export was verified.")]
AddAgain = Annotated[
    list[datetime] | None,
    typer.Option(
        "--again",
        formats=["%Y-%m-%d"],
        metavar="DAY",
        help="Only add rows of this day that the lake lacks, such as rows restored by hand, and report other differences; exit 5 if there "
        "are any.",
    ),
]
Target = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="MS",
        help="Target latency: a message should be confirmed within this many milliseconds after it was due. Default: 1000.",
    ),
]
TopKeys = Annotated[
    int | None,
    typer.Option(min=1, metavar="KEYS", help="How many routing keys to name for each exchange and day; the others count as *other*."),
]
TopExchanges = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="How many exchanges to name for each day, those with the most messages; the others count as *other*. Default: 200.",
    ),
]


@app.command()
def export(
    *,
    batch_rows: BatchRows = None,
    adopt: Adopt = False,
    new_lake: NewLake = False,
    register: Register = False,
    again: AddAgain = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Copy messages archived since the last export into the lake, exactly once."""
    if again:
        if batch_rows or adopt or new_lake or register:
            raise typer.BadParameter("it goes with --master and --json alone: export first, then this.", param_hint="--again")
        _add_again(again, master=master, as_json=as_json)
        return
    with workplace() as place, spark("export", master) as session:
        result = _export(place, session, batch_rows=batch_rows, adopt=adopt, new_lake=new_lake, register=register)
        finish(result, as_json=as_json, words=_exported)


@app.command()
def metrics(
    *,
    target: Target = None,
    top_keys: TopKeys = None,
    top_exchanges: TopExchanges = None,
    again: Annotated[
        list[datetime] | None,
        typer.Option(formats=["%Y-%m-%d"], metavar="DAY", help="Compute this day again, for example after a change of --target."),
    ] = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Count the lake's messages by window, hour and day, and write the numbers to the lake and to PostgreSQL."""
    with workplace() as place, spark("metrics", master) as session:
        place.lake.opened("archive")  # fails if the lake's URL is wrong; otherwise the command would succeed without messages
        days = [day.date() for day in again or ()]
        result = _metrics(place, session, target_ms=target, top_keys=top_keys, top_exchanges=top_exchanges, again=days)
        finish(result, as_json=as_json, words=_computed)


@app.command()
def verify(
    *,
    again: Annotated[bool, typer.Option("--again", help="Also compare days that were verified before.")] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Compare each closed day with the lake, row by row if it differs; exit 5 if any day differs."""
    with workplace() as place, spark("verify", master) as session:
        result = _verify(place, session, again=again)
    finish(result, as_json=as_json, words=_verified)


@app.command()
def compact(
    *,
    vacuum_hours: Annotated[int, typer.Option(min=168, help="Remove files that left the table at least this many hours ago.")] = 168,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Merge the many small files of past days into few large ones, and remove files that no reader needs any more."""
    with workplace() as place, spark("compact", master) as session:
        from relay.pipeline.compact import job  # noqa: PLC0415 - see relay.cli.main

        result = job.run(lake=place.lake, database=place.database, say=say, spark=session, retention_hours=vacuum_hours)
        finish(result, as_json=as_json, words=_compacted)


@app.command()
def report(
    path: Annotated[Path, typer.Argument(help="The page to write.")] = Path("outbox-report.html"),
    *,
    span: Span,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page about the history: totals, latencies, errors, unacknowledged dead messages."""
    with workplace() as place, spark("report", master) as session:
        from relay.pipeline.report import job  # noqa: PLC0415 - see relay.cli.main

        since, until = span.between(place.now)
        place.lake.opened("archive")  # as in metrics
        result = job.run(lake=place.lake, database=place.database, say=say, path=path, spark=session, since=since, until=until)
    finish(result, as_json=as_json, words=lambda done: f"{done.path} was written")


@app.command()
def run(
    *,
    batch_rows: BatchRows = None,
    target: Target = None,
    top_keys: TopKeys = None,
    top_exchanges: TopExchanges = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Run export, metrics and verify, for a scheduler. Verify runs even if another step failed; metrics runs only after an export."""
    with workplace() as place, spark("run", master) as session:
        done, failed = run_steps(
            {
                "export": lambda: _export(place, session, batch_rows=batch_rows),
                "metrics": lambda: _metrics(place, session, target_ms=target, top_keys=top_keys, top_exchanges=top_exchanges),
                "verify": lambda: _verify(place, session),
            },
            # An export may be refused because the lake belongs to another database, whose numbers must not replace those of this one.
            needs={"metrics": "export"},
        )
        # Shown before Spark ends, because the end of Spark may fail as well.
        show_steps(done, failed, as_json=as_json, words={"export": _exported, "metrics": _computed, "verify": _verified})
    if code := done["verify"].exit_code:
        raise typer.Exit(code)


@app.command()
def demo(
    *,
    messages: Annotated[int, typer.Option(min=600, help="About how many messages are moved.")] = 3000,
    folder: Annotated[Path | None, typer.Option(help="Keep ledger, lake and report in this folder.")] = None,
    check: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Play nothing; only check what --folder has kept.")] = None,
) -> None:
    """Play the whole pipeline on private servers, over simulated days, and check that the sums of all parts agree."""
    from relay.demo.history import run as story  # noqa: PLC0415 - see relay.cli.main

    raise typer.Exit(story.check(check) if check else story.main(messages=messages, folder=folder))


@app.command()
def entry() -> None:
    """Print the path of the script for spark-submit."""
    from relay.cli import submit  # noqa: PLC0415 - see relay.cli.main

    typer.echo(str(Path(submit.__path__[0]) / "relay_pipeline.py"))


app.command()(erase)
app.command()(replay)
app.command()(reconcile)


def _export(place: Workplace, session: Callable[[], SparkSession], *, batch_rows: int | None, **options: bool) -> Any:
    from relay.pipeline.export import job, sizes  # noqa: PLC0415 - see relay.cli.main

    return job.run(lake=place.lake, database=place.database, spark=session, say=say, sizes=sizes.Sizes(batch_rows=batch_rows), **options)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given; for the others the job has defaults."""
    return {name: value for name, value in options.items() if value is not None}


def _add_again(days: Sequence[datetime], *, master: str | None, as_json: bool) -> None:
    """Add the rows of these days that the lake lacks."""
    with workplace() as place, spark("export", master) as session:
        from relay.pipeline.export import again as job  # noqa: PLC0415 - see relay.cli.main

        result = job.run(lake=place.lake, database=place.database, spark=session, say=say, days=[day.date() for day in days])
        finish(result, as_json=as_json, words=lambda done: f"{count(done.added, 'row')} added to {count(len(done.days), 'day')}")


def _metrics(place: Workplace, session: Callable[[], SparkSession], **options: Any) -> Any:
    from relay.pipeline.metrics import job  # noqa: PLC0415 - see relay.cli.main

    return job.run(lake=place.lake, database=place.database, spark=session, say=say, **_given(options))


def _verify(place: Workplace, session: Callable[[], SparkSession], *, again: bool = False) -> Any:
    from relay.pipeline.verify import job  # noqa: PLC0415 - see relay.cli.main

    return job.run(lake=place.lake, database=place.database, spark=session, say=say, again=again)


def _exported(done: Any) -> str:
    return f"{count(done.rows, 'row')} exported in {count(done.batches, 'batch', 'batches')}"


def _computed(done: Any) -> str:
    return f"{count(done.days, 'day')} computed, {count(done.windows, 'window')} written"


def _compacted(done: Any) -> str:
    return f"{count(len(done.days), 'day')} compacted, {count(done.removed, 'file')} removed"


def _verified(done: Any) -> str:
    return f"{count(len(done.partitions), 'partition')} compared, {count(len(done.differing), 'differs', 'differ')}"
