"""Very many messages of one id: judged by the same rules as few, and in about the time of as many ids."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from relay.pipeline.reconcile import classify
from relay.pipeline.reconcile.classify import judged, matched
from tests.pipeline.judgements import ARCHIVE, NOON, RECEIPTS, Message, at, message, rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MANY = 20_000
FAR = message(0, "", second=1e9)
Receipt = tuple[str, str, float]


def _messages(chance: random.Random, *, places: int) -> list[Message]:
    """Messages of two ids at some places: sent, dead, repeated, replayed, and several at the same time."""
    results = chance.choice([["success"], ["failed"], ["success", "failed"]])
    found = []
    for seq in range(chance.randrange(1, 40)):
        id_ = chance.choice("ab")
        result, key, replays = chance.choice(results), str(chance.randrange(places)), id_.upper() if chance.random() < 0.1 else None
        found.append(message(seq, id_, key=key, result=result, second=chance.randrange(0, 1000, 50), replays=replays))
    return found


def _taken(messages: list[Message], receipts: list[Receipt], crowd: int) -> set[tuple[int, str]]:
    """Message and queue of each pair, by the rules in plain words."""
    pairs = set()
    for id_ in {row[2] for row in messages}:
        mine = sorted((row for row in messages if row[2] == id_), key=lambda row: (row[6], row[1]))
        originals = [row for row in mine if row[10] is None]
        first = ([row for row in originals if row[5] == "success"] or originals)[:crowd]
        for number, row in enumerate(mine):
            later = [other for other in mine[number + 1 :] if other[10] or (other[4] == row[4] and other[5] == "success")]
            takes = row in first or row[10] is not None
            begin, end = (other[6] - timedelta(minutes=1) for other in (row, later[0] if later else FAR))
            pairs |= {(row[1], queue) for name, queue, second in receipts if takes and name == id_ and begin <= at(second) < end}
    return pairs


@pytest.mark.parametrize("seed", range(12))
def test_each_receipt_goes_to_the_messages_that_plain_rules_name(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Many messages of one id, at one place or several, share its receipts as the rules say, whatever their order and results."""
    monkeypatch.setattr(classify, "CROWD", 5)
    chance = random.Random(seed)
    messages = _messages(chance, places=chance.choice([1, 3, 30]))
    receipts: list[Receipt] = [(chance.choice("ab"), str(number), chance.randrange(-100, 1100)) for number in range(60)]
    received = [(id_, queue, at(second)) for id_, queue, second in receipts]
    pairs = matched(spark.createDataFrame(messages, ARCHIVE), spark.createDataFrame(received, RECEIPTS), rules()).collect()

    assert _taken(messages, receipts, 5) == {(row.seq, row.queue) for row in pairs if row.id is not None and row.queue is not None}
    assert {row[1] for row in messages} == {row.seq for row in pairs if row.id is not None}
    assert {queue for _, queue, _ in receipts} == {row.queue for row in pairs if row.queue is not None}


@pytest.mark.parametrize("key", ["'k'", "CAST(id AS string)"], ids=["one place", "places of their own"])
def test_very_many_messages_of_one_id_take_little_longer_than_others(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """A producer that reuses its id makes no comparison of each message with each other, nor with each receipt."""
    monkeypatch.setattr(classify, "CROWD", 10)
    one = "IF(id < 0, 'b', 'a')"  # a constant would be joined in another way
    _seconds(spark, 10, one, key)

    apart, together = _seconds(spark, MANY, "CAST(id AS string)", key), _seconds(spark, MANY, one, key)

    assert together < 5 * apart


def _seconds(spark: SparkSession, count: int, id_: str, key: str) -> float:
    """How long a judgement of so many messages with a receipt each takes."""
    then = f"timestamp_millis({int(NOON.timestamp() * 1000)} + id)"
    times = ", ".join(f"{then} AS {name}" for name in ("created_at", "claimed_at", "confirmed_at", "archived_at"))
    archive = f"SELECT id AS xid, id AS seq, {id_} AS id, 'orders' AS exchange, {key} AS routing_key, 'success' AS result, {times}"
    messages = spark.sql(f"{archive}, CAST(NULL AS string) AS replay_of, false AS copied FROM range({count})")
    receipts = spark.sql(f"SELECT {id_} AS message_id, 'q' AS queue, {then} AS received_at FROM range({count})")
    began = time.monotonic()
    judged(matched(messages, receipts, rules()), rules()).groupBy().sum("received", "lost", "duplicated").collect()
    return time.monotonic() - began
