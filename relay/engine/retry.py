"""Decides the outcome of a message after a publish: a pure function of the result, the attempts and the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never

from relay.message import CONFIRMED, SUCCESS, Archive, Claim, GiveBack, Keep, Outcome, Portion, PublishResult, Result, Retry, Verdict

Unroutable = Literal["retry", "reject", "accept"]
JITTER = 0.2
"""Share of a backoff that is random, so that messages that failed together do not return together."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long to retry: the database's settings of the same names."""

    max_attempts: int = 12
    backoff_base: float = 1.0
    """Seconds after the first failed attempt, doubled after each further attempt."""
    backoff_max: float = 600.0
    """Longest backoff in seconds. With the defaults, all backoffs together take half an hour."""
    unroutable: Unroutable = "retry"
    unroutable_by_exchange: Mapping[str, Unroutable] = field(default_factory=dict)

    def unroutable_of(self, exchange: str) -> Unroutable:
        """The policy for unroutable messages of an exchange."""
        return self.unroutable_by_exchange.get(exchange, self.unroutable)


def backoff(attempt: int, policy: RetryPolicy, chance: float) -> float:
    """Seconds to wait after the given attempt (1 is the first); `chance` in [0, 1) is the jitter."""
    plain = min(policy.backoff_base * 2.0 ** min(attempt - 1, 60), policy.backoff_max)
    return plain * (1 - JITTER + 2 * JITTER * chance)


def decide_all(portion: Portion, policy: RetryPolicy, *, chance: Callable[[], float], leaving: bool = False) -> Sequence[Outcome]:
    """The outcome that `decide` gives for each result of a portion; if all are confirmed, this is one pass in C."""
    if portion.results.count(CONFIRMED) == len(portion.results):
        return [SUCCESS] * len(portion.results)
    pairs = zip(portion.claims, portion.results, strict=True)
    return [decide(claim, result, policy, chance=chance(), leaving=leaving) for claim, result in pairs]


def decide(  # noqa: PLR0911 - one return for each verdict
    claim: Claim, result: PublishResult, policy: RetryPolicy, *, chance: float, leaving: bool = False
) -> Outcome:
    """One outcome for one result.

    Args:
        claim: the message, with its attempts so far.
        result: the publisher's result.
        policy: most attempts, backoff, and the treatment of unroutable messages.
        chance: a random number in [0, 1) for the jitter.
        leaving: the drain is over, so a message that was published but not confirmed keeps its lock.

    """
    match result.verdict:
        case Verdict.CONFIRMED:
            return SUCCESS
        case Verdict.INVALID | Verdict.EXPIRED:
            return Archive(Result.REJECTED, result.code, result.detail)
        case Verdict.RETURNED:
            return _unroutable(claim, result, policy, chance)
        case Verdict.REFUSED:
            return _attempt(claim, result, policy, chance)
        case Verdict.UNWRITTEN:
            return GiveBack(result.code, result.detail)
        case Verdict.UNKNOWN:
            return _unknown(claim, result, policy, chance, leaving=leaving)
        case Verdict.OVERDUE:
            return Keep()
    assert_never(result.verdict)


def _unknown(claim: Claim, result: PublishResult, policy: RetryPolicy, chance: float, *, leaving: bool) -> Outcome:
    if leaving:
        return Keep()
    if not result.blame:
        return GiveBack(result.code, result.detail)
    if result.alone:
        return _attempt(claim, result, policy, chance)
    # One of several messages is the cause. Each is published again, isolated on the connection, until the cause is proven.
    return Retry(backoff(claim.attempts, policy, chance), result.code, result.detail)


def _unroutable(claim: Claim, result: PublishResult, policy: RetryPolicy, chance: float) -> Outcome:
    match policy.unroutable_of(claim.exchange):
        case "accept":
            return Archive(Result.SUCCESS, result.code, result.detail)
        case "reject":
            return Archive(Result.REJECTED, result.code, result.detail)
        case "retry":
            return _attempt(claim, result, policy, chance)


def _attempt(claim: Claim, result: PublishResult, policy: RetryPolicy, chance: float) -> Outcome:
    if claim.attempts >= policy.max_attempts:
        # max_attempts may have been lowered since the claim.
        allowed = (
            f"of {policy.max_attempts}" if claim.attempts == policy.max_attempts else f"and max_attempts is {policy.max_attempts} by now"
        )
        return Archive(Result.FAILED, result.code, f"{result.detail} (attempt {claim.attempts} {allowed})")
    return Retry(backoff(claim.attempts, policy, chance), result.code, result.detail)
