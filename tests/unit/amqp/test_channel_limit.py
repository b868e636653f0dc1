"""What is learned of a limit of channels, what is said of it, and when it is forgotten."""

from __future__ import annotations

import pytest

from relay.amqp.channel_limit import FORGETS, HOLDS, ChannelLimit
from relay.events import Event
from relay.events.broker import ChannelsLimited, ChannelsUnlimited


class Rig:
    """A limit with a clock that a test sets, and what it says."""

    def __init__(self, *, spares: bool) -> None:
        self.now = 1000.0
        self.events: list[Event] = []
        self.limit = ChannelLimit(clock=lambda: self.now, emit=self.events.append, spares=spares)


@pytest.mark.parametrize(
    ("asked", "allowed", "expected"),
    [(10, 5, 5), (5, 5, 2), (3, 0, 1), (1, 1, 1), (1, 0, 1)],
    ids=["fewer are allowed", "others have the rest", "no number", "one", "one and no number"],
)
def test_a_receiver_uses_all_that_is_granted_and_half_where_the_number_does_not_explain_it(asked: int, allowed: int, expected: int) -> None:
    """Its queues keep their channels open, so the broker counts none that is closed."""
    rig = Rig(spares=False)
    rig.limit.refused(asked, allowed, sharing=10)
    assert expected == rig.limit.of(2047, sharing=10)
    assert [ChannelsLimited(expected, 10)] == rig.events


def test_a_publisher_leaves_half_unused_and_ignores_what_old_channels_bring_about() -> None:
    """Channels that the broker still counts end the next connection too, which is no news."""
    rig = Rig(spares=True)
    rig.limit.refused(20, 10, sharing=20)
    rig.limit.refused(5, 10, sharing=20)
    assert 5 == rig.limit.of(2047)
    rig.now += FORGETS
    rig.limit.refused(5, 10, sharing=20)
    assert 2 == rig.limit.of(2047)
    assert [ChannelsLimited(5, 20), ChannelsLimited(2, 20)] == rig.events


def test_a_limit_that_the_broker_names_lower_is_learned_at_once() -> None:
    """Also in the seconds in which it still counts channels of before."""
    rig = Rig(spares=True)
    for allowed in (6, 6, 1):
        rig.limit.refused(12, allowed, sharing=12)
    assert [ChannelsLimited(3, 12), ChannelsLimited(1, 12)] == rig.events


@pytest.mark.parametrize("sharing", [0, 10])
def test_a_limit_is_forgotten_by_the_first_connection_after_ten_minutes(sharing: int) -> None:
    """It may have been raised; until then it is kept, and said once, however often the connection is lost."""
    rig = Rig(spares=False)
    rig.limit.refused(10, 4, sharing=10)
    rig.now += HOLDS - 1
    assert [4, 4] == [rig.limit.of(2047, sharing=sharing) for _ in range(2)]
    learned = [rig.limit.is_learned]
    rig.now += 1
    assert 2047 == rig.limit.of(2047, sharing=sharing)
    assert [True, False] == [*learned, rig.limit.is_learned]
    assert [ChannelsLimited(4, 10), ChannelsUnlimited()] == rig.events


def test_what_was_negotiated_is_said_where_it_is_too_little() -> None:
    """Another broker may agree to more."""
    rig = Rig(spares=False)
    assert [3, 3, 0] == [rig.limit.of(negotiated, sharing=10) for negotiated in (3, 3, 0)]
    assert [ChannelsLimited(3, 10), ChannelsUnlimited()] == rig.events
    assert 20 == rig.limit.of(20, sharing=10)
    assert 2 == len(rig.events)


def test_a_limit_is_no_longer_reported_once_nothing_has_waited_for_ten_minutes() -> None:
    """A connection may live for months. Who waits then is reported again."""
    rig = Rig(spares=True)
    rig.limit.shared(8, 20)
    rig.now += HOLDS - 1
    rig.limit.look(waiting=True)
    rig.now += HOLDS - 1
    rig.limit.shared(8, 21)
    rig.now += HOLDS - 1
    rig.limit.look(waiting=False)
    assert [ChannelsLimited(8, 20)] == rig.events
    rig.now += 1
    for _ in range(2):
        rig.limit.look(waiting=False)
    rig.limit.shared(8, 9)
    assert [ChannelsLimited(8, 20), ChannelsUnlimited(), ChannelsLimited(8, 9)] == rig.events
