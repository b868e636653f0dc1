"""What becomes of messages that the broker may have taken, when it refuses their exchange before it confirms them."""

from __future__ import annotations

import pytest

from relay.amqp import frames
from relay.amqp.frames import ReplyReason
from relay.message import CONFIRMED, Verdict
from tests.support.fakes.channel_pool_harness import Bench, verdicts

ENDED = ReplyReason(541, "INTERNAL_ERROR")
UNKNOWN, REFUSED = Verdict.UNKNOWN, Verdict.REFUSED


@pytest.fixture(
    params=["NOT_FOUND - no exchange 'x' in vhost '/'", "ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'u'"]
)
def refusal(request: pytest.FixtureRequest) -> ReplyReason:
    """The exchange is gone, or may not be written to any more."""
    return ReplyReason(404 if request.param.startswith("NOT") else 403, request.param)


@pytest.fixture
def bench() -> Bench:
    """A session whose exchange x is proven."""
    bench = Bench()
    bench.prove()
    return bench


def test_what_was_accepted_before_its_exchange_went_is_unknown(bench: Bench, refusal: ReplyReason) -> None:
    """Its confirm was on the way; the message that found the exchange gone is refused."""
    taken = bench.send(*["x"] * 20)
    for _ in range(2):
        bench.pipe.handlers[1].replied(frames.QOS_OK)
    late = bench.send("x")
    bench.pipe.handlers[1].closed(refusal)
    assert [UNKNOWN] * 20 == verdicts(taken)
    assert [REFUSED] == verdicts(late)


def test_suspects_are_unknown_where_it_is_their_exchange_that_is_guilty(bench: Bench, refusal: ReplyReason) -> None:
    """The broker may have taken those before the one that it refused; what it never looked at is refused."""
    job = bench.send(*["x"] * 40)
    bench.pipe.handlers[1].closed(refusal)
    bench.pipe.handlers[2].closed(refusal)
    assert [UNKNOWN] * 16 + [REFUSED] * 24 == verdicts(job)


def test_what_was_accepted_once_stays_unknown_however_many_channels_die_of_it(bench: Bench, refusal: ReplyReason) -> None:
    """It does so even where most of it is behind the next mark when it goes again."""
    job = bench.send(*["x"] * 40)
    for _ in range(3):
        bench.pipe.handlers[1].replied(frames.QOS_OK)
    bench.pipe.handlers[1].closed(ENDED)
    late = bench.send("x")
    bench.pipe.handlers[2].closed(refusal)
    bench.pipe.handlers[3].closed(refusal)
    assert [UNKNOWN] * 40 == verdicts(job)
    assert [REFUSED] == verdicts(late)


def test_what_is_confirmed_after_all_is_a_success(bench: Bench, refusal: ReplyReason) -> None:
    """A doubt ends with the confirm."""
    job = bench.send("x", "x")
    bench.pipe.handlers[1].closed(ENDED)
    bench.pipe.handlers[2].acked(1, multiple=False)
    bench.pipe.handlers[2].closed(refusal)
    assert job.results[0] == CONFIRMED
    assert verdicts(job)[1] is UNKNOWN


def test_a_message_that_was_suspected_and_is_guilty_itself_is_refused(bench: Bench) -> None:
    """It alone is at fault each time, so it must not come back for ever."""
    job = bench.send("x", "x")
    for channel in (1, 2, 3):
        bench.pipe.handlers[channel].closed(ReplyReason(406, "PRECONDITION_FAILED - user_id"))
    assert [REFUSED] * 2 == verdicts(job)
