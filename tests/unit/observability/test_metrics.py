"""What events do to the metrics, and what bounds them."""

from __future__ import annotations

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from relay import events
from relay.events import broker
from relay.observability.metrics import MOST_LABELS, NAMED_AFTER, Metrics
from relay.observability.peer_gauges import PEERS


def scrape(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and label values, as a server would read them."""
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.render()[0].decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples


def after(*told: events.Event) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples after these events."""
    metrics = Metrics(*PEERS)
    for event in told:
        metrics.sink(event)
    return scrape(metrics)


@pytest.mark.ids("D2")
def test_batches_are_counted_by_messages_and_timed() -> None:
    """Two batches of one claim kind and their outcomes."""
    samples = after(
        events.BatchClaimed("fresh", 500, 1000, 0.002),
        events.BatchClaimed("fresh", 3, 1000, 0.2),
        events.BatchSettled(500, 0.004, {"success": 498, "retry": 2}, 0.03),
        events.BatchSettled(3, 0.004, {"success": 3}, 0.03),
    )

    assert {("fresh",): 2} == samples["relay_batches_claimed_total"]
    assert {("fresh",): 503} == samples["relay_messages_claimed_total"]
    assert {("success",): 501, ("retry",): 2} == {words: value for words, value in samples["relay_messages_total"].items() if value}
    assert 0 == samples["relay_messages_total"]["failed",]
    assert 2 == samples["relay_claim_seconds_count"][()] == samples["relay_settle_seconds_count"][()]
    assert 1 == samples["relay_claim_seconds_bucket"]["0.0025",]
    assert pytest.approx(0.06) == samples["relay_publish_seconds_sum"][()]


def test_what_went_wrong_is_counted() -> None:
    """Dead by code, lost locks by message, swept locks by where they went, failed steps."""
    samples = after(
        events.MessageDead("a", "failed", "unroutable", "", "orders"),
        events.MessageDead("b", "rejected", "too_large", "", "orders"),
        events.LockLost(("a", "b", "c")),
        events.LocksSwept(released=4, archived=1),
        events.StrandedFound(2),
        events.SettleFailed(10, "away", 1),
        events.MaintenanceFailed("sweep", "away"),
    )

    assert {("unroutable",): 1, ("too_large",): 1} == samples["relay_dead_total"]
    assert {(): 3} == samples["relay_lock_lost_total"]
    assert {("queue",): 4, ("archive",): 1} == samples["relay_swept_total"]
    assert {(): 2} == samples["relay_stranded_total"]
    assert {("settle",): 1, ("sweep",): 1} == samples["relay_failures_total"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ((), (0, 0, 0, 0)),
        ((broker.BrokerUp("4"), events.Started(1, "a", "public"), events.ListenUp()), (1, 0, 1, 1)),
        ((broker.BrokerUp("4"), broker.BrokerBlocked("memory")), (1, 1, 0, 0)),
        ((broker.BrokerUp("4"), broker.BrokerBlocked("memory"), broker.BrokerUnblocked()), (1, 0, 0, 0)),
        ((broker.BrokerUp("4"), broker.BrokerBlocked("memory"), broker.BrokerDown("gone", 1)), (0, 0, 0, 0)),
        ((events.DatabaseUp(), events.ListenUp(), events.DatabaseDown("gone", 1), events.ListenDown("gone")), (0, 0, 0, 0)),
    ],
)
def test_connections_show_as_they_are(told: tuple[events.Event, ...], expected: tuple[float, ...]) -> None:
    """Broker up and blocked, database up, LISTEN up; LISTEN shows when it was first tried."""
    samples = {"relay_listen_up": {(): 0.0}} | after(*told)

    names = ("broker_up", "broker_blocked", "database_up", "listen_up")
    assert expected == tuple(samples[f"relay_{name}"][()] for name in names)


@pytest.mark.parametrize("peer", PEERS)
def test_what_a_process_never_works_with_is_not_shown_as_down(peer: str) -> None:
    """An alert on it would never end."""
    others = {name for other in PEERS if other != peer for name in PEERS[other]}

    assert set(PEERS[peer]) == set(scrape(Metrics(peer))) & {*others, *PEERS[peer], "relay_listen_up"}


def test_channels_that_are_too_few_show_until_there_are_enough() -> None:
    """A gauge, which is 0 where nothing is limited."""
    limited = broker.ChannelsLimited(2, 10)
    shown = [after(*told)["relay_broker_channel_limit"][()] for told in ((), (limited,), (limited, broker.ChannelsUnlimited()))]
    assert [0, 2, 0] == shown


def test_what_the_relay_holds_is_asked_at_the_scrape() -> None:
    """The figures of messages in flight and silent exchanges are never stale."""
    metrics, held = Metrics(), [7]
    metrics.watch(in_flight=lambda: held[0], silent=lambda: {"orders": 2.5}, apart=lambda: 3)
    assert 7 == scrape(metrics)["relay_in_flight"][()]
    held[0] = 8

    samples = scrape(metrics)

    assert 8 == samples["relay_in_flight"][()]
    assert {("other",): 2.5} == samples["relay_silent_exchange_seconds"]
    assert {(): 3.0} == samples["relay_exchanges_apart"]


def test_the_queue_is_shown_as_it_was_last_read() -> None:
    """Columns that are no metric are left out, and so is what the database does not know."""
    metrics = Metrics("queue")
    assert 0 == scrape(metrics)["relay_queue_read_timestamp_seconds"][()]

    metrics.queue({"waiting": 12, "oldest_seconds": None, "dead_unacknowledged": 3, "counted": True})

    samples = scrape(metrics)
    assert {"relay_queue_waiting": {(): 12}, "relay_queue_dead_unacknowledged": {(): 3}} == {
        name: values for name, values in samples.items() if name.startswith("relay_queue_") and "timestamp" not in name
    }
    assert time.time() - samples["relay_queue_read_timestamp_seconds"][()] < 60


def test_labels_that_messages_name_are_bounded() -> None:
    """A thousand codes and exchanges do not make a thousand series."""
    metrics = Metrics()
    metrics.watch(in_flight=lambda: 0, silent=lambda: {f"exchange{number}": number for number in range(1000)})
    for number in range(1000):
        metrics.sink(events.MessageDead("id", "failed", f"code{number}", "", f"exchange{number}"))

    samples = scrape(metrics)

    assert MOST_LABELS + 1 == len(samples["relay_dead_total"])
    assert 1000 - MOST_LABELS == samples["relay_dead_total"]["other",]
    assert MOST_LABELS + 1 == len(samples["relay_silent_exchange_seconds"])
    assert {("exchange999",): 999, ("other",): 999 - MOST_LABELS}.items() <= samples["relay_silent_exchange_seconds"].items()


def test_ever_new_exchanges_make_no_ever_new_series() -> None:
    """Those that were silent for long keep their labels to the end of the process; the longest silence of all others has one of its own."""
    metrics, silent = Metrics(), {"orders": 60.0}
    metrics.watch(in_flight=lambda: 0, silent=lambda: silent)
    scrape(metrics)
    labels: set[tuple[str, ...]] = set()
    for scraped in range(100):
        silent = {f"exchange{scraped}-{number}": 11.0 + number for number in range(50)} | {"orders": 3.0}
        shown = scrape(metrics)["relay_silent_exchange_seconds"]
        labels |= shown.keys()

    assert MOST_LABELS + 1 == len(labels)
    assert {("orders",): 3.0, ("other",): 60.0} == shown


def test_an_exchange_is_named_once_it_was_silent_for_some_seconds() -> None:
    """A busy relay waits for the confirms of many at each scrape, which takes no labels."""
    metrics = Metrics()
    silent = {f"exchange{number}": 0.5 for number in range(1000)}
    metrics.watch(in_flight=lambda: 0, silent=lambda: silent)
    assert {("other",): 0.5} == scrape(metrics)["relay_silent_exchange_seconds"]

    silent |= {"orders": NAMED_AFTER + 1}

    assert {("orders",): NAMED_AFTER + 1, ("other",): 0.5} == scrape(metrics)["relay_silent_exchange_seconds"]


def test_each_relay_has_a_registry_of_its_own() -> None:
    """Two relays in one process do not add up, and nothing lands in the library's global registry."""
    one, two = Metrics(), Metrics()
    one.sink(events.StrandedFound(5))
    one.present(name="one", schema="public", version="1")

    assert 0 == scrape(two)["relay_stranded_total"][()]
    assert {("one", "public", "1"): 1} == scrape(one)["relay_info"]
    assert "process_resident_memory_bytes" in scrape(one)


def test_a_scraper_may_ask_for_openmetrics() -> None:
    """The format follows the Accept header."""
    page, kind = Metrics().render("application/openmetrics-text; version=1.0.0")

    assert kind.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")
    assert Metrics().render()[1].startswith("text/plain")


def test_an_event_costs_next_to_nothing() -> None:
    """A batch of five hundred messages is two events; together far below a microsecond a message."""
    metrics = Metrics()
    claimed = events.BatchClaimed("fresh", 500, 1000, 0.002)
    settled = events.BatchSettled(500, 0.004, {"success": 500}, 0.03)
    best = min(_timed(metrics, claimed, settled) for _ in range(5))

    assert best / 500 < 1e-6


def _timed(metrics: Metrics, *told: events.Event) -> float:
    began = time.perf_counter()
    for _ in range(100):
        for event in told:
            metrics.sink(event)
    return (time.perf_counter() - began) / 100
