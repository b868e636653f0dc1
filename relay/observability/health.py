"""Whether the relay could move a message now, and what keeps it; learned from events."""

from __future__ import annotations

from collections.abc import Mapping

from relay import events
from relay.events import broker

STANDS = 2
"""Failed tries of one settle after which the relay stands still: the first finds a missing partition, which the relay makes itself, and a
row that the archive refuses never has a second."""


class Health:
    """What stands in the way, by peer; `sink` takes events."""

    def __init__(self, *peers: str) -> None:
        self._reasons = {peer: f"The {peer} has not answered yet." for peer in peers or ("database", "broker")}
        self._notes: dict[str, str] = {}
        self._listen = "has not been heard yet"

    def sink(self, event: events.Event) -> None:
        """Learn from an event; see `relay.events.Sink`."""
        match event:
            case events.DatabaseDown():
                self._reasons["database"] = event.error
            case events.DatabaseUp() | events.Started():
                self._reasons.pop("database", None)
            case broker.BrokerDown():
                self._reasons["broker"] = event.error
                self._reasons.pop("blocked", None)
            case broker.BrokerUp():
                self._reasons.pop("broker", None)
                self._reasons.pop("blocked", None)
            case broker.BrokerBlocked():
                self._reasons["blocked"] = f"The broker has a resource alarm: {event.reason}"
            case broker.BrokerUnblocked():
                self._reasons.pop("blocked", None)
            case events.Stopping():
                self._reasons["stopping"] = "The relay is about to leave."
            case events.ListenUp():
                self._listen = "up"
            case events.ListenDown():
                self._listen = event.error
            case _:
                self._further(event)

    def _further(self, event: events.Event) -> None:
        match event:
            case events.SettleFailed() if event.attempt >= STANDS:
                self._reasons["settle"] = f"What was sent cannot be settled: {event.error}"
            case events.BatchSettled():
                self._reasons.pop("settle", None)
            case broker.ChannelsLimited():
                self._notes["channels"] = event.sentence
            case broker.ChannelsUnlimited():
                self._notes.pop("channels", None)
            case _:
                pass

    @property
    def reasons(self) -> Mapping[str, str]:
        """Sentences by what they are about; empty while messages can move."""
        return dict(self._reasons)

    @property
    def notes(self) -> Mapping[str, str]:
        """What slows messages down and stops none, as sentences by what they are about."""
        return dict(self._notes)

    @property
    def listen(self) -> str:
        """For information: without LISTEN the poll goes on."""
        return self._listen
