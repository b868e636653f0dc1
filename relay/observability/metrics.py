"""Prometheus metrics, from events and from the relay's state at each scrape. No ids, no routing keys, few label values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from relay import events
from relay.events import broker as broker_events
from relay.events.contracts import ContractBroken, ContractsHeld, ContractUnusable
from relay.events.inbox import BatchReceived, HandlerFailed, HandlerOverdue, ReceiveFailed
from relay.events.schedules import KeysFolded
from relay.message import Result
from relay.observability.peer_gauges import PeerGauges
from relay.observability.queue_gauges import GAUGES, named

MOST_LABELS = 50
"""Most values of one label; further values are counted under `other`, because messages may name any number of codes and exchanges."""
OTHER = "other"
NAMED_AFTER = 10.0
"""Seconds of silence after which an exchange gets a label. Any exchange waits briefly for confirms, and would otherwise use up a label."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Metrics in their own registry: `sink` counts events, `render` returns the page.

    Args:
        peers: the servers with which the process works, see `relay.observability.peer_gauges.PEERS`.

    """

    def __init__(self, *peers: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self._state, self._peers = _RelayState(), PeerGauges(*peers)
        registry.register(self._state)
        registry.register(self._peers)
        ProcessCollector(registry=registry)
        self._add_messages(registry)
        self._add_outcomes(registry)
        self._codes = _LabelValues()
        self._exchanges = _LabelValues()
        self._handlers_by_kind = self._handlers()
        self._begin_at_zero()

    def _add_messages(self, registry: CollectorRegistry) -> None:
        self._info = Gauge("relay_info", "The relay, always 1.", ["name", "schema", "version"], registry=registry)
        self._messages = Counter(
            "relay_messages", "Settled messages by result; also retry, released, kept, lost.", ["result"], registry=registry
        )
        self._claimed = Counter("relay_messages_claimed", "Claimed messages by kind of claim.", ["source"], registry=registry)
        self._batches = Counter("relay_batches_claimed", "Claims that found something, by kind.", ["source"], registry=registry)
        self._claim = Histogram("relay_claim_seconds", "Time of a claim that found something.", buckets=_SECONDS, registry=registry)
        self._publish = Histogram("relay_publish_seconds", "From write to last confirm of a batch.", buckets=_SECONDS, registry=registry)
        self._settle = Histogram("relay_settle_seconds", "Time of a settle.", buckets=_SECONDS, registry=registry)

    def _add_outcomes(self, registry: CollectorRegistry) -> None:
        self._lost = Counter("relay_lock_lost", "Messages that another relay took over before they were settled.", registry=registry)
        self._swept = Counter("relay_swept", "Expired locks by where their message went.", ["to"], registry=registry)
        self._stranded = Counter("relay_stranded", "Messages found below every cursor; should stay 0.", registry=registry)
        self._dead = Counter("relay_dead", "Messages archived dead, by code.", ["code"], registry=registry)
        self._received = Counter("relay_received", "Deliveries: new, known already, rejected.", ["outcome"], registry=registry)
        self._folded = Counter("relay_keys_folded", "Messages with a key by what a fold made of them.", ["outcome"], registry=registry)
        self._failures = Counter("relay_failures", "Steps that failed and are tried again.", ["step"], registry=registry)
        self._contracts = Gauge("relay_contracts", "Message contracts by mode.", ["mode"], registry=registry)
        self._broken = Counter(
            "relay_contract_warnings", "Checks in which a message broke a contract whose mode is warn.", ["exchange"], registry=registry
        )

    def sink(self, event: events.Event) -> None:
        """Count an event; see `relay.events.Sink`."""
        self._peers.sink(event)
        handle = self._handlers_by_kind.get(type(event))
        if handle is not None:
            handle(event)

    def watch(
        self,
        *,
        in_flight: Callable[[], int],
        silent: Callable[[], Mapping[str, float]],
        apart: Callable[[], int] = lambda: 0,
        behind: Callable[[], int] = lambda: 0,
    ) -> None:
        """Set the functions called at each scrape.

        Args:
            in_flight: returns how many messages are in flight.
            silent: returns the seconds without a confirm, by exchange.
            apart: returns how many exchanges are split off.
            behind: returns how many exchanges have messages that wait for a limit.

        """
        self._state.in_flight = in_flight
        self._state.silent = silent
        self._state.apart = apart
        self._state.behind = behind

    def queue(self, status: Mapping[str, float | None]) -> None:
        """Set the gauges from the newest row of `queue_message_status`; columns without a metric are ignored."""
        self._state.status = {name: float(value) for name, value in status.items() if name in GAUGES and value is not None}
        self._peers.queue_read()

    def present(self, *, name: str, schema: str, version: str) -> None:
        """Set the labels of `relay_info`."""
        self._info.labels(name, schema, version).set(1)

    async def page(self, accept: str = "") -> tuple[bytes, str]:
        """Like `render`, but in a thread, so that the event loop is not blocked."""
        self._state.read()
        return await asyncio.to_thread(self._encode, accept)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type, in the format of the Accept header."""
        self._state.read()
        return self._encode(accept)

    def _encode(self, accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _begin_at_zero(self) -> None:
        """Create series early, because a rate or an alert needs them before their first message."""
        for word in (*(result.value for result in Result), "retry", "released", "kept", "lost"):
            self._messages.labels(word)
        for place in ("queue", "archive"):
            self._swept.labels(place)
        self._failures.labels("settle")

    def _handlers(self) -> dict[type[events.Event], Callable[[events.Event], None]]:
        return {
            events.BatchClaimed: self._on_claimed,
            events.BatchSettled: self._on_settled,
            events.MessageDead: self._on_dead,
            events.LockLost: self._on_lost,
            events.LocksSwept: self._on_swept,
            events.StrandedFound: self._on_stranded,
            events.SettleFailed: lambda _: self._failures.labels("settle").inc(),
            BatchReceived: self._on_received,
            ReceiveFailed: lambda _: self._failures.labels("receive").inc(),
            HandlerFailed: lambda _: self._failures.labels("handler").inc(),
            HandlerOverdue: lambda _: self._failures.labels("handler_overdue").inc(),
            KeysFolded: self._on_folded,
            events.MaintenanceFailed: self._on_failed,
            ContractBroken: self._on_contract_broken,
            ContractsHeld: self._on_contracts_held,
            ContractUnusable: lambda _: self._contracts.labels("unusable").inc(),
            broker_events.ExchangeQuarantined: lambda _: self._failures.labels("channel").inc(),
        }

    def _on_claimed(self, event: events.Event) -> None:
        assert isinstance(event, events.BatchClaimed)
        self._batches.labels(event.source).inc()
        self._claimed.labels(event.source).inc(event.messages)
        self._claim.observe(event.seconds)

    def _on_settled(self, event: events.Event) -> None:
        assert isinstance(event, events.BatchSettled)
        for result, messages in event.outcomes.items():
            self._messages.labels(result).inc(messages)
        self._settle.observe(event.seconds)
        self._publish.observe(event.publish_seconds)

    def _on_received(self, event: events.Event) -> None:
        assert isinstance(event, BatchReceived)
        for outcome, deliveries in (("new", event.new), ("known", event.known), ("rejected", event.rejected)):
            self._received.labels(outcome).inc(deliveries)

    def _on_folded(self, event: events.Event) -> None:
        """Count the messages of a fold. Messages that the fold refused count as sent, although they are dead."""
        assert isinstance(event, KeysFolded)
        sent = max(event.messages - event.superseded - event.bundled, 0)
        for outcome, messages in (("sent", sent), ("superseded", event.superseded), ("bundled", event.bundled)):
            self._folded.labels(outcome).inc(messages)

    def _on_dead(self, event: events.Event) -> None:
        assert isinstance(event, events.MessageDead)
        self._dead.labels(self._codes.label(event.code)).inc()

    def _on_contract_broken(self, event: events.Event) -> None:
        assert isinstance(event, ContractBroken)
        self._broken.labels(self._exchanges.label(event.exchange)).inc()

    def _on_contracts_held(self, event: events.Event) -> None:
        """Set the number of contracts; a separate event follows for each unreadable contract."""
        assert isinstance(event, ContractsHeld)
        for mode, contracts in (("enforce", event.enforced), ("warn", event.warned), ("unusable", 0)):
            self._contracts.labels(mode).set(contracts)

    def _on_lost(self, event: events.Event) -> None:
        assert isinstance(event, events.LockLost)
        self._lost.inc(len(event.ids))

    def _on_swept(self, event: events.Event) -> None:
        assert isinstance(event, events.LocksSwept)
        self._swept.labels("queue").inc(event.released)
        self._swept.labels("archive").inc(event.archived)

    def _on_stranded(self, event: events.Event) -> None:
        assert isinstance(event, events.StrandedFound)
        self._stranded.inc(event.messages)

    def _on_failed(self, event: events.Event) -> None:
        assert isinstance(event, events.MaintenanceFailed)
        self._failures.labels(event.step).inc()


class _LabelValues:
    """The first `MOST_LABELS` values of a label."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def __contains__(self, value: str) -> bool:
        return value in self._values

    def label(self, value: str) -> str:
        if value not in self._values:
            if len(self._values) >= MOST_LABELS:
                return OTHER
            self._values.add(value)
        return value


class _RelayState(Collector):
    """Gauges that are read at each scrape."""

    def __init__(self) -> None:
        self.in_flight: Callable[[], int] | None = None
        self.silent: Callable[[], Mapping[str, float]] | None = None
        self.apart: Callable[[], int] = lambda: 0
        self.behind: Callable[[], int] = lambda: 0
        self.status: Mapping[str, float] = {}
        self._silent_exchanges = _LabelValues()
        self._last_read: Sequence[Metric] = ()

    def read(self) -> None:
        """Read the state. Call this only on the event loop, because the state is not thread-safe."""
        self._last_read = list(self._gauges())

    def collect(self) -> Sequence[Metric]:
        """The gauges of the last read."""
        return self._last_read

    def _gauges(self) -> Iterator[Metric]:
        if self.in_flight is not None:
            yield GaugeMetricFamily("relay_in_flight", "Messages claimed and not yet settled.", value=self.in_flight())
        yield GaugeMetricFamily(
            "relay_exchanges_apart", "Exchanges claimed apart: paused, silent, flooding or limited.", value=self.apart()
        )
        yield GaugeMetricFamily("relay_exchanges_behind", "Exchanges whose limits keep messages waiting.", value=self.behind())
        if self.silent is not None:
            yield _silent(self.silent(), self._silent_exchanges)
        for name, value in self.status.items():
            yield GaugeMetricFamily(named(name), GAUGES[name], value=value)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, because the names are known only at a scrape."""
        return []


def _silent(seconds: Mapping[str, float], named: _LabelValues) -> Metric:
    """The silence of each exchange that has a label, and the longest silence of all other exchanges."""
    family = GaugeMetricFamily(
        "relay_silent_exchange_seconds",
        "By exchange, the longest wait for a confirm, for the end of a check, or for a check or write to begin.",
        labels=["exchange"],
    )
    longest: dict[str, float] = {}
    for exchange, silence in sorted(seconds.items(), key=lambda one: -one[1]):
        longest.setdefault(named.label(exchange) if silence > NAMED_AFTER or exchange in named else OTHER, silence)
    for label, silence in longest.items():
        family.add_metric([label], silence)
    return family
