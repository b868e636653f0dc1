"""The state of an exchange and of its channel, step by step, with a scripted broker on the other side of a pipe."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from relay.amqp import frames
from relay.amqp.frames import ReplyReason
from relay.events.broker import ExchangeProven, ExchangeQuarantined
from relay.message import CONFIRMED, PublishResult, Verdict
from tests.support.broker.publishing import batch, claim
from tests.support.fakes.channel_pool_harness import Bench, opened, published, verdicts

MISSING = ReplyReason(404, "NOT_FOUND - no exchange 'x' in vhost '/'")
REFUSED_PROPERTY = ReplyReason(406, "PRECONDITION_FAILED - user_id")
TOPIC = ReplyReason(403, "ACCESS_REFUSED - access to topic 'k' in exchange 'x' in vhost '/' refused for user 'u'")


@pytest.fixture
def bench() -> Bench:
    """A session without exchanges yet."""
    return Bench()


def test_the_first_message_of_an_exchange_goes_alone(bench: Bench) -> None:
    """In one write: the channel, the message, and a mark whose answer proves the exchange."""
    bench.send("x", "x", "x")
    assert bench.pipe.methods() == [*opened(1), *published(1)]


def test_the_answer_behind_it_proves_the_exchange_before_the_confirm(bench: Bench) -> None:
    """A queue that stays silent does not hold messages that go to other queues of the exchange."""
    job = bench.send("x", "x", "x")
    bench.pipe.methods()
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    assert bench.pipe.methods() == published(2)
    assert bench.events == [ExchangeProven("x")]
    bench.pipe.handlers[1].acked(3, multiple=True)
    assert job.results == [CONFIRMED] * 3


def test_a_confirm_proves_it_as_well(bench: Bench) -> None:
    """Whichever answer comes first, and only once."""
    bench.send("x", "x")
    bench.pipe.handlers[1].acked(1, multiple=False)
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    assert bench.events == [ExchangeProven("x")]


def test_a_missing_exchange_refuses_all_that_wait_and_those_of_the_next_second(bench: Bench) -> None:
    """One channel dies for it; later batches are refused without a frame, until the second is over."""
    job = bench.send("x", "x", "x")
    bench.pipe.methods()
    bench.pipe.handlers[1].closed(MISSING)
    refusal = PublishResult(Verdict.REFUSED, "exchange_missing", MISSING.text, of_exchange=True)
    assert job.results == [refusal] * 3
    assert bench.send("x").results == [refusal]
    assert bench.pipe.methods() == [(1, "Channel.CloseOk")]
    bench.ahead = 1.1
    bench.send("x")
    assert bench.pipe.methods() == [*opened(2), *published(1, 2)]
    assert bench.events == [ExchangeQuarantined("x", MISSING.text)]


def test_the_answer_to_a_close_is_written_before_anything_else(bench: Bench) -> None:
    """Never a frame on a channel after its close but close-ok: any other would end the connection."""
    bench.prove()
    bench.send("x", "x")
    bench.pipe.methods()
    bench.pipe.handlers[1].closed(REFUSED_PROPERTY)
    assert bench.pipe.methods() == [(1, "Channel.CloseOk"), *opened(2), *published(1, 2)]


def test_the_suspects_of_a_dead_channel_go_again_one_by_one(bench: Bench) -> None:
    """Each alone and confirmed before the next; the one that kills its channel alone is blamed, then batches flow again."""
    bench.prove()
    job = bench.send("x", "x", "x")
    later = bench.send("x", "x")
    bench.pipe.handlers[1].closed(REFUSED_PROPERTY)
    bench.pipe.handlers[2].replied(frames.QOS_OK)
    bench.pipe.handlers[2].acked(1, multiple=False)
    bench.pipe.handlers[2].closed(REFUSED_PROPERTY)
    assert bench.pipe.methods()[-5:] == [(2, "Channel.CloseOk"), *opened(3), *published(1, 3)]
    bench.pipe.handlers[3].acked(1, multiple=False)
    assert verdicts(job) == [Verdict.CONFIRMED, Verdict.REFUSED, Verdict.CONFIRMED]
    assert bench.pipe.methods() == published(2, 3)
    bench.pipe.handlers[3].acked(3, multiple=True)
    assert later.results == [CONFIRMED] * 2
    assert [type(event) for event in bench.events] == [ExchangeProven, ExchangeQuarantined, ExchangeProven]


def test_only_what_stands_between_two_marks_is_suspected(bench: Bench) -> None:
    """What was accepted before goes again in one go and is confirmed first; what the broker never looked at was not suspected."""
    bench.prove()
    job = bench.send(*["x"] * 40)
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    bench.pipe.handlers[1].acked(11, multiple=True)
    bench.pipe.methods()
    bench.pipe.handlers[1].closed(REFUSED_PROPERTY)
    assert bench.pipe.methods() == [(1, "Channel.CloseOk"), *opened(2), *published(6, 2)]
    bench.pipe.handlers[2].acked(6, multiple=True)
    for tag in range(7, 23):
        assert bench.pipe.methods() == published(1, 2)
        bench.pipe.handlers[2].acked(tag, multiple=False)
    assert bench.pipe.methods() == published(8, 2)
    bench.pipe.handlers[2].acked(30, multiple=True)
    assert job.results == [CONFIRMED] * 40


def test_a_window_that_is_confirmed_already_is_not_the_guilty_one(bench: Bench) -> None:
    """Whatever a broker does with the marks, some message is suspected, or the same batch would die of it for ever."""
    bench.prove()
    bench.send(*["x"] * 40)
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    for tag in range(18, 34):
        bench.pipe.handlers[1].acked(tag, multiple=False)
    bench.pipe.methods()
    bench.pipe.handlers[1].closed(REFUSED_PROPERTY)
    assert bench.pipe.methods() == [(1, "Channel.CloseOk"), *opened(2), *published(16, 2)]
    bench.pipe.handlers[2].acked(16, multiple=True)
    assert bench.pipe.methods() == published(1, 2)


def test_the_only_message_between_two_marks_is_blamed_at_once(bench: Bench) -> None:
    """All others of its window are confirmed, so it cannot be another; what was accepted goes again."""
    bench.prove()
    job = bench.send(*["x"] * 20)
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    for tag in (18, 19, 20):
        bench.pipe.handlers[1].acked(tag, multiple=False)
    bench.pipe.methods()
    bench.pipe.handlers[1].closed(REFUSED_PROPERTY)
    assert verdicts(job)[19] is Verdict.REFUSED
    assert bench.pipe.methods() == [(1, "Channel.CloseOk"), *opened(2), *published(16, 2)]


def test_a_channel_that_dies_of_nothing_that_was_sent_blames_nobody(bench: Bench) -> None:
    """Every mark was answered: a lone message that was accepted is not at fault, and goes again."""
    bench.prove()
    job = bench.send("x")
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    bench.pipe.handlers[1].closed(ReplyReason(541, "INTERNAL_ERROR"))
    bench.pipe.handlers[2].acked(1, multiple=False)
    assert job.results == [CONFIRMED]


def test_bursts_double_until_the_exchange_is_proven_again(bench: Bench) -> None:
    """What is written behind a message at fault is written in vain, so a series of them must not cost a full batch each."""
    bench.prove()
    job = bench.send(*["x"] * 2)
    later = bench.send(*["x"] * 3000)
    bench.pipe.methods()
    bench.pipe.handlers[1].closed(REFUSED_PROPERTY)
    bench.pipe.handlers[2].acked(1, multiple=False)
    bench.pipe.handlers[2].closed(REFUSED_PROPERTY)
    tag, bursts = 0, []
    while not later.done:
        bursts.append(bench.pipe.methods().count((3, "publish x")))
        tag += bursts[-1]
        bench.pipe.handlers[3].acked(tag, multiple=True)
    assert bursts == [16, 32, 64, 128, *[192] * 14, 72]
    assert job.done


def test_no_more_is_written_than_the_broker_takes_without_stopping(bench: Bench) -> None:
    """RabbitMQ reads nothing for any channel while one has 400 messages that it has not looked at; credit comes in lots of 200."""
    bench.prove()
    job = bench.send(*["x"] * 1000)
    assert bench.pipe.methods() == published(192)
    for _ in range(5):
        bench.pipe.handlers[1].replied(frames.QOS_OK)
    assert bench.pipe.methods() == []
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    assert bench.pipe.methods() == published(96)
    bench.pipe.handlers[1].acked(1 + 192, multiple=False)
    assert bench.pipe.methods() == published(96)
    assert 1 == len(list(filter(None, job.results)))


def test_a_confirm_of_everything_makes_nothing_turn_in_circles(bench: Bench) -> None:
    """Delivery tag 0 means all of them; the marks then say how far the broker has looked."""
    bench.prove()
    job = bench.send(*["x"] * 2)
    bench.send(*["x"] * 500)
    bench.pipe.handlers[1].closed(REFUSED_PROPERTY)
    bench.pipe.handlers[2].acked(1, multiple=False)
    bench.pipe.handlers[2].closed(REFUSED_PROPERTY)
    bench.pipe.methods()
    for _ in range(2):
        bench.pipe.handlers[3].acked(0, multiple=True)
    bench.pipe.methods()
    bench.pipe.handlers[3].acked(0, multiple=True)
    assert job.done
    assert bench.pipe.methods() == []
    bench.pipe.handlers[3].replied(frames.QOS_OK)
    assert bench.pipe.methods() == published(96, 3)


def test_an_exchange_that_is_routed_slowly_keeps_none_from_the_socket(bench: Bench) -> None:
    """Its messages wait here, not in front of those of others."""
    bench.prove()
    bench.prove("y", 2)
    bench.send(*["x"] * 1000, "y")
    assert bench.pipe.methods() == [*published(192), *published(1, 2, "y")]


def test_new_messages_wait_behind_the_suspects(bench: Bench) -> None:
    """The order of the calls holds in quarantine too."""
    bench.prove()
    bench.send("x", "x")
    bench.pipe.handlers[1].closed(TOPIC)
    later = bench.send("x", "x", "x")
    bench.pipe.methods()
    bench.pipe.handlers[2].acked(1, multiple=False)
    assert bench.pipe.methods() == published(1, 2)
    bench.pipe.handlers[2].acked(2, multiple=False)
    assert bench.pipe.methods() == published(3, 2)
    bench.pipe.handlers[2].acked(5, multiple=True)
    assert later.done


@pytest.mark.parametrize(
    "key", ["k", "access to exchange 'x'", "internal exchange", "ACCESS_REFUSED - access to exchange 'x' in vhost '/'"]
)
def test_a_topic_that_is_refused_says_nothing_of_the_exchange(bench: Bench, key: str) -> None:
    """403 for a routing key refuses the one message, whatever words it holds; the next may be allowed."""
    job = bench.submit(batch([claim("x", "k"), claim("x", "another")]))
    text = TOPIC.text.replace("'k'", f"'{key}'")
    bench.pipe.handlers[1].closed(ReplyReason(403, text))
    bench.pipe.handlers[2].acked(1, multiple=False)
    assert verdicts(job) == [Verdict.REFUSED, Verdict.CONFIRMED]
    assert job.results[0] == PublishResult(Verdict.REFUSED, "access_refused", text)


@pytest.mark.parametrize(
    "text",
    [
        "ACCESS_REFUSED - access to exchange 'x' in vhost '/' refused for user 'u'",
        "ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'u'",
        "ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'",
    ],
)
def test_an_exchange_that_is_refused_is_refused_for_all(bench: Bench, text: str) -> None:
    """The words of RabbitMQ 3 and 4."""
    job = bench.send("x", "x", "x")
    bench.pipe.handlers[1].closed(ReplyReason(403, text))
    assert job.results == [PublishResult(Verdict.REFUSED, "access_refused", text, of_exchange=True)] * 3


def test_a_dead_channel_without_anything_in_flight_costs_nothing(bench: Bench) -> None:
    """The next message opens another one and goes alone."""
    bench.prove()
    bench.pipe.handlers[1].closed(ReplyReason(541, "INTERNAL_ERROR"))
    job = bench.send("x", "x")
    assert bench.pipe.methods() == [(1, "Channel.CloseOk"), *opened(2), *published(1, 2)]
    bench.pipe.handlers[2].acked(1, multiple=False)
    bench.pipe.handlers[2].acked(2, multiple=False)
    assert job.done


def test_a_message_whose_lock_was_not_renewed_keeps_none_beside_it_from_the_broker(bench: Bench) -> None:
    """Another session held its row: its own deadline has passed, that of its batch has not."""
    bench.prove()
    sent = batch([claim("x", seq=seq) for seq in range(3)])
    sent.behind[sent.claims[1].position] = 0.0
    job = bench.submit(sent)
    for tag in (2, 3):
        bench.pipe.handlers[1].acked(tag, multiple=False)
    assert [Verdict.CONFIRMED, Verdict.UNWRITTEN, Verdict.CONFIRMED] == verdicts(job)


def test_suspects_past_their_deadline_are_unknown_and_block_nobody(bench: Bench) -> None:
    """They were written once; another relay may hold them now."""
    bench.prove()
    job = bench.send("x", "x", "x", seconds=5)
    bench.pipe.handlers[1].closed(REFUSED_PROPERTY)
    bench.ahead = 6
    bench.pipe.handlers[2].acked(1, multiple=False)
    assert verdicts(job) == [Verdict.CONFIRMED, Verdict.UNKNOWN, Verdict.UNKNOWN]
    after = bench.send("x", "x", seconds=60)
    bench.pipe.handlers[2].acked(2, multiple=False)
    bench.pipe.handlers[2].acked(3, multiple=False)
    assert after.done


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_acks_may_come_in_any_order(bench: Bench, order: Sequence[int]) -> None:
    """RabbitMQ promises no order between queues."""
    bench.prove()
    job = bench.send("x", "x", "x")
    for index in order:
        assert job.results[index] is None
        bench.pipe.handlers[1].acked(index + 2, multiple=False)
        assert job.results[index] == CONFIRMED
