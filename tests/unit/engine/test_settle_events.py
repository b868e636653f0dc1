"""What a settled portion tells: counts, lost locks, dead messages."""

from __future__ import annotations

import pytest

from relay.engine.settle_events import events_of
from relay.events import BatchSettled, LockLost, MessageDead
from relay.message import SUCCESS, Archive, GiveBack, Keep, Outcome, Result, Retry
from relay.ports import SettleResult
from tests.support.fakes.adapters import a_claim, a_portion

DEAD = Archive(Result.FAILED, "nack", "No.")
OUTCOMES: list[Outcome] = [
    SUCCESS, SUCCESS, DEAD, Retry(1.0, "a", "b"), GiveBack("a", "b"), Keep(), Archive(Result.DISCARDED, "x"),
    Archive(Result.SUCCESS, "no-route"),
]  # fmt: skip


def test_outcomes_are_counted_by_word() -> None:
    """A success that was accepted with a remark is one; discarded on purpose is not dead."""
    portion = a_portion([a_claim(id=f"m{n}") for n in range(8)])

    settled, dead = events_of(SettleResult(portion, OUTCOMES, []), 0.25)

    counts = {"success": 3, "failed": 1, "retry": 1, "released": 1, "kept": 1, "discarded": 1}
    assert BatchSettled(8, 0.25, counts, 0.5) == settled
    assert MessageDead("m2", "failed", "nack", "No.", "orders") == dead


def test_what_was_taken_over_is_lost_and_nothing_else() -> None:
    """Neither delivered nor dead: another relay decides about it."""
    portion = a_portion([a_claim(id="a"), a_claim(id="b"), a_claim(id="c")])

    settled, lost = events_of(SettleResult(portion, [SUCCESS, SUCCESS, DEAD], ["b", "c"]), 0.25)

    assert BatchSettled(3, 0.25, {"success": 1, "lost": 2}, 0.5) == settled
    assert LockLost(("b", "c")) == lost


def test_a_portion_that_was_never_written_took_no_time_to_publish() -> None:
    """Zeroes mean never."""
    portion = a_portion([a_claim()])._replace(published=[0.0], confirmed=[0.0])

    [settled] = events_of(SettleResult(portion, [GiveBack("a", "b")], []), 0.25)

    assert isinstance(settled, BatchSettled)
    assert ({"success": 0, "released": 1}, 0.0) == (settled.outcomes, settled.publish_seconds)


@pytest.mark.parametrize("lost", [[], ["a"]])
def test_messages_without_an_outcome_are_not_passed_over(lost: list[str]) -> None:
    """Where they do not match something was forgotten, and counts would hide it."""
    portion = a_portion([a_claim(id="a"), a_claim(id="b")])

    told = events_of(SettleResult(portion, [SUCCESS], lost), 0.25)
    if not lost:
        next(told)

    with pytest.raises(ValueError, match="zip"):
        next(told)
