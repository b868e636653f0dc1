"""`relay pipeline replay` and `reconcile`: send messages of the lake again, or compare them with what consumers received."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from relay.cli.common.archive_filters import FROM, Filter, Sending, Until, between
from relay.cli.common.arguments import Json
from relay.cli.common.output import count
from relay.cli.common.pipeline_context import Master, Workplace, finish, say, spark, workplace
from relay.cli.common.support import visible

if TYPE_CHECKING:
    from relay.pipeline.reconcile.job import Question
    from relay.pipeline.replay.selection import Selection


@dataclass(frozen=True, kw_only=True)
class LakeFilter(Filter):
    """A filter for the lake's messages: the options of `Filter`, with stars also in the exchange, and with ordering key and ids."""

    exchange: Annotated[str | None, typer.Option(help="Only messages of this exchange; * matches any characters.")] = None
    ordering_key: Annotated[str | None, typer.Option(help="Only messages with this ordering key.")] = None
    ids: Annotated[list[UUID] | None, typer.Option("--id", metavar="ID", help="Only this message; may be given several times.")] = None

    def selection(self, place: Workplace) -> Selection:
        """The filter as an argument of a job; lengths of time count from the database's time."""
        from relay.pipeline.replay.selection import Selection  # noqa: PLC0415 - see relay.cli.main

        since, until = self.between(place.now)
        return Selection(
            since=since,
            until=until,
            exchange=self.exchange,
            routing_key=self.routing_key,
            ordering_key=self.ordering_key,
            result=self.result_name,
            error_code=self.code,
            ids=tuple(str(each) for each in self.ids or ()),
        )


@dataclass(frozen=True, kw_only=True)
class ReconcileComparison:
    """What is compared, and how many lost or duplicated deliveries are allowed."""

    since: Annotated[str, FROM]
    until: Until = None
    receipts: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Receipts: a file or folder of Parquet, CSV or JSON lines; by default queue_message_receipt."),
    ] = None
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="EXCHANGE=QUEUE,…",
            help="Queues that must each get the exchange's messages; * means, for each message, every queue with receipts of messages that "
            "have its exchange and routing key.",
        ),
    ] = None
    grace: Annotated[
        int,
        typer.Option(min=0, metavar="SECONDS", help="A message without a receipt is pending, not lost, for this long after its confirm."),
    ] = 3600
    late: Annotated[
        int, typer.Option(min=0, metavar="SECONDS", help="A message received more than this many seconds after its confirm is late.")
    ] = 300
    most_lost: Annotated[int, typer.Option(min=0, help="Exit with code 5 if more messages than this are lost.")] = 0
    most_duplicated: Annotated[int, typer.Option(min=0, help="Exit with code 5 if more deliveries than this are duplicated.")] = 0
    no_receipts: Annotated[
        bool, typer.Option("--allow-no-receipts", help="Compare even if there is no receipt at all; every message then counts as lost.")
    ] = False

    def question(self, place: Workplace) -> Question:
        """The options as an argument of the job; lengths of time count from the database's time."""
        from relay.pipeline.reconcile.job import Question  # noqa: PLC0415 - see relay.cli.main

        since, until = between(place.now, self.since, self.until)
        assert since is not None, "the option is required"
        return Question(
            since=since,
            until=until,
            files=self.receipts,
            queues=tuple(self.queues or ()),
            grace=timedelta(seconds=self.grace),
            late=timedelta(seconds=self.late),
            most_lost=self.most_lost,
            most_duplicated=self.most_duplicated,
            may_lack_receipts=self.no_receipts,
        )


def replay(
    *,
    wanted: LakeFilter,
    job: Annotated[
        str | None,
        typer.Option(
            help="Name of the job; a job enqueues each message once, however often it runs. By default the name is derived from the filter."
        ),
    ] = None,
    sending: Sending,
    as_json: Json = False,
) -> None:
    """Enqueue messages of the lake again, including messages that PostgreSQL has dropped."""
    if job is None and not sending.dry_run and wanted.has_length:
        # The filter determines the job's name. A length of time changes the filter at each run, so a second run would send all the messages
        # again.
        raise typer.BadParameter(
            "A length is another time whenever this is run: name the job with --job, or give --from and --to as times."
        )
    with workplace() as place:
        from relay.pipeline.replay import job as work  # noqa: PLC0415 - see relay.cli.main

        selection = wanted.selection(place)
        done = work.run(lake=place.lake, database=place.database, say=say, selection=selection, job=job, **asdict(sending))
        finish(done, as_json=as_json, words=_replayed)


def reconcile(*, comparison: ReconcileComparison, master: Master = None, as_json: Json = False) -> None:
    """Compare published messages with the receipts of consumers; exit 5 if a message is lost or duplicated."""
    with workplace() as place:
        from relay.pipeline.reconcile import job as work  # noqa: PLC0415 - see relay.cli.main

        question = comparison.question(place)
        with spark("reconcile", master) as session:
            done = work.run(lake=place.lake, database=place.database, spark=session, say=say, question=question)
    finish(done, as_json=as_json, words=_reconciled)


def _replayed(done: Any) -> str:
    if done.dry_run:
        return f"{count(sum(each.messages for each in done.counts), 'message')} to enqueue"
    return f"{count(done.enqueued, 'message')} enqueued"


def _reconciled(done: Any) -> str:
    return "\n".join(
        f"{line.day} {visible(line.exchange) or '(default exchange)'}: {count(line.messages, 'message')}, {line.lost} lost, "
        f"{line.duplicated} duplicated, {line.late} late, {line.pending} pending"
        for line in done.lines
    )
