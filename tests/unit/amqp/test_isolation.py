"""Messages that may have ended a connection go when nothing else is on its way, and nothing goes alongside them."""

from __future__ import annotations

import pytest

from relay.amqp import frames
from relay.amqp.publishing.isolation import PATIENCE
from relay.amqp.publishing.publish_batch import PublishBatch
from tests.support.broker.publishing import batch, claim
from tests.support.fakes.channel_pool_harness import Bench, opened, published

BLAMED = [f"blamed-{n}" for n in range(20)]


@pytest.fixture
def bench() -> Bench:
    """Two proven exchanges, `x` on channel 1 and `y` on channel 2."""
    made = Bench(blamed=BLAMED)
    made.prove("x", 1)
    made.prove("y", 2)
    return made


def blamed(bench: Bench, count: int = 1, *, attempts: int = 2) -> PublishBatch:
    """Submit blamed messages for `x`, which come back."""
    return bench.submit(batch([claim("x", id=id_, attempts=attempts) for id_ in BLAMED[:count]]))


def seen(bench: Bench, channel: int, marks: int = 1) -> None:
    """The broker has looked at what was written on a channel."""
    for _ in range(marks):
        bench.pipe.handlers[channel].replied(frames.QOS_OK)


def test_a_blamed_message_waits_until_the_broker_has_looked_at_everything_else(bench: Bench) -> None:
    """However slow the queues are: that is no confirm."""
    bench.send("y")
    blamed(bench)
    assert published(1, 2, "y") == bench.pipe.methods()
    seen(bench, 2)
    assert [*opened(3), *published(1, 3)] == bench.pipe.methods()


def test_nothing_is_written_beside_a_blamed_message(bench: Bench) -> None:
    """Neither of its exchange nor of another, until the broker has looked at it."""
    blamed(bench)
    bench.pipe.methods()
    bench.send("x", "y")
    assert [] == bench.pipe.methods()
    seen(bench, 3)
    assert [*published(1), *published(1, 2, "y")] == bench.pipe.methods()


def test_who_was_blamed_once_goes_in_small_groups_and_who_was_twice_goes_by_itself(bench: Bench) -> None:
    """Most were only next to the message at fault."""
    blamed(bench, 20)
    assert [*opened(3), *published(16, 3)] == bench.pipe.methods()
    seen(bench, 3)
    assert published(4, 3) == bench.pipe.methods()
    seen(bench, 3)
    blamed(bench, 2, attempts=3)
    for _ in range(2):
        assert published(1, 3) == bench.pipe.methods()
        seen(bench, 3)
    assert [] == bench.pipe.methods()


def test_others_write_for_as_long_as_they_were_kept_from_it(bench: Bench) -> None:
    """However many blamed messages wait."""
    blamed(bench, 2, attempts=3)
    bench.ahead += 0.5
    bench.send("y")
    bench.pipe.methods()
    seen(bench, 3)
    assert published(1, 2, "y") == bench.pipe.methods()
    seen(bench, 2)
    assert published(1, 3) == bench.pipe.methods(), "nobody else had anything to write"
    bench.ahead += 0.5
    seen(bench, 3)
    blamed(bench, 1, attempts=3)
    bench.pipe.methods()
    bench.send("y")
    bench.ahead += 0.5
    seen(bench, 3)
    assert published(1, 2, "y") == bench.pipe.methods()
    bench.send("y", "y")
    assert published(2, 2, "y") == bench.pipe.methods()


def test_a_broker_that_looks_at_nothing_keeps_neither_for_long(bench: Bench) -> None:
    """A suspect goes although another message is on its way, and others go alongside it, although nothing else happens."""
    bench.send("y")
    blamed(bench)
    bench.pipe.methods()
    bench.elapse(PATIENCE)
    assert [*opened(3), *published(1, 3)] == bench.pipe.methods()
    bench.send("y")
    assert [] == bench.pipe.methods()
    bench.elapse(PATIENCE)
    assert published(1, 2, "y") == bench.pipe.methods()


def test_what_is_kept_from_being_written_is_silent(bench: Bench) -> None:
    """Both what waits for its turn, and what goes to other exchanges while a turn lasts."""
    bench.send("y")
    blamed(bench)
    bench.elapse(0.75)
    assert {"x": 0.75, "y": 0.75} == pytest.approx(bench.pool.silent())
    seen(bench, 2)
    bench.pipe.handlers[2].acked(2, multiple=False)
    bench.send("x", "z")
    assert {"x": 0.75, "z": 0.75} == pytest.approx(bench.pool.silent()), "since others write nothing"
    seen(bench, 3)
    assert {"x": 0.0, "z": 0.0} == pytest.approx(bench.pool.silent()), "all is written"


def test_nobody_looks_again_where_nothing_waits(bench: Bench) -> None:
    """An idle connection costs nothing."""
    blamed(bench)
    assert bench.wakes
    seen(bench, 3)
    bench.elapse(PATIENCE)
    assert [] == bench.wakes


def test_a_blamed_message_without_a_channel_keeps_nobody() -> None:
    """It waits for one as any other does."""
    bench = Bench(channel_max=1, blamed=BLAMED)
    bench.prove("x", 1)
    bench.send("x")
    blamed(bench)
    assert published(1) == bench.pipe.methods()
    bench.pipe.handlers[1].acked(2, multiple=False)
    assert [(1, "Channel.Close")] == bench.pipe.methods()
    bench.pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    assert [*opened(1), *published(1)] == bench.pipe.methods()


def test_what_the_broker_has_looked_at_is_not_suspected(bench: Bench) -> None:
    """When the connection ends, the answer to the mark behind a message shows that the message is not at fault."""
    first, second = bench.send(*["x"] * 17), bench.send("y")
    seen(bench, 1)

    assert [(first, 16), (second, 0)] == bench.pool.suspects()
