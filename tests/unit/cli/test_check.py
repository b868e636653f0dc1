"""What `relay check` thinks of a message, and whom it holds to have been passed over."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from relay.cli.queue_check.recheck import MAX_OF_GROUP, Recheck
from relay.cli.queue_check.rows import FAR, QueueRow, why_left, why_lost

NOW = 1_900_000_000.0
SINCE = datetime(2031, 1, 31, 12, tzinfo=UTC)
PLAIN = QueueRow(
    xid="700", seq=1, id="1", exchange="orders", ordering_key=None, attempts=0, available_at=None, lock_ends_at=None, locked_by=None,
    over=False, abandoned=False, foreign_id=False, lane=None, key_lane=None, lane_known=None, indexed=True, head=True, held=False,
    paused=False, limited=False, session=None, clock=NOW,
)  # fmt: skip
KEYED = replace(PLAIN, ordering_key="k", lane=3, key_lane=3, lane_known=True)


def messages(count: int, **changes: Any) -> list[QueueRow]:
    """Messages in claim order."""
    return [replace(PLAIN, seq=n, id=str(n), **changes) for n in range(1, count + 1)]


def passed_over(
    before: Collection[QueueRow], now: Collection[QueueRow], silent: Collection[str] = (), cancelled: Collection[str] = ()
) -> list[str]:
    """Ids of those that were passed over; whatever is gone and was not cancelled was claimed."""
    watch = Recheck()
    for row in before:
        watch.put(row)
    return [row.id for row in watch.passed_over({row.id: row for row in now}, silent, lambda ids: set(ids) - set(cancelled))]


@pytest.mark.parametrize(
    ("row", "state", "kind"),
    [
        (PLAIN, "claimable", "fresh"),
        (KEYED, "claimable", "key"),
        (replace(PLAIN, available_at=NOW), "claimable", "waiting"),
        (replace(PLAIN, locked_by=7), "claimable", "suspect"),
        (replace(PLAIN, limited=True), "claimable", None),
        (replace(PLAIN, available_at=NOW + 1), "waiting", None),
        (replace(PLAIN, paused=True), "paused", None),
        (replace(KEYED, head=False), "blocked", None),
        (replace(KEYED, held=True), "blocked", None),
        (replace(PLAIN, lock_ends_at=NOW + 1), "locked", None),
        (replace(PLAIN, lock_ends_at=NOW - 1, over=True), "locked", "lock"),
    ],
)
def test_a_message_stands_somewhere_and_waits_for_something(row: QueueRow, state: str, kind: str | None) -> None:
    """For a relay, or for a time, an operator or the message before it."""
    assert (state, kind) == (row.state, row.kind)
    assert why_lost(row) is None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (replace(PLAIN, foreign_id=True), "run `relay migrate`"),
        (replace(PLAIN, xid="0", seq=0), "before the start of every scan"),
        (replace(KEYED, lane=4), "its lane is 4, but its key has the lane 3"),
        (replace(KEYED, lane_known=False), "insert lane 3 there"),
        (replace(KEYED, indexed=False), "REINDEX"),
        (replace(PLAIN, available_at=NOW + FAR + 1), "it is to wait until"),
        (replace(PLAIN, lock_ends_at=float("inf")), "it is locked for ever"),
        (replace(PLAIN, lock_ends_at=NOW + 60, locked_by=7, abandoned=True), "by relay 7, which is not alive"),
    ],
)
def test_a_lost_message_has_a_reason(row: QueueRow, words: str) -> None:
    """One sentence that says what to do."""
    assert words in str(why_lost(row))


def test_a_message_that_was_left_has_a_reason() -> None:
    """The reason is the session that keeps it, or the time since which no relay has come for it."""
    assert "nothing has claimed it since 12:00:00Z: see `relay status`, else restart the relays and report this" == why_left(PLAIN, SINCE)
    assert why_left(replace(PLAIN, session=42), SINCE).startswith("session 42 (pg_stat_activity) keeps the row locked")
    assert why_left(replace(PLAIN, session=0), SINCE).startswith("a prepared transaction")


def test_where_nothing_was_claimed_all_were_passed_over() -> None:
    """But for those of an exchange that does not answer."""
    rows = messages(2)
    assert ["1", "2"] == passed_over(rows, rows)
    assert [] == passed_over(rows, rows, silent=["orders"])


def test_behind_the_last_claim_fresh_messages_wait_for_their_turn() -> None:
    """Before it they were passed over."""
    rows = messages(4)
    assert ["2"] == passed_over(rows, [rows[1], rows[3]])
    assert [] == passed_over(rows, [rows[1], rows[3]], cancelled=["3"])


def test_fresh_messages_of_an_exchange_may_have_those_of_others_in_front() -> None:
    """Of a long backlog of many exchanges: nothing of this one was claimed, and nothing behind it either."""
    front = [replace(row, id=f"a{row.id}", exchange="audit") for row in messages(3)]
    behind = [replace(row, id=f"b{row.id}", seq=row.seq + 100) for row in messages(3)]
    assert [] == passed_over([*front, *behind], behind)
    assert ["a1", "a2", "a3"] == passed_over([*front, *behind], front)


def test_of_waiting_messages_who_came_first_by_every_order_goes_first() -> None:
    """By its position and by its time; where only one of them is lower, either may go first."""
    rows = [replace(row, available_at=NOW - 10 + place) for row, place in zip(messages(3), (1, 0, 2), strict=True)]
    assert ["1", "2"] == passed_over(rows, rows[:2])
    assert [] == passed_over(rows, rows[:1] + rows[2:])


def test_of_a_long_line_without_an_order_nobody_is_passed_over_while_some_go() -> None:
    """There may be no room to remember them."""
    rows = messages(MAX_OF_GROUP + 1, available_at=NOW - 1)
    assert [] == passed_over(rows, rows[:-2])
    assert MAX_OF_GROUP == len(passed_over(rows, rows))


def test_suspects_wait_for_each_other() -> None:
    """They go one after the other, whatever their exchange."""
    rows = messages(3, locked_by=7)
    assert [] == passed_over(rows, rows[:2])
    assert ["1", "2", "3"] == passed_over(rows, rows)


def test_keys_of_different_lanes_pass_each_other() -> None:
    """Two relays may own them; within a lane the lower head goes first."""
    rows = [replace(KEYED, seq=n, id=str(n), ordering_key=f"k{n}", lane=lane, key_lane=lane) for n, lane in ((1, 1), (2, 2), (3, 2))]
    assert ["2"] == passed_over(rows, rows[:2])


def test_a_message_that_was_given_back_was_touched() -> None:
    """Its attempts are as before, its time is not."""
    [row] = messages(1)
    assert [] == passed_over([row], [replace(row, available_at=NOW)])


@pytest.mark.parametrize(
    ("count", "watched", "left_out"),
    [(MAX_OF_GROUP, True, 0), (MAX_OF_GROUP + 7, True, 7), (MAX_OF_GROUP + 7, False, MAX_OF_GROUP + 7)],
)
def test_what_nobody_can_judge_is_counted(count: int, left_out: int, *, watched: bool) -> None:
    """What has no room, or all where no relay could be watched; what waits for somebody is judged at the first look."""
    watch = Recheck()
    for row in (*messages(count), *messages(3, limited=True)):
        watch.put(row)
    assert left_out == watch.left_out(watched=watched)
