"""What is reported to an orchestrator of a relay that cannot settle."""

from __future__ import annotations

from relay import events
from relay.events import broker
from relay.observability.health import Health

UP = (events.Started(1, "one", "public"), broker.BrokerUp("4.0"))


def told(*learned: events.Event) -> dict[str, str]:
    """The reasons after a start and these events."""
    health = Health("database", "broker")
    for event in (*UP, *learned):
        health.sink(event)
    return dict(health.reasons)


def test_a_settle_that_stands_still_is_a_reason_until_one_is_written() -> None:
    """As where the archive has no partition for today and the relay cannot make it."""
    failed = events.SettleFailed(4, "The archive has no partition for today.", 2)

    assert {"settle": "What was sent cannot be settled: The archive has no partition for today."} == told(failed)
    assert {} == told(failed, events.BatchSettled(4, 0.1))


def test_a_settle_that_failed_once_is_none() -> None:
    """A missing partition is made after the first try, and a row that the archive refuses keeps no other."""
    assert {} == told(events.SettleFailed(1, "The archive refuses it.", 1))


def test_too_few_channels_are_a_note_and_no_reason_until_there_are_enough() -> None:
    """Messages move, more slowly: the relay stays ready, and says why."""
    health = Health("database", "broker")
    for event in (*UP, broker.ChannelsLimited(2, 10)):
        health.sink(event)

    assert {} == health.reasons
    few = "The broker grants 2 channels, at which 10 exchanges or queues take turns: raise max-channels or channel_max."
    assert {"channels": few} == health.notes
    health.sink(broker.ChannelsUnlimited())
    assert {} == health.notes
