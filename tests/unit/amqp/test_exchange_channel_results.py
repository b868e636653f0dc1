"""How a channel handles a return, and the end of a message or of its lock. A scripted broker is on the other side of a pipe."""

from __future__ import annotations

import pytest

from relay.amqp.frames import ReplyReason
from relay.amqp.publishing.publish_batch import PublishBatch
from relay.message import Verdict
from tests.support.broker.publishing import batch, claim
from tests.support.fakes.channel_pool_harness import Bench, published, verdicts

MISSING = ReplyReason(404, "NOT_FOUND - no exchange 'x' in vhost '/'")


@pytest.fixture
def bench() -> Bench:
    """A session whose exchange x is proven."""
    bench = Bench()
    bench.prove()
    return bench


def test_a_returned_message_is_no_success_although_it_is_acked(bench: Bench) -> None:
    """The broker takes responsibility for nothing there: its neighbour in the same ack is the success."""
    job = bench.send("x", "x")
    bench.pipe.handlers[1].returned(job.claims[0].id, ReplyReason(312, "NO_ROUTE"))
    bench.pipe.handlers[1].acked(3, multiple=True)
    assert verdicts(job) == [Verdict.RETURNED, Verdict.CONFIRMED]


def test_nothing_is_sent_after_its_expires_at(bench: Bench) -> None:
    """One that expired while it waited for room is decided without the broker, one with time left goes out."""
    bench.pipe.writable = False
    job = PublishBatch(batch([claim("x", expires_in=5.0), claim("x", expires_in=60.0)], seconds=100), bench.clock)
    bench.pool.submit(job)
    bench.ahead, bench.pipe.writable = 6.0, True
    bench.pool.pump()
    assert bench.pipe.methods() == published(1)
    assert verdicts(job) == [Verdict.EXPIRED, None]


def test_what_can_never_be_sent_is_not_blamed_on_a_missing_exchange(bench: Bench) -> None:
    """While that is not asked for again, a message whose time is over has expired, and costs no attempt."""
    bench.send("x")
    bench.pipe.handlers[1].closed(MISSING)
    job = PublishBatch(batch([claim("x", expires_in=-1.0), claim("x", "r" * 300), claim("x")]), bench.clock)
    bench.pool.submit(job)

    assert [Verdict.EXPIRED, Verdict.INVALID, Verdict.REFUSED] == verdicts(job)


def test_nothing_is_written_past_the_deadline_of_its_lock(bench: Bench) -> None:
    """Another relay may hold it by then."""
    bench.pipe.writable = False
    job = bench.send("x", seconds=5)
    bench.ahead, bench.pipe.writable = 6.0, True
    bench.pool.pump()
    assert bench.pipe.methods() == []
    assert verdicts(job) == [Verdict.UNWRITTEN]
