"""What a relay's process shows a scraper; start it with RELAY_HTTP_PORT=0."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.support.queue import until
from tests.support.relays import RelayProcess

HTTP = {"RELAY_HTTP_PORT": "0"}
"""The setting that makes a relay serve its pages on any free port."""


async def page(relay: RelayProcess, path: str = "/metrics") -> str:
    """One of a relay's pages, also one that says 503."""
    at = await relay.logged("http_up")
    return await asyncio.to_thread(_read, f"http://127.0.0.1:{at['port']}{path}")


async def metric(relay: RelayProcess, name: str, **labels: str) -> float:
    """A metric's value now, the sum over what has these labels; 0 where there is none."""
    families = text_string_to_metric_families(await page(relay))
    samples = (sample for family in families for sample in family.samples if sample.name == name)
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


async def shows(relay: RelayProcess, name: str, value: float, seconds: float = 30, **labels: str) -> None:
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
