"""Whether the relay is ready to move messages, and the reasons if not; derived from events."""

from __future__ import annotations

from collections.abc import Mapping

from relay import events
from relay.events import broker

NOT_READY_ATTEMPT = 2
"""The relay is not ready after this many failed attempts of one settle. After the first attempt the relay itself creates a missing
partition; a row that the archive refuses gets no second attempt."""


class Health:
    """Collects from events the reasons for not being ready, by peer."""

    def __init__(self, *peers: str) -> None:
        self._reasons = {peer: f"The {peer} has not answered yet." for peer in peers}
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
                self._reasons["stopping"] = "The relay is shutting down."
            case events.ListenUp():
                self._listen = "up"
            case events.ListenDown():
                self._listen = event.error
            case _:
                self._update_details(event)

    def _update_details(self, event: events.Event) -> None:
        match event:
            case events.SettleFailed() if event.attempt >= NOT_READY_ATTEMPT:
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
        """Reasons for not being ready, by subject; empty means ready."""
        return dict(self._reasons)

    @property
    def notes(self) -> Mapping[str, str]:
        """Conditions that slow messages down but do not stop them, by subject."""
        return dict(self._notes)

    @property
    def listen(self) -> str:
        """State of LISTEN, for information: without LISTEN the relay still polls."""
        return self._listen
