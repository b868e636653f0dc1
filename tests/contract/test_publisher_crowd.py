"""Thousands of exchanges at once, most of which do not exist: those that do are as quick as ever."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from relay.events.broker import BrokerUp, ExchangeQuarantined
from relay.message import CONFIRMED, PublishResult, Verdict
from tests.support.broker.publishing import Publishing, claim, publishing
from tests.support.broker.topology import Topology

MISSING = 4000
"""As many messages as a relay has in flight at most."""
PROMPT = 2.0
"""Seconds of this process's time in which a message of another exchange goes out, as promised. Measured: 0.01 to 0.3, once 1.3."""
FEW = 400
"""Missing exchanges that the broker answers for meanwhile. Measured: 31 to 77."""
MOST_CHANNELS = 100


async def send_missing(broker: Publishing, prefix: str) -> list[PublishResult]:
    """Two messages for each missing exchange, in batches of a thousand."""
    claims = [claim(f"{prefix}.{number}") for number in range(MISSING) for _ in range(2)]
    sends = [broker.send(claims[start : start + 1000], seconds=600) for start in range(0, len(claims), 1000)]
    return [result for send in await asyncio.gather(*sends) for result in send]


@pytest.mark.ids("C9", "C15")
@pytest.mark.timeout(120)
async def test_thousands_of_missing_exchanges_slow_neither_a_known_nor_a_new_one(amqp_url: str, topology: Topology, unique: str) -> None:
    """Each is asked for once; few channels are open at a time, and the connection stays.

    4,000 in flight were not all answered within 4 minutes when each channel that opened or closed was a look at every exchange.
    """
    known = await topology.declare(f"{unique}.known", f"{unique}.known")
    new = [await topology.declare(f"{unique}.new.{number}", f"{unique}.new.{number}") for number in range(3)]
    async with publishing(amqp_url) as broker:
        assert [CONFIRMED] == await broker.send([claim(known.exchange, known.routing_key)])
        flood = asyncio.create_task(send_missing(broker, unique))
        await asyncio.sleep(0)
        for made in (known, new[0], known, new[1], known, new[2]):
            began, refused = time.process_time(), len(broker.seen.of(ExchangeQuarantined))
            assert [CONFIRMED] == await broker.send([claim(made.exchange, made.routing_key)])
            assert time.process_time() - began < PROMPT
            assert len(broker.seen.of(ExchangeQuarantined)) - refused < FEW
            assert len(broker.publisher._session._pipe.handlers) <= MOST_CHANNELS  # type: ignore[union-attr] # nothing else shows it
        results = await flood
        assert 1 == len(broker.seen.of(BrokerUp))
        asked = Counter(event.exchange for event in broker.seen.of(ExchangeQuarantined))
    assert {1} == {*asked.values()}
    assert 2 * len(asked) == sum(result.verdict is Verdict.REFUSED for result in results) > 0
    assert {"exchange_missing"} == {result.code for result in results}
