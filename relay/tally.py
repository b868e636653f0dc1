"""Turns a settled portion into events; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from relay.events import BatchSettled, Event, LockLost, MessageDead
from relay.message import SUCCESS, Archive, GiveBack, Outcome, Portion, Result, Retry, Settled


def word(outcome: Outcome) -> str:
    """The word under which an outcome is counted."""
    match outcome:
        case Archive():
            return outcome.result.value
        case Retry():
            return "retry"
        case GiveBack():
            return "released"
        case _:
            return "kept"


def tally(portion: Portion, outcomes: Sequence[Outcome], settled: Settled, seconds: float) -> Iterator[Event]:
    """What there is to tell of a settled portion: counts, lost locks, dead messages."""
    yield BatchSettled(len(outcomes), seconds, count(outcomes), _publish_seconds(portion))
    if settled.lost:
        yield LockLost(tuple(settled.lost))
    for claim, outcome in zip(portion.claims, outcomes, strict=True):
        if (
            outcome is not SUCCESS
            and isinstance(outcome, Archive)
            and outcome.result is not Result.SUCCESS
            and claim.id not in settled.lost
        ):
            yield MessageDead(claim.id, outcome.result.value, outcome.code, outcome.detail, claim.exchange)


def count(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Outcomes by word; the common case, all the same success, costs one pass in C."""
    successes = sum(outcome is SUCCESS for outcome in outcomes)
    counts = Counter(word(outcome) for outcome in outcomes if outcome is not SUCCESS) if successes < len(outcomes) else Counter[str]()
    counts[Result.SUCCESS.value] += successes
    return dict(counts)


def _publish_seconds(portion: Portion) -> float:
    written = [moment for moment in portion.published if moment]
    return max(max(portion.confirmed) - min(written), 0.0) if written else 0.0
