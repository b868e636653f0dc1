"""Gauges of the peers with which a process works. Other peers have no gauges, because an alert on such a gauge would never end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from relay import events
from relay.events import broker

DATABASE_UP, BROKER_UP, LISTEN_UP = "relay_database_up", "relay_broker_up", "relay_listen_up"
BLOCKED, CHANNELS, QUEUE_READ = "relay_broker_blocked", "relay_broker_channel_limit", "relay_queue_read_timestamp_seconds"
HELP = {
    DATABASE_UP: "1 while the database answers.",
    BROKER_UP: "1 while the broker connection is up.",
    BLOCKED: "1 while the broker has a resource alarm.",
    CHANNELS: "Channels granted where more are needed, else 0.",
    QUEUE_READ: "When the queue was last read, 0 for never.",
    LISTEN_UP: "1 while LISTEN has proved itself alive.",
}
PEERS = {"database": (DATABASE_UP,), "broker": (BROKER_UP, BLOCKED, CHANNELS), "queue": (QUEUE_READ,)}
"""The gauges of each peer."""


class PeerGauges(Collector):
    """The gauges of these peers, which are 0 until an event sets them. The gauge of LISTEN appears after the first try."""

    def __init__(self, *peers: str) -> None:
        self._values = {name: 0.0 for peer in peers for name in PEERS[peer]}

    def sink(self, event: events.Event) -> None:
        """Learn from an event; see `relay.events.Sink`."""
        match event:
            case events.Started() | events.DatabaseUp():
                self._values[DATABASE_UP] = 1
            case events.DatabaseDown():
                self._values[DATABASE_UP] = 0
            case broker.BrokerUp() | broker.BrokerDown():
                self._values |= {BROKER_UP: isinstance(event, broker.BrokerUp), BLOCKED: 0}
            case broker.BrokerBlocked() | broker.BrokerUnblocked():
                self._values[BLOCKED] = isinstance(event, broker.BrokerBlocked)
            case broker.ChannelsLimited():
                self._values[CHANNELS] = event.channels
            case broker.ChannelsUnlimited():
                self._values[CHANNELS] = 0
            case events.ListenUp() | events.ListenDown():
                self._values[LISTEN_UP] = isinstance(event, events.ListenUp)

    def queue_read(self) -> None:
        """Note that the queue's figures were read just now."""
        self._values[QUEUE_READ] = time.time()

    def collect(self) -> Iterator[Metric]:
        """The current gauges; may be called in any thread."""
        for name, value in dict(self._values).items():
            yield GaugeMetricFamily(name, HELP[name], value=value)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, because the names are known only at a scrape."""
        return []
