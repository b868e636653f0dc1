"""Reconciliation: compares what the archive says was published with what consumers say they received, by day and exchange.

There is one implementation, in Spark. A second one would have to agree on every rule, and for little data Spark costs only its start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from relay.errors import PipelineError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.spark_reader import check_named
from relay.pipeline.lake.target_table import refuse_foreign
from relay.pipeline.reconcile import classify, receipts
from relay.pipeline.reconcile.classify import Rules
from relay.pipeline.replay.selection import Selection
from relay.pipeline.source.database import Database
from relay.pipeline.spark.tasks import failure

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DIFFERS = 5
"""Exit code if more was lost or duplicated than is allowed."""
EXAMPLES = 20
"""How many examples of each kind are named: lost messages, duplicated messages and unknown receipts."""
MARGIN = timedelta(days=1)
"""How far outside the given time receipts and messages are read. A receipt may be written this long before its message is archived."""
_ARCHIVE = ["xid", "seq", "id", "exchange", "routing_key", "result", "created_at", "claimed_at", "confirmed_at", "archived_at",
            "replay_of"]  # fmt: skip
_COPIES = ("$.CC", "$.cc", "$.BCC", "$.bcc", "$.headers.CC", "$.headers.BCC")
"""Options by which the broker also sends a message to other routing keys. They are read only if queues are found by sight."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is compared, and how many lost or duplicated deliveries are allowed.

    A published message is lost if no queue has received it, and duplicated in a queue that has received it twice. `queues` may set a
    stricter rule for an exchange. With `orders=billing,mail`, each message of `orders` must reach both queues. With `orders=*`, it must
    reach each queue in which messages of the same routing key were seen; this requires bindings that do not change.

    Args:
        since: messages archived at this time or later.
        until: messages archived before this time; by default now. For files, give a time up to which the files are complete.
        files: a file or folder with the receipts; by default the receipts of `queue_message_receipt` are used.
        queues: see above.
        grace: for this long after its confirm a message without a receipt is pending, not lost.
        late: a message that was received more than this after its confirm is late.
        most_lost: if more deliveries than this are lost, the exit code is 5.
        most_duplicated: if more deliveries than this are duplicated, the exit code is 5.
        may_lack_receipts: compare even if there is no receipt at all. By default this is an error, because almost always the place is
            wrong.
    """

    since: datetime
    until: datetime | None = None
    files: str | None = None
    queues: tuple[str, ...] = ()
    grace: timedelta = timedelta(hours=1)
    late: timedelta = timedelta(minutes=5)
    most_lost: int = 0
    most_duplicated: int = 0
    may_lack_receipts: bool = False

    def rules(self, now: datetime) -> Rules:
        """The rules for messages and receipts; PipelineError if the question makes no sense."""
        rules = Rules(
            since=self.since, until=self.until or now, as_of=now, queues=parse_queues(self.queues), grace=self.grace, late=self.late
        )
        Selection(since=rules.since, until=rules.until)
        if rules.since >= rules.until:
            raise PipelineError("The time to compare is empty: its end must be after its beginning.")
        if min(rules.grace, rules.late) < timedelta(0):
            raise PipelineError("Grace and the limit for late receipts must not be negative.")
        return rules


@dataclass(frozen=True)
class ReconcileCounts:
    """What became of messages.

    `messages` were published with success; `dead` messages were received although they are archived as dead. The other fields count
    deliveries; a delivery is a message in a queue. `pending` deliveries may still come. `late` deliveries are also counted in `received`.
    """

    messages: int
    received: int
    lost: int
    pending: int
    duplicated: int
    late: int
    dead: int


@dataclass(frozen=True)
class _Group:
    day: date
    exchange: str


@dataclass(frozen=True)
class ReconciledLine(ReconcileCounts, _Group):
    """Messages of one exchange and one day (UTC) on which they were archived; the fields of the last base class come first."""


@dataclass(frozen=True)
class Example:
    """One finding of the kind `lost`, `duplicated` or `unknown`; `at` is when it was archived or received.

    `queue` is None for a duplicated message, and for a lost message that any queue could have received.
    """

    kind: str
    id: str
    exchange: str | None
    queue: str | None
    at: datetime


@dataclass(frozen=True)
class _Time:
    since: datetime
    until: datetime


@dataclass(frozen=True)
class Reconciled(ReconcileCounts, _Time):
    """What was compared, and the result: sums, then counts by day and exchange. `unknown` counts receipts that belong to no message."""

    unknown: int
    lines: tuple[ReconciledLine, ...]
    unknown_days: tuple[tuple[date, int], ...]
    examples: tuple[Example, ...]
    most_lost: int
    most_duplicated: int
    seconds: float

    @property
    def exit_code(self) -> int:
        """5 if more was lost or duplicated than is allowed, else 0."""
        return DIFFERS if self.lost > self.most_lost or self.duplicated > self.most_duplicated else 0


_SUMS = [field.name for field in fields(ReconcileCounts)]


def run(*, lake: Lake, database: Database, spark: Callable[[], SparkSession], say: Progress, question: Question) -> Reconciled:
    """Compare messages in the lake with the receipts of consumers.

    Raises:
        PipelineError: the question makes no sense, there are no receipts, or they cannot be read.
        LakeError: the lake has no archive.
        UnreachableError: PostgreSQL or the object store does not answer.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark only where it is used
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    began = time.monotonic()
    refuse_foreign(lake, database)
    rules = question.rules(*database.one("read_now"))
    say(f"comparing messages archived from {rules.since:%Y-%m-%d %H:%M} to {rules.until:%Y-%m-%d %H:%M}")
    try:
        session = spark()
        archive = _archive(lake, session, rules)
        pairs = classify.matched(archive, _received(lake, database, session, question), rules)
        return _result(pairs, rules, question, began)
    except (PySparkException, Py4JError) as error:
        if (known := failure(error)) is not None:
            raise known from None
        check_named(lake.place, "archive", str(error))
        raise PipelineError(f"Spark failed: {(str(error).splitlines() or [''])[0][:200]}.") from error


def parse_queues(words: Iterable[str]) -> dict[str, list[str]]:
    """Queues by exchange from `exchange=queue,queue` or `exchange=*`; raises PipelineError for a word of another form."""
    found: dict[str, list[str]] = {}
    for word in words:
        exchange, equals, names = word.partition("=")
        queues = [name for name in names.split(",") if name]
        if not equals or not queues or exchange in found or (classify.SEEN in queues and len(queues) > 1):
            raise PipelineError(f"The queues of an exchange are given once, as exchange=queue1,queue2 or exchange=*; this is {word!r}.")
        found[exchange] = list(dict.fromkeys(queues))
    return found


def _archive(lake: Lake, spark: SparkSession, rules: Rules) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415

    around = Selection(since=rules.since - MARGIN, until=rules.until + MARGIN)
    options = ["options"] if rules.by_sight else []
    rows = lake.dataframe(spark, "archive", days=around.days(lake.days("archive")), columns=[*_ARCHIVE, *options])
    copies = (f.get_json_object(name, path).isNotNull() for name in options for path in _COPIES)
    copied = reduce(or_, copies, f.lit(False))  # noqa: FBT003 - a value
    mine = (f.col("archived_at") >= f.lit(around.since)) & (f.col("archived_at") < f.lit(around.until))
    return rows.where(mine).withColumn("copied", copied).drop(*options)


def _received(lake: Lake, database: Database, spark: SparkSession, question: Question) -> DataFrame:
    first = question.since - MARGIN
    if question.files is None:
        found = receipts.of_table(spark, database, since=first)
    else:
        found = receipts.of_files(spark, replace(LakeLocation.of(question.files, lake.place.options), setting="--receipts"), since=first)
    if found is None and not question.may_lack_receipts:
        raise PipelineError(
            f"There is no receipt from {first:%Y-%m-%d %H:%M} on in {question.files or 'queue_message_receipt'}, so every message would "
            "count as lost: correct --receipts or --from, or say --allow-no-receipts."
        )
    return found if found is not None else receipts.none(spark)


def _result(pairs: DataFrame, rules: Rules, question: Question, began: float) -> Reconciled:
    from pyspark.sql import functions as f  # noqa: PLC0415

    messages, strangers = classify.judged(pairs, rules).persist(), classify.unknown(pairs, rules).persist()
    try:
        by_day = messages.groupBy(f.to_date("archived_at").alias("day"), "exchange")
        counts = [f.count_if(f.col("result") == "success").alias("messages"), *(f.sum(name).alias(name) for name in _SUMS[1:])]
        lines = [ReconciledLine(**row.asDict()) for row in by_day.agg(*counts).orderBy("day", "exchange").collect()]
        days = strangers.groupBy(f.to_date("received_at").alias("day")).count().orderBy("day").collect()
        sums: dict[str, Any] = {name: sum(getattr(line, name) for line in lines) for name in _SUMS}
        return Reconciled(
            rules.since, rules.until, **sums, unknown=sum(row[1] for row in days), lines=tuple(lines),
            unknown_days=tuple((row[0], row[1]) for row in days), examples=tuple(_examples(messages, strangers)),
            most_lost=question.most_lost, most_duplicated=question.most_duplicated, seconds=time.monotonic() - began,
        )  # fmt: skip
    finally:
        messages.unpersist()
        strangers.unpersist()


def _examples(messages: DataFrame, strangers: DataFrame) -> list[Example]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    nothing = f.lit(None).cast("string")
    found = [
        *_first("lost", messages.where("lost > 0").withColumn("queue", f.explode("missing")), "id", f.col("exchange"), "archived_at"),
        *_first("duplicated", messages.where("duplicated > 0").withColumn("queue", nothing), "id", f.col("exchange"), "archived_at"),
        *_first("unknown", strangers, "message_id", nothing, "received_at"),
    ]
    return [Example(kind, id_, exchange, queue, _EPOCH + timedelta(microseconds=at)) for kind, id_, exchange, queue, at in found]


def _first(kind: str, rows: DataFrame, id_: str, exchange: Column, at: str) -> Iterable[Any]:
    """The oldest findings of a kind, with times as numbers, because Spark would return them in this machine's time zone."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return rows.orderBy(at, id_).limit(EXAMPLES).select(f.lit(kind), id_, exchange, "queue", f.unix_micros(at)).collect()
