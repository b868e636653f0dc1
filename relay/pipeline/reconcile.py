"""Reconciliation: what the archive says was published against what consumers say they received, by day and exchange.

There is one way, by Spark: two would have to agree on every rule, and where less would do the start of Spark is all that it costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from relay.errors import PipelineError
from relay.pipeline import judgement, receipts
from relay.pipeline.database import Database
from relay.pipeline.judgement import Rules
from relay.pipeline.lake import Lake
from relay.pipeline.lake_place import Place
from relay.pipeline.selection import Selection
from relay.pipeline.source import failure

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DIFFERS = 5
"""Exit code where more was lost or duplicated than is allowed."""
EXAMPLES = 20
"""Lost, duplicated and unknown ones that are named, each."""
MARGIN = timedelta(days=1)
"""How far around the time asked for receipts and messages are looked for: by so much may one be received before the other is archived."""
_ARCHIVE = ["xid", "seq", "id", "exchange", "routing_key", "result", "created_at", "claimed_at", "confirmed_at", "archived_at"]
_COUNTS = ("received", "lost", "pending", "duplicated", "late", "dead")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Line:
    """Messages of one day (UTC, of their archiving) and exchange, and what became of them.

    `messages` were published with success; the others count deliveries, a message in a queue, but for `dead`: messages that were received
    although they are archived as dead. `pending` may still come; `late` are among `received`.
    """

    day: date
    exchange: str
    messages: int
    received: int
    lost: int
    pending: int
    duplicated: int
    late: int
    dead: int


@dataclass(frozen=True)
class Example:
    """One finding: `lost`, `duplicated` or `unknown`; `queue` is None if no queue has got it; `at` is when it was archived or received."""

    kind: str
    id: str
    exchange: str | None
    queue: str | None
    at: datetime


@dataclass(frozen=True)
class Reconciled:
    """What was compared and how it came out: sums, then by day and exchange. `unknown` are receipts of no message."""

    since: datetime
    until: datetime
    messages: int
    received: int
    lost: int
    pending: int
    duplicated: int
    late: int
    dead: int
    unknown: int
    lines: tuple[Line, ...]
    unknown_days: tuple[tuple[date, int], ...]
    examples: tuple[Example, ...]
    most_lost: int
    most_duplicated: int
    seconds: float

    @property
    def exit_code(self) -> int:
        """5 if more was lost or duplicated than is allowed, else 0."""
        return DIFFERS if self.lost > self.most_lost or self.duplicated > self.most_duplicated else 0


def run(  # noqa: PLR0913 - each is an option of the command
    *,
    lake: Lake,
    database: Database,
    spark: Callable[[], SparkSession],
    say: Progress,
    since: datetime,
    until: datetime | None = None,
    files: str | None = None,
    queues: Iterable[str] = (),
    grace: timedelta = timedelta(hours=1),
    late: timedelta = timedelta(minutes=5),
    most_lost: int = 0,
    most_duplicated: int = 0,
) -> Reconciled:
    """Compare messages archived from `since` to before `until` (now) with the receipts of `queue_message_receipt`, or of `files`.

    A message with success that no queue has received is lost, and one that a queue has received twice is duplicated there. Where `queues`
    names an exchange, `orders=billing,mail` or `orders=*`, its messages must come to each of these queues, or to each that was seen with
    the same routing key; that needs bindings that stay the same. For files give an `until` up to which they are complete.

    Raises:
        PipelineError: an option makes no sense, or receipts cannot be read.
        LakeError: there is no archive in the lake.
        UnreachableError: PostgreSQL or the object store does not answer.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark only where it is used

    began = time.monotonic()
    (now,) = database.one("read_now")
    rules = Rules(since=since, until=until or now, as_of=now, queues=parse_queues(queues), grace=grace, late=late)
    _check(rules)
    say(f"comparing messages archived from {rules.since:%Y-%m-%d %H:%M} to {rules.until:%Y-%m-%d %H:%M}")
    try:
        session = spark()
        found = _received(lake, database, session, rules, files)
        pairs = judgement.matched(_archive(lake, session, rules), found, rules)
        return _result(pairs, rules, (most_lost, most_duplicated), began)
    except PySparkException as error:
        if (known := failure(error)) is not None:
            raise known from None
        raise PipelineError(f"Spark failed: {(str(error).splitlines() or [''])[0][:200]}.") from error


def parse_queues(words: Iterable[str]) -> dict[str, list[str]]:
    """Queues by exchange from `exchange=queue,queue` or `exchange=*`; PipelineError if one is not of that form."""
    found: dict[str, list[str]] = {}
    for word in words:
        exchange, equals, names = word.partition("=")
        queues = [name for name in names.split(",") if name]
        if not equals or not queues or exchange in found or (judgement.SEEN in queues and len(queues) > 1):
            raise PipelineError(f"The queues of an exchange are given once, as exchange=queue1,queue2 or exchange=*; this is {word!r}.")
        found[exchange] = list(dict.fromkeys(queues))
    return found


def _check(rules: Rules) -> None:
    Selection(since=rules.since, until=rules.until)
    if rules.since >= rules.until:
        raise PipelineError("The time to compare is empty: its end must be after its beginning.")
    if min(rules.grace, rules.late) < timedelta(0):
        raise PipelineError("Grace and the limit for late receipts must not be negative.")


def _archive(lake: Lake, spark: SparkSession, rules: Rules) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415

    around = Selection(since=rules.since - MARGIN, until=rules.until + MARGIN)
    rows = lake.dataframe(spark, "archive", days=around.days(lake.days("archive")), columns=_ARCHIVE)
    return rows.where((f.col("archived_at") >= f.lit(around.since)) & (f.col("archived_at") < f.lit(around.until)))


def _received(lake: Lake, database: Database, spark: SparkSession, rules: Rules, files: str | None) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415

    first = rules.since - MARGIN
    if files is None:
        return receipts.of_table(spark, database, since=first)
    return receipts.of_files(spark, Place.of(files, lake.place.options)).where(f.col("received_at") >= f.lit(first))


def _result(pairs: DataFrame, rules: Rules, allowed: tuple[int, int], began: float) -> Reconciled:
    from pyspark.sql import functions as f  # noqa: PLC0415

    messages, strangers = judgement.judged(pairs, rules).persist(), judgement.unknown(pairs, rules).persist()
    try:
        by_day = messages.groupBy(f.to_date("archived_at").alias("day"), "exchange")
        counts = [f.count_if(f.col("result") == "success").alias("messages"), *(f.sum(name).alias(name) for name in _COUNTS)]
        lines = [Line(**row.asDict()) for row in by_day.agg(*counts).orderBy("day", "exchange").collect()]
        days = strangers.groupBy(f.to_date("received_at").alias("day")).count().orderBy("day").collect()
        sums: dict[str, Any] = {name: sum(getattr(line, name) for line in lines) for name in ("messages", *_COUNTS)}
        return Reconciled(
            rules.since, rules.until, **sums, unknown=sum(row[1] for row in days), lines=tuple(lines),
            unknown_days=tuple((row[0], row[1]) for row in days), examples=tuple(_examples(messages, strangers)),
            most_lost=allowed[0], most_duplicated=allowed[1], seconds=time.monotonic() - began,
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
    """The oldest; times as numbers, because Spark hands them out in the zone of this machine."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return rows.orderBy(at, id_).limit(EXAMPLES).select(f.lit(kind), id_, exchange, "queue", f.unix_micros(at)).collect()
