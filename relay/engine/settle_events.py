"""Turns a settled portion into events. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from relay.events import BatchSettled, Event, LockLost, MessageDead
from relay.message import SUCCESS, Archive, GiveBack, Outcome, Portion, Result, Retry
from relay.ports import SettleResult

DEAD = frozenset({Result.REJECTED, Result.FAILED, Result.LOCK_EXPIRED})


def word(outcome: Outcome) -> str:
    """The label under which an outcome is counted."""
    match outcome:
        case Archive():
            return outcome.result.value
        case Retry():
            return "retry"
        case GiveBack():
            return "released"
        case _:
            return "kept"


def events_of(written: SettleResult, seconds: float) -> Iterator[Event]:
    """The events of a settled portion: counts, lost locks, dead messages."""
    portion, outcomes, lost = written
    yield BatchSettled(len(outcomes), seconds, _counts(written), _publish_seconds(portion))
    if lost:
        yield LockLost(tuple(lost))
    for claim, outcome in zip(portion.claims, outcomes, strict=True):
        if outcome is not SUCCESS and isinstance(outcome, Archive) and outcome.result in DEAD and claim.id not in lost:
            yield MessageDead(claim.id, outcome.result.value, outcome.code, outcome.detail, claim.exchange)


def _counts(written: SettleResult) -> dict[str, int]:
    """Outcomes by label; a message that another relay reclaimed counts as lost, whatever its outcome was."""
    if not written.lost:
        return count(written.outcomes)
    ours = [outcome for claim, outcome in zip(written.portion.claims, written.outcomes, strict=True) if claim.id not in written.lost]
    return count(ours) | {"lost": len(written.lost)}


def count(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Outcomes by label; if all are successes, this is one pass in C."""
    successes = outcomes.count(SUCCESS)
    counts = Counter(word(outcome) for outcome in outcomes if outcome != SUCCESS) if successes < len(outcomes) else Counter[str]()
    counts[Result.SUCCESS.value] += successes
    return dict(counts)


def _publish_seconds(portion: Portion) -> float:
    written = [moment for moment in portion.published if moment]
    return max(max(portion.confirmed) - min(written), 0.0) if written else 0.0
