"""Long work is done in turns, between which the rest of the process continues."""

from __future__ import annotations

import pytest

from relay.amqp import frames
from relay.amqp.frames import ReplyReason
from relay.amqp.publishing.publish_batch import PublishBatch
from relay.amqp.publishing.turn import TURN
from relay.message import Verdict
from tests.support.broker.publishing import batch, claim
from tests.support.fakes.channel_pool_harness import Bench, verdicts

MANY = 90
LOOKS = 10
"""Looks at the clock after which a turn is over, of which there is at least one for each message with options."""
SLOW = TURN / (LOOKS - 0.5)
"""Seconds that pass with each look; none is exactly at a turn's end, where rounding would decide."""


class SlowBench(Bench):
    """A channel pool whose every message takes long to encode."""

    slow = False

    def send(self, *exchanges: str, seconds: float = 60) -> PublishBatch:
        """Submit a batch of messages with options."""
        return self.submit(batch([claim(exchange, options='{"priority": 1}') for exchange in exchanges], seconds=seconds, now=self._began))

    def clock(self) -> float:
        """Return the time, which passes."""
        self.ahead += SLOW if self.slow else 0.0
        return super().clock()

    def go_on(self) -> None:
        """Do what is to be done next."""
        self.wakes.pop(0)[1]()


@pytest.fixture
def bench() -> SlowBench:
    """A channel pool with a proven exchange."""
    made = SlowBench()
    made.prove()
    made.slow = True
    return made


def publishes(bench: SlowBench) -> int:
    """How many messages were written since the last look."""
    return sum(name.startswith("publish") for _, name in bench.pipe.methods())


def test_one_call_writes_what_its_turn_allows_and_later_ones_the_rest(bench: SlowBench) -> None:
    """Each goes out once, and none of the calls is longer."""
    bench.send(*["x"] * MANY)
    written = [publishes(bench)]
    while bench.wakes:
        bench.go_on()
        written.append(publishes(bench))
    assert sum(written) == MANY
    assert max(written) <= LOOKS + 1
    assert len(written) >= MANY / (LOOKS + 1)


def test_an_answer_between_two_turns_writes_nothing(bench: SlowBench) -> None:
    """It would be a turn of its own, as often as the broker answers."""
    bench.send(*["x"] * MANY)
    assert 0 < publishes(bench) < MANY
    bench.pipe.handlers[1].replied(frames.QOS_OK)
    bench.pipe.handlers[1].acked(2, multiple=True)
    assert 0 == publishes(bench)
    bench.go_on()
    assert 0 < publishes(bench) < MANY


def test_a_missing_exchange_refuses_at_once_what_its_turn_does_not_look_at(bench: SlowBench) -> None:
    """A message that can never be sent is reported as such at its next attempt."""
    bench.slow = False
    job = bench.send("missing")
    bench.pipe.handlers[2].closed(ReplyReason(404, "NOT_FOUND - no exchange 'missing' in vhost '/'"))
    assert [Verdict.REFUSED] == verdicts(job)
    bench.slow = True
    job = bench.submit(batch([claim("missing", options='{"priority": 256}') for _ in range(MANY)]))
    looked_at = verdicts(job).index(Verdict.REFUSED)
    assert 0 < looked_at <= LOOKS + 1
    assert [Verdict.INVALID] * looked_at + [Verdict.REFUSED] * (MANY - looked_at) == verdicts(job)


def test_one_message_of_many_exchanges_waits_for_its_turn(bench: SlowBench) -> None:
    """Exchanges that are new are asked for one after the other."""
    bench.send(*[f"e{number}" for number in range(MANY)])
    assert 0 < publishes(bench) < MANY
    assert bench.wakes


def test_an_exchange_with_little_waits_for_few_turns(bench: SlowBench) -> None:
    """It is next after those that waited when its message came."""
    bench.slow = False
    bench.prove("y", channel=2)
    bench.slow = True
    bench.send(*["x"] * MANY)
    bench.pipe.methods()
    bench.send("y")
    bench.go_on()
    bench.go_on()
    assert (2, "publish y") in bench.pipe.methods()


def test_a_block_between_two_turns_keeps_the_rest_until_it_ends(bench: SlowBench) -> None:
    """The later call writes nothing; the end of the block does."""
    bench.send(*["x"] * MANY)
    before = publishes(bench)
    bench.pool.blocked = True
    bench.go_on()
    assert 0 == publishes(bench)
    bench.pool.blocked = False
    bench.pool.pump()
    while bench.wakes:
        bench.go_on()
    assert MANY - before == publishes(bench)


def test_a_connection_that_ends_between_two_turns_is_written_to_no_more(bench: SlowBench) -> None:
    """What was not written is a suspect of nothing."""
    bench.send(*["x"] * MANY)
    before = publishes(bench)
    bench.pipe.writable = False
    bench.go_on()
    assert 0 == publishes(bench)
    assert [] == bench.wakes
    assert before == len(bench.pool.suspects())


def test_what_is_routed_anew_has_a_turn_of_its_own(bench: SlowBench) -> None:
    """Not the rest of one that was over."""
    bench.slow = False
    bench.send("missing")
    bench.pipe.handlers[2].closed(ReplyReason(404, "NOT_FOUND - no exchange 'missing' in vhost '/'"))
    bench.slow = True
    bench.send(*["x"] * MANY)
    bench.slow = False
    job = PublishBatch(batch([claim("missing", options='{"priority": 256}')]), bench.clock)
    bench.pool.reroute([(job, 0)])
    assert [Verdict.INVALID] == verdicts(job)
