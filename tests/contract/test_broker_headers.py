"""Headers that the broker writes itself do no harm where an application gives them: what it reads back must be its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from relay.encoding import Encoded, Encoder, encode_batch
from relay.options import BROKER_HEADERS
from tests.support.broker import Topology
from tests.support.fakes import a_claim
from tests.support.raw_amqp import CHANNEL, FRAME_MAX, RawClient

DEATHS: tuple[object, ...] = (
    *("text", 7, None, True, {"queue": "q"}, [], ["text"], [[]], [7], [None], [{}], [{"queue": 7}]),
    [{"queue": "q", "reason": "expired", "count": "many"}],
    [{"queue": "q", "reason": "expired", "count": 1, "exchange": 7, "routing-keys": "k", "time": "now"}],
)
KINDS: dict[str, dict[str, Any]] = {"classic": {"x-max-priority": 4}, "quorum": {"x-queue-type": "quorum"}}


@pytest.fixture
async def client(amqp_url: str) -> AsyncIterator[RawClient]:
    """A bare connection to the broker."""
    async with RawClient(amqp_url) as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
async def test_no_header_ends_the_queue_that_dead_letters_its_message(
    client: RawClient, topology: Topology, unique: str, kind: str
) -> None:
    """RabbitMQ 3.10 lost the queue's process over an `x-death` that it had not written, and nacked all that came for its neighbours."""
    await topology.declare(f"{unique}.dead", f"{unique}.dead")
    await topology.declare(unique, unique, arguments={**KINDS[kind], "x-message-ttl": 1, "x-dead-letter-exchange": f"{unique}.dead"})
    headers = [{name: value} for name in BROKER_HEADERS for value in DEATHS]
    claims = [
        a_claim(id=str(uuid4()), exchange=unique, routing_key="key", options=json.dumps({"headers": {**given, "kept": 1}}))
        for given in headers
    ]
    encoder = Encoder(frame_max=FRAME_MAX, max_body_bytes=1 << 24, allowed_exchanges=None)

    client.write(encode_batch([encoded for claim in claims if isinstance(encoded := encoder.encode(claim), Encoded)], CHANNEL))
    dead = await topology.drain(f"{unique}.dead", len(claims))

    assert {claim.id for claim in claims} == {str(message.headers["x-relay-id"]) for message in dead}
    assert {1} == {message.headers["kept"] for message in dead}
    deaths: list[Any] = [message.headers["x-death"] for message in dead]
    assert {"expired"} == {death["reason"] for each in deaths for death in each}
