"""`relay pipeline replay` and `reconcile`: what the lake remembers, sent again, or held against what consumers received."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import typer

from relay.cli.output import count
from relay.cli.support import LENGTH, visible
from relay.cli.types import Json, SameId
from relay.cli.workplace import Master, Since, Until, finish, say, spark, when, workplace
from relay.message import Result

Begin = Annotated[str, typer.Option("--from", metavar="TIME", help="Archived from this time on: 2031-01-31T12:00:00Z, or 90s, 2h, 7d ago.")]


def replay(  # noqa: PLR0913 - each is an option of the command
    *,
    job: Annotated[
        str | None, typer.Option(help="Name of the job; a job enqueues each message once, however often it runs. By default the filter.")
    ] = None,
    since: Since = None,
    until: Until = None,
    exchange: Annotated[str | None, typer.Option(help="Only of this exchange; * stands for any characters.")] = None,
    routing_key: Annotated[str | None, typer.Option(help="Only with this routing key; * stands for any characters.")] = None,
    ordering_key: Annotated[str | None, typer.Option(help="Only with this ordering key.")] = None,
    result: Annotated[Result | None, typer.Option(metavar="RESULT", help="Only with this result.")] = None,
    code: Annotated[str | None, typer.Option(help="Only with this error code.")] = None,
    ids: Annotated[list[UUID] | None, typer.Option("--id", metavar="ID", help="Only this message; may be given several times.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.01, help="At most so many a second.")] = None,
    same_id: SameId = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    as_json: Json = False,
) -> None:
    """Enqueue messages of the lake again, also those that PostgreSQL has dropped."""
    if job is None and not dry_run and any(LENGTH.fullmatch(text) for text in (since, until) if text):
        # The filter is the job, and this one is another whenever it is run: a second run would send everything twice.
        raise typer.BadParameter(
            "A length is another time whenever this is run: name the job with --job, or give --from and --to as times."
        )
    with workplace() as place:
        from relay.pipeline import replay as work  # noqa: PLC0415 - see relay.cli.main
        from relay.pipeline.selection import Selection  # noqa: PLC0415 - as above

        selection = Selection(
            since=when(place, since, "--from"),
            until=when(place, until, "--to"),
            exchange=exchange,
            routing_key=routing_key,
            ordering_key=ordering_key,
            result=result.value if result else None,
            error_code=code,
            ids=tuple(str(each) for each in ids or ()),
        )
        done = work.run(
            lake=place.lake,
            database=place.database,
            say=say,
            selection=selection,
            job=job,
            rate=rate,
            limit=limit,
            dry_run=dry_run,
            same_id=same_id,
        )
    finish(
        done,
        as_json=as_json,
        words=lambda it: f"{count(it.left if dry_run else it.enqueued, 'message')} {'to enqueue' if dry_run else 'enqueued'}",
    )


def reconcile(  # noqa: PLR0913 - each is an option of the command
    *,
    since: Begin,
    until: Until = None,
    receipts: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Receipts: a file or folder of Parquet, CSV or JSON lines; by default queue_message_receipt."),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="EXCHANGE=QUEUE,…", help="Queues that must get its messages, or * for those seen with the key."),
    ] = None,
    grace: Annotated[int, typer.Option(min=0, metavar="SECONDS", help="A message may still come so long after it was archived.")] = 3600,
    late: Annotated[int, typer.Option(min=0, metavar="SECONDS", help="Received so long after its confirm, a message is late.")] = 300,
    most_lost: Annotated[int, typer.Option(min=0, help="More lost messages than these end with exit code 5.")] = 0,
    most_duplicated: Annotated[int, typer.Option(min=0, help="More duplicated deliveries than these end with exit code 5.")] = 0,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Hold what was published against what consumers say they received; exit 5 if something is lost or duplicated."""
    with workplace() as place:
        from relay.pipeline import reconcile as work  # noqa: PLC0415 - see relay.cli.main

        begin = when(place, since, "--from")
        assert begin is not None, "the option is required"
        end = when(place, until, "--to")
        with spark("reconcile", master) as session:
            done = work.run(
                lake=place.lake,
                database=place.database,
                spark=session,
                say=say,
                since=begin,
                until=end,
                files=receipts,
                queues=queues or (),
                grace=timedelta(seconds=grace),
                late=timedelta(seconds=late),
                most_lost=most_lost,
                most_duplicated=most_duplicated,
            )
    finish(done, as_json=as_json, words=_reconciled)


def _reconciled(done: Any) -> str:
    return "\n".join(
        f"{line.day} {visible(line.exchange) or '(default exchange)'}: {count(line.messages, 'message')}, {line.lost} lost, "
        f"{line.duplicated} duplicated, {line.late} late, {line.pending} pending"
        for line in done.lines
    )
