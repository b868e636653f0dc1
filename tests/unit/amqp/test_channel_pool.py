"""Which exchange may write when, and over which channel, with a scripted broker on the other side of a pipe."""

from __future__ import annotations

import cProfile

import pytest

from relay.amqp import frames
from relay.amqp.frames import ReplyReason
from relay.amqp.publishing.exchange_memory import FORGET_AFTER
from relay.amqp.publishing.probes import ANSWERS_WITHIN, MAX_PROBES
from relay.amqp.publishing.publish_batch import PublishBatch
from tests.support.broker.publishing import batch, claim
from tests.support.fakes.channel_pool_harness import Bench, opened, published


@pytest.fixture
def bench() -> Bench:
    """A channel pool without exchanges yet."""
    return Bench()


def test_each_exchange_has_a_channel_of_its_own_and_they_take_turns(bench: Bench) -> None:
    """A megabyte each, so that one exchange's backlog does not hold another's message."""
    for exchange, channel in (("x", 1), ("y", 2)):
        bench.prove(exchange, channel)
    big = [claim("x", payload=b"b" * 600_000) for _ in range(4)]
    bench.pool.submit(PublishBatch(batch([*big, claim("y")]), bench.clock))
    assert bench.pipe.methods() == [*published(2), *published(1, 2, "y"), *published(2)]


def test_nothing_is_written_while_the_broker_is_blocked_or_the_buffer_full(bench: Bench) -> None:
    """What waits goes out in order when there is room again."""
    bench.prove()
    bench.pool.blocked = True
    bench.send("x")
    bench.pool.blocked, bench.pipe.writable = False, False
    bench.send("x")
    bench.pool.pump()
    assert bench.pipe.methods() == []
    bench.pipe.writable = True
    bench.pool.pump()
    assert bench.pipe.methods() == published(2)


def test_the_least_recently_used_idle_channel_is_closed_for_another() -> None:
    """Its exchange stays proven, and its number is free when the broker has closed it too."""
    bench = Bench(open_channels=2)
    for exchange, channel in (("x", 1), ("y", 2)):
        bench.prove(exchange, channel)
    bench.prove("z", 3)
    assert bench.pipe.methods() == []
    assert list(bench.pipe.handlers) == [1, 2, 3]
    bench.pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    bench.prove("y", 2)
    bench.send("x", "x")
    assert bench.pipe.methods() == [(3, "Channel.Close"), *opened(4), *published(2, 4)]


def test_use_counts_and_not_age() -> None:
    """The exchange that was opened first stays if it was used last."""
    bench = Bench(open_channels=2)
    for exchange, channel in (("x", 1), ("y", 2)):
        bench.prove(exchange, channel)
    bench.send("x")
    bench.pipe.handlers[1].acked(2, multiple=False)
    bench.pipe.methods()
    bench.send("z")
    assert bench.pipe.methods()[0] == (2, "Channel.Close")


def test_a_channel_with_something_in_flight_is_never_closed() -> None:
    """More channels than the cap are open until one is idle."""
    bench = Bench(open_channels=1)
    bench.send("x")
    bench.send("y")
    assert "Channel.Close" not in [name for _, name in bench.pipe.methods()]


def test_exchanges_wait_for_a_number_where_the_broker_allows_few_channels() -> None:
    """`channel_max` is the broker's. An exchange that gets no channel waits until another's is idle and closed."""
    bench = Bench(channel_max=1)
    first, second = bench.send("x"), bench.send("y", "y")
    assert bench.pipe.methods() == [*opened(1), *published(1)]
    bench.pipe.handlers[1].acked(1, multiple=False)
    assert bench.pipe.methods() == [(1, "Channel.Close")]
    bench.pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    assert bench.pipe.methods() == [*opened(1), *published(1, 1, "y")]
    bench.pipe.handlers[1].acked(1, multiple=False)
    bench.pipe.handlers[1].acked(2, multiple=False)
    assert first.done
    assert second.done


def test_a_channel_that_both_sides_close_at_once_is_answered() -> None:
    """Its number stays taken until the broker answers."""
    bench = Bench(open_channels=1)
    bench.prove()
    bench.send("y")
    bench.pipe.methods()
    bench.pipe.handlers[1].closed(ReplyReason(541, "INTERNAL_ERROR"))
    assert bench.pipe.methods() == [(1, "Channel.CloseOk")]
    assert 1 in bench.pipe.handlers


def test_names_of_exchanges_do_not_pile_up() -> None:
    """Rows may name any number of exchanges; idle ones beyond a bound are forgotten."""
    bench = Bench(open_channels=2)
    for number in range(100):
        bench.send(f"missing {number}")
        [channel] = bench.pipe.handlers
        bench.pipe.handlers[channel].closed(ReplyReason(404, "NOT_FOUND - no exchange 'x' in vhost '/'"))
    assert len(bench.pool._exchange_channels) <= 20


def test_silence_is_told_by_exchange(bench: Bench) -> None:
    """Seconds since the oldest write without a confirm, and messages that are not decided."""
    bench.prove("x", 1)
    bench.prove("y", 2)
    bench.send("x", "x", "y")
    bench.ahead = 7
    assert bench.pool.silent() == pytest.approx({"x": 7, "y": 7}, abs=1)
    bench.pipe.handlers[2].acked(2, multiple=False)
    assert list(bench.pool.silent()) == ["x"]
    assert bench.pool.in_flight() == {"x": 2}


MISSING = ReplyReason(404, "NOT_FOUND - no exchange 'x' in vhost '/'")


def test_few_exchanges_are_asked_for_at_once_and_a_proven_one_goes_beside_them(bench: Bench) -> None:
    """Each answer lets the next one ask; what is proven waits for none of them."""
    bench.prove()
    bench.send(*(f"new {number}" for number in range(1000)))
    assert MAX_PROBES == sum(name.startswith("publish") for _, name in bench.pipe.methods())
    bench.send("x")
    assert bench.pipe.methods() == published(1)
    bench.pipe.handlers[2].closed(MISSING)
    assert [name for _, name in bench.pipe.methods()][:3] == ["Channel.CloseOk", "Channel.Open", "Confirm.Select"]


def test_an_exchange_whose_queues_are_silent_keeps_none_from_being_asked_for(bench: Bench) -> None:
    """That it exists is said at once; only then comes the confirm, which may take for ever."""
    bench.send(*(f"slow {number}" for number in range(MAX_PROBES + 1)))
    bench.pipe.methods()
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    assert (MAX_PROBES + 1, f"publish slow {MAX_PROBES}") in bench.pipe.methods()


def test_an_exchange_in_quarantine_whose_queues_are_silent_keeps_none_from_being_asked_for(bench: Bench) -> None:
    """What was accepted before its channel died goes again; the answer behind it counts, not the confirm."""
    slow = [f"slow {number}" for number in range(MAX_PROBES)]
    for channel, exchange in enumerate(slow, 1):
        bench.prove(exchange, channel)
    bench.send(*slow * 20)
    for channel in range(1, MAX_PROBES + 1):
        bench.pipe.handlers[channel].replied(frames.QOS_OK)
        bench.pipe.handlers[channel].closed(ReplyReason(541, "INTERNAL_ERROR"))
    bench.send("new")
    assert "publish new" not in [name for _, name in bench.pipe.methods()]
    bench.pipe.handlers[max(bench.pipe.handlers)].replied(frames.QOS_OK)
    assert "publish new" in [name for _, name in bench.pipe.methods()]


def test_an_exchange_that_the_broker_never_answers_for_keeps_no_other_from_being_asked_for(bench: Bench) -> None:
    """A topic's patterns can keep it for minutes: after a second, others are asked for in its place, although nothing else happens."""
    bench.send(*(f"endless {number}" for number in range(MAX_PROBES)))
    bench.send("new")
    assert "publish new" not in [name for _, name in bench.pipe.methods()]
    bench.elapse(ANSWERS_WITHIN)
    assert "publish new" in [name for _, name in bench.pipe.methods()]


def test_one_exchange_without_an_answer_keeps_none_where_the_broker_grants_few_channels() -> None:
    """With three channels one exchange is asked for at a time."""
    bench = Bench(channel_max=3)
    bench.send("endless", "new")
    assert [f"publish {name}" for name in ("endless",)] == [name for _, name in bench.pipe.methods() if name.startswith("publish")]
    bench.elapse(ANSWERS_WITHIN)
    assert "publish new" in [name for _, name in bench.pipe.methods()]


def test_no_more_exchanges_than_twice_as_many_are_without_an_answer() -> None:
    """Each of them keeps a process of the broker busy. The others are looked at again each second, and reported as silent meanwhile."""
    bench = Bench(channel_max=300)
    bench.send(*(f"endless {number}" for number in range(4 * MAX_PROBES)))
    for _ in range(4):
        bench.elapse(ANSWERS_WITHIN)
    assert 2 * MAX_PROBES == sum(name.startswith("publish") for _, name in bench.pipe.methods())
    silent = bench.pool.silent()
    assert {f"endless {number}" for number in range(4 * MAX_PROBES)} == {name for name in silent if silent[name] > 1}
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    assert 1 == sum(name.startswith("publish") for _, name in bench.pipe.methods())


def test_an_exchange_that_waits_is_silent_however_often_it_gets_more() -> None:
    """Its wait began with its first message."""
    bench = Bench(channel_max=300)
    names = [f"endless {number}" for number in range(3 * MAX_PROBES)]
    bench.send(*names)
    bench.elapse(ANSWERS_WITHIN)
    written = {name for _, name in bench.pipe.methods()}
    waits = next(name for name in names if f"publish {name}" not in written)
    for _ in range(5):
        bench.elapse(0.5)
        bench.send(waits)
    assert f"publish {waits}" not in {name for _, name in bench.pipe.methods()}
    assert bench.pool.silent()[waits] >= 2.5


def test_a_connection_that_has_ended_is_looked_at_no_more(bench: Bench) -> None:
    """Although exchanges waited to be asked for."""
    bench.send(*(f"endless {number}" for number in range(2 * MAX_PROBES)))
    bench.pipe.writable = False
    bench.elapse(ANSWERS_WITHIN)
    assert [] == bench.wakes


def test_a_new_exchange_does_not_wait_behind_all_that_wait(bench: Bench) -> None:
    """The newest and the oldest are asked for in turn."""
    bench.send(*(f"old {number}" for number in range(1000)))
    bench.send("new")
    bench.pipe.methods()
    bench.pipe.handlers[1].closed(MISSING)
    bench.pipe.handlers[2].closed(MISSING)
    assert {"publish new", f"publish old {MAX_PROBES}"} < {name for _, name in bench.pipe.methods()}


def test_waiting_for_a_channel_that_is_not_used_in_the_end_keeps_no_other_from_it() -> None:
    """What waited past its deadline writes nothing; the next in line takes the channel."""
    bench = Bench(channel_max=1)
    bench.prove()
    bench.send("x")
    bench.send("late", seconds=5)
    last = bench.send("last", seconds=60)
    bench.ahead = 6
    bench.pipe.handlers[1].acked(2, multiple=False)
    bench.pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    bench.pipe.handlers[1].acked(1, multiple=False)
    assert last.done


def test_the_work_of_a_channel_does_not_grow_with_the_exchanges_that_wait() -> None:
    """The same calls for an exchange that is asked for and missing, among a hundred others or thousands."""
    few, many = calls_of_an_answer(100), calls_of_an_answer(4000)
    assert few == many


def calls_of_an_answer(waiting: int) -> int:
    """Function calls that an exchange costs which is missing, and the next one that is asked for."""
    bench = Bench()
    for number in range(50):
        bench.prove(f"idle {number}", number + 1)
    bench.send(*(f"missing {number}" for number in range(waiting)))
    handler = bench.pipe.handlers[60]
    profile = cProfile.Profile()
    profile.runcall(handler.closed, MISSING)
    return sum(entry.callcount for entry in profile.getstats())


def test_an_exchange_without_a_message_is_forgotten_in_time(bench: Bench) -> None:
    """A name that was unused for the longest backoff no longer counts among those that share the channels."""
    bench.send("gone", "other")
    bench.ahead = FORGET_AFTER - 1
    bench.send("other", seconds=1000)
    assert 2 == bench.pool.exchanges
    bench.ahead = FORGET_AFTER + 1
    bench.send("another", seconds=1000)
    assert 2 == bench.pool.exchanges


def test_an_exchange_whose_channel_stayed_open_is_not_asked_for_after_a_long_rest(bench: Bench) -> None:
    """Its channel still tells what the broker said, although the exchange had no message for too long to be remembered."""
    bench.prove()
    bench.ahead = FORGET_AFTER + 1
    bench.send(*(f"new {number}" for number in range(MAX_PROBES + 5)), seconds=1000)
    bench.pipe.methods()
    bench.send("x", "x", seconds=1000)
    assert published(2) == bench.pipe.methods()


def test_exchanges_that_took_a_message_are_not_asked_for_again_however_many_they_are() -> None:
    """A name is kept without its channel, and thousands of them go while others are asked for; else they would wait behind each other."""
    bench = Bench(channel_max=4000, open_channels=10)
    names = [f"known {number}" for number in range(3000)]
    for number, name in enumerate(names, 1):
        bench.prove(name, number)
        bench.pipe.handlers[max(number - 10, 1)].replied(frames.CHANNEL_CLOSE_OK)
    bench.send(*(f"endless {number}" for number in range(2 * MAX_PROBES)))
    bench.pipe.methods()
    bench.send(*names)
    assert {f"publish {name}" for name in names} <= {method for _, method in bench.pipe.methods()}


def test_a_known_exchange_waits_behind_no_unknown_one_for_its_second_channel(bench: Bench) -> None:
    """A message that is tried again goes apart, while as many exchanges as may be are asked for."""
    bench.prove()
    bench.send(*(f"new {number}" for number in range(MAX_PROBES + 5)))
    bench.pipe.methods()
    bench.pool.submit(PublishBatch(batch([claim("x", attempts=2)]), bench.clock))
    assert bench.pipe.methods() == [*opened(MAX_PROBES + 2), *published(1, MAX_PROBES + 2)]


def test_an_exchange_that_is_never_idle_gives_its_channel_to_those_that_wait_for_one() -> None:
    """Where the broker allows one channel, who has written lets the others write, and then has its turn again."""
    bench = Bench(channel_max=1)
    bench.prove()
    busy = bench.send("x")
    waiting = bench.send("y")
    more = bench.send("x", "x")
    assert bench.pipe.methods() == published(1)
    bench.pipe.handlers[1].acked(2, multiple=False)
    assert bench.pipe.methods() == [(1, "Channel.Close")]
    bench.pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    assert bench.pipe.methods() == [*opened(1), *published(1, 1, "y")]
    bench.pipe.handlers[1].acked(1, multiple=False)
    bench.pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    bench.pipe.handlers[1].acked(2, multiple=True)
    assert all(job.done for job in (busy, waiting, more))
