"""What a relay's process shows a scraper; start it with RELAY_HTTP_PORT=0."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.database.queue import PATIENCE, until
from tests.support.relays.processes import RelayProcess

HTTP = {"RELAY_HTTP_PORT": "0"}
"""The setting that makes a relay serve its pages on any free port."""
READ_AT = "relay_queue_read_timestamp_seconds"
LOOKED_UP = ("relay_queue_", "relay_clock_", "relay_export_", "relay_schedules_")
"""How the names of metrics begin that the database is asked for."""


async def page(relay: RelayProcess, path: str = "/metrics") -> str:
    """One of a relay's pages, also one that says 503.

    Raises:
        AssertionError: it does not answer, and what it said last.
    """
    at = await relay.logged("http_up")
    try:
        return await asyncio.to_thread(_read, f"http://127.0.0.1:{at['port']}{path}")
    except OSError as error:
        raise AssertionError(f"{relay.name} does not answer ({error}): {await relay.last_words()}") from error


async def metric(relay: RelayProcess, name: str, **labels: str) -> float:
    """A metric's value now, the sum over what has these labels; 0 where nothing has them yet.

    What the database is asked for appears with the relay's first look at the queue, which is waited for.

    Raises:
        LookupError: the relay has no such metric.
    """
    if name.startswith(LOOKED_UP) and name != READ_AT:
        await until(lambda: has_looked(relay))
    return value_of(await page(relay), name, **labels)


async def counted(relay: RelayProcess, least: float, name: str, **labels: str) -> float:
    """A metric's value as soon as it is at least so much.

    An outcome is counted when the relay hears that it was settled, a moment after everybody else can see it.
    """

    async def is_told() -> bool:
        return await metric(relay, name, **labels) >= least

    await until(is_told)
    return await metric(relay, name, **labels)


async def has_looked(relay: RelayProcess) -> bool:
    """The relay has looked at the queue, and shows what it saw."""
    return await metric(relay, READ_AT) > 0


def value_of(text: str, name: str, **labels: str) -> float:
    """As `metric`, of a page that was read."""
    families = {sample_name: family for family in text_string_to_metric_families(text) for sample_name in _names(family)}
    if name not in families:
        raise LookupError(f"there is no metric {name} among {sorted(families)}")
    return sum(sample.value for sample in families[name].samples if sample.name == name and labels.items() <= sample.labels.items())


def _names(family: Metric) -> set[str]:
    """The names of a family's samples, also where it has none yet."""
    first = f"{family.name}_total" if family.type == "counter" else family.name
    return {first, *(sample.name for sample in family.samples)}


async def shows(relay: RelayProcess, name: str, value: float, seconds: float = PATIENCE, **labels: str) -> None:
    """Wait until a metric has a value."""

    async def reached() -> bool:
        return await metric(relay, name, **labels) == value

    await until(reached, seconds)


async def shows_flow(relay: RelayProcess) -> bool:
    """Messages are settled between two scrapes, by the metric."""
    before = await metric(relay, "relay_messages_total", result="success")
    return await metric(relay, "relay_messages_total", result="success") > before


def _read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - its own page
            return str(answer.read().decode())
    except urllib.error.HTTPError as unready:
        return unready.read().decode()
