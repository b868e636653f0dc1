"""Judges what became of each published message. Archive and receipts come in as DataFrames, judged messages go out. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SEEN = "*"
"""Means all queues in which messages of the same exchange and routing key were seen; used in place of names of queues."""
CROWD = 1000
"""How many messages may share an id and its receipts. The number is bounded because each receipt is compared with all of them."""
_MESSAGE = ["xid", "seq", "id", "exchange", "routing_key", "result", "archived_at", "confirmed_at"]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules by which messages are judged.

    Args:
        since: messages archived, and unknown receipts received, from this time on.
        until: messages archived, and unknown receipts received, before this time.
        as_of: when the receipts were read.
        queues: for an exchange, the queues that must each get all its messages, or `*`. For an exchange that is not named here, each
            message must reach at least one queue.
        grace: a missing message that was confirmed within this time before `as_of` is pending, not lost.
        late: a message is late in a queue if it was received more than this time after its confirm.
        skew: how far a consumer's clock may be behind PostgreSQL's.
    """

    since: datetime
    until: datetime
    as_of: datetime
    queues: Mapping[str, Sequence[str]] = field(default_factory=dict)
    grace: timedelta = timedelta(hours=1)
    late: timedelta = timedelta(minutes=5)
    skew: timedelta = timedelta(minutes=1)

    @property
    def by_sight(self) -> list[str]:
        """Exchanges whose messages must reach all queues in which such messages were seen."""
        return [exchange for exchange, names in self.queues.items() if list(names) == [SEEN]]


def matched(archive: DataFrame, receipts: DataFrame, rules: Rules) -> DataFrame:
    """The full outer join of receipts and their messages: a receipt without a message and a message without a receipt are kept, with nulls.

    Several messages may have one id. A replay may keep the id, and an application may send an id to the same exchange and routing key
    again. Then a receipt belongs to the last of these messages that was enqueued before the receipt. A message's time begins when it was
    enqueued, not at its confirm: an earlier attempt whose outcome is unknown may also have been received. A producer may use the same id
    for another exchange or routing key. Then a receipt counts for each of these messages that was sent, and not for the others. Of more
    than CROWD such messages, only the first get receipts.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - Spark only where it is used

    begin = f.least("created_at", "claimed_at", "archived_at") - _length(rules.skew)
    messages = archive.withColumn("id", f.lower("id")).withColumn("confirmed_at", f.coalesce("confirmed_at", "archived_at"))
    again = f.coalesce(f.lower("replay_of") == f.col("id"), f.lit(False))  # noqa: FBT003 - a value
    messages = _with_ends(messages.select(*_MESSAGE, "copied", begin.alias("begins_at"), again.alias("again")))
    mine = (
        (f.col("message_id") == f.col("taking"))
        & (f.col("received_at") >= f.col("begins_at"))
        & (f.col("ends_at").isNull() | (f.col("received_at") < f.col("ends_at")))
    )
    return receipts.join(messages, mine, "full_outer")


def _with_ends(messages: DataFrame) -> DataFrame:
    """The messages with the time at which each ends; `alone`: no other message was sent with the id, and CC or BCC sent no copy.

    `taking` is the id whose receipts a message gets, or null. A join ignores nulls, so messages beyond CROWD cost nothing.
    """
    from pyspark.sql import Window  # noqa: PLC0415 - Spark only where it is used
    from pyspark.sql import functions as f  # noqa: PLC0415

    # Sorted from the last row to the first. In the other order Spark would add up all following rows again for each row.
    order = [f.desc(name) for name in ("begins_at", "archived_at", "xid", "seq")]
    same_id = Window.partitionBy("id")
    later = same_id.orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    same_place = Window.partitionBy("id", "exchange", "routing_key").orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    success = f.col("result") == "success"
    replayed = f.min(f.when(f.col("again"), f.col("begins_at"))).over(later)
    repeated = f.min(f.when(success, f.col("begins_at"))).over(same_place)
    sent = f.count_if(~f.col("again") & success).over(same_id)
    originals = f.count_if(~f.col("again"))
    sent_until_now = sent - f.count_if(~f.col("again") & success).over(later)
    all_until_now = originals.over(same_id) - originals.over(later)
    counts = f.col("again") | (success & (sent_until_now <= CROWD)) | ((sent == 0) & (all_until_now <= CROWD))
    return messages.select(
        *_MESSAGE,
        "begins_at",
        f.least(replayed, repeated).alias("ends_at"),
        f.when(counts, f.col("id")).alias("taking"),
        ((sent <= 1) & ~f.col("copied")).alias("alone"),
    )


def judged(pairs: DataFrame, rules: Rules) -> DataFrame:
    """Messages of the given time, each with counts and with the queues in which it is `missing` (null if any queue would do).

    The numbers `received`, `lost`, `pending`, `duplicated` and `late` count deliveries; a delivery is a message in a queue. `dead` is 1 if
    the message was received although it is dead.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    messages, queues = _received(pairs, rules)
    success = f.col("result") == "success"
    over = f.col("confirmed_at") + _length(rules.grace) <= f.lit(rules.as_of)
    nowhere = f.when(f.col("received") == 0, f.array(f.lit(None).cast("string"))).otherwise(f.array().cast("array<string>"))
    missing = f.when(f.col("owed").isNotNull(), f.array_except("owed", "got")).otherwise(nowhere)
    found = _with_owed(messages, queues, rules).withColumn("missing", f.when(success, missing).otherwise(f.array().cast("array<string>")))
    return found.select(
        *_MESSAGE,
        "missing",
        _if(success, f.col("received"), "received"),
        _if(over, f.size("missing"), "lost"),
        _if(~over, f.size("missing"), "pending"),
        _if(success, f.col("twice"), "duplicated"),
        _if(success, f.col("behind"), "late"),
        _if(~success & (f.col("received") > 0), f.lit(1), "dead"),
    )


def unknown(pairs: DataFrame, rules: Rules) -> DataFrame:
    """Receipts of the given time that belong to no message.

    The latest receipts are left out, because their messages may not be exported yet.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    at = f.col("received_at")
    mine = (at >= f.lit(rules.since)) & (at < f.lit(rules.until)) & (at + _length(rules.grace) <= f.lit(rules.as_of))
    return pairs.where(f.col("id").isNull() & mine).select("message_id", "queue", "received_at")


def _received(pairs: DataFrame, rules: Rules) -> tuple[DataFrame, DataFrame]:
    """Messages of the given time with counts of their receipts; and one row for each message and queue, for all the time that was read."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    mine = (f.col("archived_at") >= f.lit(rules.since)) & (f.col("archived_at") < f.lit(rules.until))
    grouped = pairs.where(f.col("id").isNotNull()).groupBy(*_MESSAGE, "alone", "queue")
    queues = grouped.agg(f.count("received_at").alias("receipts"), f.min("received_at").alias("first_at"))
    late = f.col("first_at") > f.col("confirmed_at") + _length(rules.late)
    messages = (
        queues.where(mine)
        .groupBy(*_MESSAGE)
        .agg(
            f.collect_set("queue").alias("got"),
            f.count("queue").alias("received"),
            f.count_if(f.col("receipts") > 1).alias("twice"),
            f.count_if(late).alias("behind"),
        )
    )
    return messages, queues


def _with_owed(messages: DataFrame, queues: DataFrame, rules: Rules) -> DataFrame:
    """The messages with the queues that must get each of them (`owed`); null if any queue will do."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    owed = f.lit(None).cast("array<string>")
    for exchange, names in rules.queues.items():
        if exchange not in rules.by_sight:
            owed = f.when(f.col("exchange") == exchange, f.array(*map(f.lit, names))).otherwise(owed)
    if not rules.by_sight:
        return messages.withColumn("owed", owed)
    mine = f.col("exchange").isin(rules.by_sight) & f.col("queue").isNotNull() & (f.col("result") == "success") & f.col("alone")
    seen = queues.where(mine)
    seen = seen.groupBy("exchange", "routing_key").agg(f.collect_set("queue").alias("seen"))
    return messages.join(seen, ["exchange", "routing_key"], "left").withColumn("owed", f.coalesce(owed, "seen"))


def _if(condition: Column, value: Column, name: str) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.when(condition, value).otherwise(0).cast("long").alias(name)


def _length(time: timedelta) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.lit(time)
