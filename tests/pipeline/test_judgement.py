"""What became of each message: archive and receipts in, expectations written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relay.pipeline.reconcile import classify
from relay.pipeline.reconcile.classify import judged, matched, unknown
from tests.pipeline.judgements import ARCHIVE, RECEIPTS, Message, at, message, rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
COUNTS = ("received", "lost", "pending", "duplicated", "late", "dead")
NONE = dict.fromkeys(COUNTS, 0)


def _frames(spark: SparkSession, messages: list[Message], receipts: Sequence[tuple[str, str, float]]) -> tuple[DataFrame, DataFrame]:
    received = [(id_, queue, at(second)) for id_, queue, second in receipts]
    return spark.createDataFrame(messages, ARCHIVE), spark.createDataFrame(received, RECEIPTS)


def outcome(
    spark: SparkSession, messages: list[Message], receipts: Sequence[tuple[str, str, float]], **given: Any
) -> tuple[dict[int, dict[str, int]], set[tuple[int, str | None]], set[str]]:
    """Counts that are not 0 by seq, missing queues by seq, and ids of unknown receipts."""
    pairs = matched(*_frames(spark, messages, receipts), rules(**given))
    rows = judged(pairs, rules(**given)).collect()
    counts = {row.seq: {name: row[name] for name in COUNTS if row[name]} for row in rows}
    missing = {(row.seq, queue) for row in rows for queue in row.missing}
    return counts, missing, {row.message_id for row in unknown(pairs, rules(**given)).collect()}


def test_a_message_is_lost_that_no_queue_got_and_doubled_that_one_got_twice(spark: SparkSession) -> None:
    """Several queues with one each are the exchange's fan-out."""
    messages = [message(1, "once"), message(2, "lost"), message(3, "twice"), message(4, "fanned"), message(5, "LETTERS")]
    receipts = [("once", "q", 2.5), ("twice", "q", 2), ("twice", "q", 9), ("twice", "r", 9), ("fanned", "q", 2), ("fanned", "r", 2)]

    counts, missing, strangers = outcome(spark, messages, [*receipts, ("letters", "q", 3)])

    assert {1: {"received": 1}, 2: {"lost": 1}, 3: {"received": 2, "duplicated": 1}, 4: {"received": 2}, 5: {"received": 1}} == counts
    assert {(2, None)} == missing
    assert set() == strangers


def test_named_queues_must_each_get_each_message(spark: SparkSession) -> None:
    """Of a named exchange only; what another queue got is no fault."""
    messages = [message(1, "a"), message(2, "b"), message(3, "c", exchange="audit"), message(4, "d")]
    receipts = [("a", "q", 2), ("a", "r", 2), ("b", "q", 2), ("b", "other", 2), ("c", "q", 2)]

    counts, missing, _ = outcome(spark, messages, receipts, queues={"orders": ["q", "r"]})

    assert {1: {"received": 2}, 2: {"received": 2, "lost": 1}, 3: {"received": 1}, 4: {"lost": 2}} == counts
    assert {(2, "r"), (4, "q"), (4, "r")} == missing


def test_queues_may_be_those_that_were_seen_with_the_routing_key(spark: SparkSession) -> None:
    """A key that no queue was seen with is owed to any one."""
    messages = [message(1, "a"), message(2, "b"), message(3, "c", key="other"), message(4, "d", key="third")]
    receipts = [("a", "q", 2), ("a", "r", 2), ("b", "q", 2), ("c", "s", 2)]

    counts, missing, _ = outcome(spark, messages, receipts, queues={"orders": ["*"]})

    assert {1: {"received": 2}, 2: {"received": 1, "lost": 1}, 3: {"received": 1}, 4: {"lost": 1}} == counts
    assert {(2, "r"), (4, None)} == missing


def test_a_receipt_belongs_to_the_last_message_of_its_id_before_it(spark: SparkSession) -> None:
    """A replay that keeps the id is another message, and so is one that its application repeats; an earlier attempt is the same message."""
    again = [message(2, "a", key="other", second=1000, replays="A"), message(4, "b", second=1000)]
    messages = [message(1, "a"), message(3, "b"), *again]
    receipts = [("a", "q", 1), ("a", "q", 1002), ("b", "q", 1), ("b", "q", 600)]

    counts, _, strangers = outcome(spark, messages, receipts)

    assert {1: {"received": 1}, 2: {"received": 1}, 3: {"received": 1, "duplicated": 1}, 4: {"lost": 1}} == counts
    assert set() == strangers


@pytest.mark.parametrize(("result", "theirs"), [("discarded", {}), ("failed", {}), ("success", {"received": 1})])
def test_a_message_that_took_the_id_of_another_takes_no_receipt(spark: SparkSession, result: str, theirs: dict[str, int]) -> None:
    """A producer sees ids of waiting messages and may reuse them; one that replays the id says so, and may be dead and received."""
    messages = [
        message(1, "a"),
        message(2, "a", exchange="elsewhere", second=1, result=result, replays="other"),
        message(3, "b", result="failed"),
    ]
    messages += [message(4, "b", second=1000, replays="b")]

    counts, missing, strangers = outcome(spark, messages, [("a", "q", 5), ("b", "q", 5), ("b", "q", 1002)])

    assert {1: {"received": 1}, 2: theirs, 3: {"dead": 1}, 4: {"received": 1}} == counts
    assert (set(), set()) == (missing, strangers)


@pytest.mark.parametrize("result", ["success", "failed"])
def test_of_a_crowd_with_one_id_the_first_take_receipts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, result: str) -> None:
    """Each receipt may be of each of them, so a producer that sends one id to ever new places would make a job of hours."""
    monkeypatch.setattr(classify, "CROWD", 3)
    messages = [message(seq, "a", key=str(seq), second=seq, result=result) for seq in range(1, 6)]
    pairs = matched(*_frames(spark, messages, [("a", "q", 100), ("a", "r", 101)]), rules())

    assert [(1, 2), (2, 2), (3, 2), (4, 1), (5, 1)] == sorted((row.seq, row["count"]) for row in pairs.groupBy("seq").count().collect())


def test_a_queue_that_got_another_message_of_the_id_is_owed_nothing(spark: SparkSession) -> None:
    """What it got may have been the message of another exchange."""
    messages = [message(1, "a"), message(2, "a", exchange="elsewhere"), message(3, "b")]
    receipts = [("a", "q", 2), ("a", "theirs", 2), ("b", "q", 2)]

    counts, missing, _ = outcome(spark, messages, receipts, queues={"orders": ["*"]})

    assert ({"received": 2}, {"received": 1}) == (counts[1], counts[3])
    assert set() == missing


def test_what_is_late_was_first_received_after_the_limit(spark: SparkSession) -> None:
    """Counted in each queue from the confirm; a second receipt is not late."""
    messages = [message(1, "a"), message(2, "b")]
    receipts = [("a", "q", 62), ("a", "r", 62.001), ("b", "q", 3), ("b", "q", 999)]

    counts, _, _ = outcome(spark, messages, receipts, late=timedelta(seconds=60))

    assert {1: {"received": 2, "late": 1}, 2: {"received": 1, "duplicated": 1}} == counts


def test_what_was_confirmed_just_now_is_pending(spark: SparkSession) -> None:
    """It may still come; and a receipt of just now may be of a message that is not exported yet."""
    messages = [message(1, "a"), message(2, "b", second=1)]
    receipts = [("x", "q", 2), ("y", "q", 3)]

    counts, _, strangers = outcome(spark, messages, receipts, as_of=at(62), grace=timedelta(seconds=60))

    assert {1: {"lost": 1}, 2: {"pending": 1}} == counts
    assert {"x"} == strangers


def test_a_dead_message_is_not_lost_but_told_if_it_was_received(spark: SparkSession) -> None:
    """Its outcome was not known when its attempts were used up."""
    messages = [message(1, "a", result="failed"), message(2, "b", result="lock_expired"), message(3, "c", result="discarded")]

    counts, missing, strangers = outcome(spark, messages, [("b", "q", 1), ("b", "q", 2)], queues={"orders": ["q"]})

    assert {1: {}, 2: {"dead": 1}, 3: {}} == counts
    assert (set(), set()) == (missing, strangers)


def test_only_the_time_asked_for_is_judged(spark: SparkSession) -> None:
    """Messages around it still own their receipts; a consumer's clock may be behind, but not by much."""
    messages = [message(1, "before", second=-10), message(2, "first", second=-3), message(3, "end", second=3597), message(4, "skewed")]
    receipts = [
        ("before", "q", 1),
        ("end", "q", 3599),
        ("skewed", "q", -59),
        ("stranger", "q", -1),
        ("stranger", "q", 3600),
        ("skewed", "q", -61),
    ]

    counts, _, strangers = outcome(spark, messages, receipts)

    assert {2: {"lost": 1}, 4: {"received": 1}} == counts
    assert set() == strangers
    assert {"stranger", "skewed"} == outcome(spark, messages, receipts, since=at(-3600))[2]
