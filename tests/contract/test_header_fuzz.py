"""Random headers and options against every kind of queue: whatever a row holds, the messages of its neighbours arrive."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from relay import local
from relay.broker_events import BrokerUp
from relay.message import Claim, Verdict
from tests.support.doc_tables import ROOT
from tests.support.hostile_options import HEADERS, VALUES, options
from tests.support.publishing import Publishing, claim, publishing
from tests.support.queue_kinds import ENDS, PLUGINS, Lab, watching
from tests.support.servers import Say

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "20"))
"""Each sends a value under every name, and other options, to each kind of queue. Where the number is given, each run draws other ones."""
SECONDS = 20.0
"""After which a neighbour's message does not come any more, on any machine."""
HARMFUL = {"broker_refused", "connection_lost", "access_refused", "exchange_missing"}
"""Codes of a row over which the broker closed a channel or the connection: no options may lead there."""
CHUNKS = 8
"""Messages among which the names are spread."""
FULL = "rejecting"
"""The kind whose queue refuses what comes before its consumer has taken the message before."""


class Labs:
    """The lab in use; one in which something died is replaced."""

    def __init__(self, node: local.RabbitMQ) -> None:
        self._node = node
        self.lab: Lab | None = None

    async def ready(self) -> Lab:
        """Return a lab in which everything works."""
        if self.lab is None:
            made = Lab(self._node, f"fuzz{secrets.token_hex(3)}")
            await made.build()
            self.lab = made
        return self.lab

    def discard(self) -> None:
        """Remove the lab."""
        made, self.lab = self.lab, None
        if made:
            made.remove()


@pytest.fixture(scope="module")
def labs(say: Say) -> Iterator[Labs]:
    """Labs on a private node with federation and shovels."""
    with local.rabbitmq(say=say, private=True, plugins=PLUGINS) as node:
        yield Labs(node)


def documented() -> set[str]:
    """Codes that an operator finds on the page."""
    lines = (ROOT / "docs" / "codes.md").read_text(encoding="utf-8").splitlines()
    return {line.split("`")[1] for line in lines if line.startswith("| `")}


def under_every_name(value: Any) -> list[dict[str, Any]]:
    """Options that give a header of each name this value: several in a message, so that each kind of queue gets few messages."""
    return [{"headers": dict.fromkeys(HEADERS[start::CHUNKS], value)} for start in range(CHUNKS)]


async def _send(broker: Publishing, claims: list[Claim]) -> list[Verdict]:
    results = await broker.send(claims)
    for one, result in zip(claims, results, strict=True):
        assert result.verdict not in {Verdict.UNKNOWN, Verdict.UNWRITTEN}, (one.options, result)
        assert not result.code or result.code in documented() - HARMFUL, (one.options, result)
    return [result.verdict for result in results]


async def _each_neighbour_arrives(lab: Lab, drawn: list[dict[str, Any]]) -> None:
    hostile = [claim(lab.exchange, kind, options=json.dumps(given_)) for given_ in drawn for kind in ENDS]
    neighbours = {kind: claim(lab.exchange, kind) for kind in ENDS}
    async with watching(lab) as arrivals, publishing(lab.url) as broker:
        await _send(broker, [*hostile, *(one for kind, one in neighbours.items() if kind != FULL)])
        async with asyncio.timeout(SECONDS):
            while await _send(broker, [neighbours[FULL]]) != [Verdict.CONFIRMED]:
                pass  # each answer of the broker is a pause
        assert {} == await arrivals.wait_for({kind: [one.id] for kind, one in neighbours.items()}, seconds=SECONDS)
        assert 1 == len(broker.seen.of(BrokerUp))
    came = {kind: Counter(arrivals.of(kind))[one.id] for kind, one in neighbours.items()}
    assert dict.fromkeys(neighbours, 1) == came


@pytest.mark.slow
@pytest.mark.timeout(600 + 30 * EXAMPLES)
@settings(
    max_examples=EXAMPLES, derandomize="FUZZ_EXAMPLES" not in os.environ, database=None, report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)  # fmt: skip
@given(value=VALUES, drawn=st.lists(options(ENDS), max_size=4))
def test_no_options_harm_a_neighbour_in_any_kind_of_queue(labs: Labs, value: Any, drawn: list[dict[str, Any]]) -> None:
    """No queue, link or consumer ends, no channel is closed, and what refuses a row has a code on the page."""

    async def play() -> None:
        await _each_neighbour_arrives(await labs.ready(), [*under_every_name(value), *drawn])

    try:
        asyncio.run(play())
    except BaseException:
        labs.discard()
        raise
