"""Exchanges that wait for a channel number, or for fewer others to be asked for."""

from __future__ import annotations

from relay.amqp import frames
from relay.amqp.frames import ReplyReason
from relay.amqp.publishing.publish_batch import PublishBatch
from tests.support.broker.publishing import batch, claim
from tests.support.fakes.channel_pool_harness import Bench, opened, published

GUILTY = ReplyReason(406, "PRECONDITION_FAILED - user_id")


def test_an_exchange_that_waits_gets_a_number_when_the_broker_counts_it_no_more() -> None:
    """The broker still counts a channel for a moment after closing it. No other exchange may be writing by then."""
    bench = Bench(channel_max=1, counts_late=True)
    bench.prove()
    bench.send("y")
    assert bench.pipe.methods() == [(1, "Channel.Close")]
    bench.pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    assert bench.pipe.methods() == []
    [counted_no_more] = bench.late
    counted_no_more()
    assert bench.pipe.methods() == [*opened(1), *published(1, 1, "y")]


def test_an_exchange_with_nothing_left_to_write_waits_for_no_number() -> None:
    """The exchange that has the channel would give it up for nothing."""
    bench = Bench(channel_max=1)
    bench.prove()
    bench.send("x")
    bench.send("y", seconds=5)
    bench.ahead = 6
    bench.send("y", seconds=5)
    bench.pipe.methods()
    bench.pipe.handlers[1].acked(2, multiple=False)
    bench.send("x")
    assert bench.pipe.methods() == published(1)


def test_an_exchange_with_nothing_left_to_write_is_not_asked_for() -> None:
    """Its other route has proven it meanwhile; it would be noted as idle once more after it was forgotten."""
    bench = Bench(open_channels=2)
    bench.send("slow")
    bench.send("z")
    bench.send("y", seconds=0.5)
    bench.pool.submit(PublishBatch(batch([claim("y", attempts=2)]), bench.clock))
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    bench.pipe.handlers[2].replied(frames.QOS_OK)
    assert [(2, "publish y"), (3, "publish z")] == [method for method in bench.pipe.methods() if method[1] in {"publish y", "publish z"}]
    bench.ahead = 0.6
    bench.send("y", seconds=0.5)
    assert not bench.pool._probes.waiting


def test_an_exchange_that_has_given_its_channel_away_is_not_asked_for_any_more() -> None:
    """Else it counts for ever among those that are, and no new one is asked for."""
    bench = Bench(channel_max=1)
    bench.prove("y")
    bench.send("x")
    bench.pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    bench.pipe.handlers[1].acked(1, multiple=False)
    bench.send("x", "x", seconds=0.5)
    bench.pipe.handlers[1].closed(GUILTY)
    bench.send("y")
    bench.pipe.methods()
    bench.pipe.handlers[1].acked(1, multiple=False)
    assert bench.pipe.methods() == [(1, "Channel.Close")]
    bench.ahead = 0.6
    bench.pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    bench.pipe.handlers[1].acked(1, multiple=False)
    bench.send("new", seconds=60)
    bench.pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    assert (1, "publish new") in bench.pipe.methods()
