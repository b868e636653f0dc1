"""What becomes of a message after each verdict, and how long it waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.engine.policy import Policy
from relay.engine.retry import JITTER, RetryPolicy, backoff, decide, decide_all
from relay.message import CONFIRMED, SUCCESS, Archive, GiveBack, Keep, Outcome, PublishResult, Result, Retry, Verdict
from tests.support.fakes.adapters import a_claim, a_portion

ONCE = RetryPolicy(max_attempts=1)
EVEN = 0.5
"""The chance at which the jitter adds and takes nothing."""


def result(verdict: Verdict, *, blame: bool = False, alone: bool = False) -> PublishResult:
    """A verdict with a code and a sentence."""
    return PublishResult(verdict, "code", "Why.", blame, alone)


RETRIED = Retry(1.0, "code", "Why.")
FAILED = Archive(Result.FAILED, "code", "Why. (attempt 1 of 1)")
REJECTED = Archive(Result.REJECTED, "code", "Why.")
BACK = GiveBack("code", "Why.")
TABLE: list[tuple[PublishResult, RetryPolicy, Outcome]] = [
    (CONFIRMED, RetryPolicy(), SUCCESS),
    (CONFIRMED, ONCE, SUCCESS),
    (result(Verdict.INVALID), RetryPolicy(), REJECTED),
    (result(Verdict.EXPIRED), RetryPolicy(), REJECTED),
    (result(Verdict.RETURNED), RetryPolicy(), RETRIED),
    (result(Verdict.RETURNED), ONCE, FAILED),
    (result(Verdict.RETURNED), RetryPolicy(unroutable="reject"), REJECTED),
    (result(Verdict.RETURNED), RetryPolicy(unroutable="accept"), Archive(Result.SUCCESS, "code", "Why.")),
    (result(Verdict.RETURNED), RetryPolicy(unroutable_by_exchange={"orders": "reject"}), REJECTED),
    (result(Verdict.RETURNED), RetryPolicy(unroutable="reject", unroutable_by_exchange={"orders": "retry"}), RETRIED),
    (result(Verdict.RETURNED), RetryPolicy(unroutable_by_exchange={"audit": "reject"}), RETRIED),
    (result(Verdict.REFUSED), RetryPolicy(), RETRIED),
    (result(Verdict.REFUSED), ONCE, FAILED),
    (result(Verdict.REFUSED), RetryPolicy(unroutable="accept"), RETRIED),
    (result(Verdict.UNWRITTEN), RetryPolicy(), BACK),
    (result(Verdict.UNWRITTEN), ONCE, BACK),
    (result(Verdict.UNKNOWN), RetryPolicy(), BACK),
    (result(Verdict.UNKNOWN), ONCE, BACK),
    (result(Verdict.UNKNOWN, blame=True), RetryPolicy(), RETRIED),
    (result(Verdict.UNKNOWN, blame=True), ONCE, RETRIED),
    (result(Verdict.UNKNOWN, blame=True, alone=True), RetryPolicy(), RETRIED),
    (result(Verdict.UNKNOWN, blame=True, alone=True), ONCE, FAILED),
]


@pytest.mark.ids("A8", "A9", "A10", "A27", "C14", "C15", "D6")
@pytest.mark.parametrize(("answer", "policy", "expected"), TABLE)
def test_each_verdict_has_its_outcome_by_policy(answer: PublishResult, policy: RetryPolicy, expected: Outcome) -> None:
    """Only a confirm is a success, only the message's own fault is an attempt, and attempts end."""
    assert expected == decide(a_claim(), answer, policy, chance=EVEN)


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_is_decided(verdict: Verdict) -> None:
    """None falls through, leaving or not."""
    for leaving in (False, True):
        assert decide(a_claim(), result(verdict), RetryPolicy(), chance=EVEN, leaving=leaving) is not None


@pytest.mark.ids("D9")
def test_a_relay_that_leaves_keeps_the_lock_of_what_it_wrote() -> None:
    """A written, unconfirmed message may have arrived, so it is not released even if it is at fault. What was never written is released."""
    for blame in (False, True):
        assert Keep() == decide(a_claim(), result(Verdict.UNKNOWN, blame=blame), RetryPolicy(), chance=EVEN, leaving=True)
    assert BACK == decide(a_claim(), result(Verdict.UNWRITTEN), RetryPolicy(), chance=EVEN, leaving=True)


def test_the_last_attempt_is_the_one_that_the_policy_names() -> None:
    """With three attempts the second is retried and the third fails."""
    policy = RetryPolicy(max_attempts=3)

    assert Retry(2.0, "code", "Why.") == decide(a_claim(attempts=2), result(Verdict.REFUSED), policy, chance=EVEN)
    assert Archive(Result.FAILED, "code", "Why. (attempt 3 of 3)") == decide(
        a_claim(attempts=3), result(Verdict.REFUSED), policy, chance=EVEN
    )


def test_a_limit_that_was_lowered_meanwhile_is_named_as_such() -> None:
    """No error says attempt 6 of 2."""
    lowered = RetryPolicy(max_attempts=2)

    assert Archive(Result.FAILED, "code", "Why. (attempt 6 and max_attempts is 2 by now)") == decide(
        a_claim(attempts=6), result(Verdict.REFUSED), lowered, chance=EVEN
    )


def test_the_default_waits_come_to_half_an_hour() -> None:
    """Twelve attempts have eleven waits between them."""
    waits = [backoff(attempt, RetryPolicy(), EVEN) for attempt in range(1, RetryPolicy().max_attempts)]

    assert [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600] == waits
    assert 25 * 60 < sum(waits) < 35 * 60


@given(st.integers(1, 10_000), st.floats(0, 86400), st.floats(0, 604800), st.floats(0, 1, exclude_max=True))
def test_a_wait_stays_within_its_bounds(attempt: int, base: float, longest: float, chance: float) -> None:
    """Whatever the settings: never negative, never above the longest plus its jitter, and no overflow."""
    assert 0 <= backoff(attempt, RetryPolicy(backoff_base=base, backoff_max=longest), chance) <= longest * (1 + JITTER)


def test_chance_spreads_a_wait_to_both_sides() -> None:
    """Messages that failed together do not return together."""
    assert pytest.approx([8.0, 10.0, 12.0]) == [backoff(1, RetryPolicy(backoff_base=10), chance) for chance in (0.0, 0.5, 1.0)]


def test_without_rows_the_policy_is_the_default() -> None:
    """What the table does not hold has the value of a new database."""
    assert Policy() == Policy.of({})


def test_a_policy_is_read_from_the_tables_rows() -> None:
    """Every setting that the relay carries out."""
    rows = {
        "max_attempts": "3", "backoff_base": "0.5", "backoff_max": "60", "unroutable": "reject,a=accept,a.b=retry", "archive": "failures",
        "on_dead_key": "park", "notify": "always", "lock_seconds": "12.5", "max_body_bytes": "1000", "retention_days": "7",
    }  # fmt: skip

    assert Policy(
        retry=RetryPolicy(3, 0.5, 60.0, "reject", {"a": "accept", "a.b": "retry"}),
        keep_successes=False, park_dead_keys=True, notify="always", lock_seconds=12.5, max_body_bytes=1000,
    ) == Policy.of(rows)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "exchange", "expected"),
    [
        ("retry", "x", "retry"),
        ("accept", "x", "accept"),
        ("retry,x=reject", "x", "reject"),
        ("x=reject", "y", "retry"),
        ("=accept", "", "accept"),
    ],
)
def test_what_is_unroutable_is_told_by_exchange(text: str, exchange: str, expected: str) -> None:
    """A default and exceptions; the default exchange has the empty name."""
    assert expected == Policy.of({"unroutable": text}).retry.unroutable_of(exchange)


def test_each_message_of_a_portion_is_decided_by_itself() -> None:
    """Where all are confirmed, and where one is not."""
    policy, confirmed = RetryPolicy(), a_portion([a_claim(), a_claim()])
    mixed = confirmed._replace(results=[CONFIRMED, result(Verdict.UNKNOWN)])

    assert [SUCCESS, SUCCESS] == decide_all(confirmed, policy, chance=lambda: EVEN)
    assert [SUCCESS, BACK] == decide_all(mixed, policy, chance=lambda: EVEN)
    assert [SUCCESS, Keep()] == decide_all(mixed, policy, chance=lambda: EVEN, leaving=True)
