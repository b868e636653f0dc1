"""What a real broker makes of the encoder's frames: the catalogue's outcomes, byte for byte."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import pytest
from pamqp import commands

from relay.codec.encoder import Encoded, Encoder, encode_batch
from relay.message import Claim
from tests.support.broker.raw_amqp import CHANNEL, FRAME_MAX, RawClient
from tests.support.poison.catalogue import POISON, Poison

ELSEWHERE = {"archive_refuses", "year_9999", "no_permission", "heavy"}
"""Needs that have nothing to do with the wire, or a server of their own."""
DELIVERED = [entry for entry in POISON if entry.outcome == "delivered" and not ELSEWHERE & {*entry.needs}]
BROKER_REFUSES = [entry for entry in POISON if entry.outcome == "failed" and not ELSEWHERE & {*entry.needs}]
REPLY_CODES = {"exchange_missing": 404, "access_refused": 403, "broker_refused": 406}


@pytest.fixture
async def client(amqp_url: str) -> AsyncIterator[RawClient]:
    """A bare connection to the broker."""
    async with RawClient(amqp_url) as made:
        yield made


def _frames(*claims: Claim) -> bytes:
    """Frames of a batch for the client's channel."""
    encoder = Encoder(frame_max=FRAME_MAX, max_body_bytes=1 << 24, allowed_exchanges=None)
    encodeds = [encoded for claim in claims if isinstance(encoded := encoder.encode(claim), Encoded)]
    assert len(claims) == len(encodeds)
    return encode_batch(encodeds, CHANNEL)


async def _prepared(client: RawClient, entry: Poison, unique: str) -> Claim:
    """Make what the entry needs, with a consumer on its route; return the claim."""
    claim = entry.claim(unique, "key", id_=str(uuid4()))
    if "login_guest" in entry.needs and client.user != "guest":
        pytest.skip("the broker's URL logs in as somebody other than guest")
    if claim.exchange and not claim.exchange.startswith("amq."):
        await client.declare_exchange(claim.exchange, internal="internal_exchange" in entry.needs)
    if entry.outcome == "delivered":
        queue = await client.consume(claim.exchange, claim.routing_key)
        return claim if claim.exchange else claim._replace(routing_key=queue)
    return claim


@pytest.mark.ids("C3")
@pytest.mark.parametrize("entry", DELIVERED, ids=str)
async def test_a_consumer_sees_what_the_row_said(client: RawClient, entry: Poison, unique: str) -> None:
    """Body byte for byte, each option in its property, exact numbers, and the relay's id."""
    claim = await _prepared(client, entry, unique)
    claims = [claim, *(claim._replace(id=str(uuid4())) for _ in range(entry.rows - 1))]

    client.write(_frames(*claims))
    said, deliveries = await client.settled(len(claims))

    assert all(isinstance(method, commands.Basic.Ack) for method in said), [dict(method) for method in said]
    expected = {name: value for name, value in entry.expect.items() if not name.startswith("body")}
    for sent, delivery in zip(claims, deliveries, strict=True):
        assert sent.payload == delivery.body
        assert sent.id == delivery.relay_id
        assert expected == delivery.seen(expected)


@pytest.mark.parametrize("entry", [entry for entry in BROKER_REFUSES if entry.code in REPLY_CODES], ids=str)
async def test_what_the_broker_alone_can_judge_closes_the_channel_only(client: RawClient, entry: Poison, unique: str) -> None:
    """The broker answers with the channel error that the archive's code represents, and keeps the connection."""
    missing = "no_exchange" in entry.needs
    claim = entry.claim(unique, "key") if missing else await _prepared(client, entry, unique)

    client.write(_frames(claim))
    [close], _ = await client.settled()

    assert isinstance(close, commands.Channel.Close)
    assert REPLY_CODES[entry.code] == close.reply_code
    await client.open_channel()


@pytest.mark.parametrize("entry", [entry for entry in BROKER_REFUSES if entry.code == "unroutable"], ids=str)
async def test_an_unroutable_message_comes_back(client: RawClient, entry: Poison, unique: str) -> None:
    """Without the option a message is mandatory: returned first, confirmed then."""
    client.write(_frames(await _prepared(client, entry, unique)))
    said, _ = await client.settled()

    assert ["Basic.Return", "Basic.Ack"] == [method.name for method in said]
    assert 312 == said[0].reply_code


def test_every_code_of_the_broker_s_is_tried() -> None:
    """No entry that the broker judges is left out of these tests."""
    assert {*REPLY_CODES, "unroutable"} == {entry.code for entry in BROKER_REFUSES}


async def test_a_batch_arrives_whole_and_in_order(client: RawClient, unique: str) -> None:
    """One write of many messages, with and without options, empty and longer than a frame, arrives as it was sent."""
    await client.declare_exchange(unique)
    await client.consume(unique, "key")
    plain = Poison(kind=0, name="", outcome="delivered", columns={})
    odd = replace(plain, columns={"options": {"type": "odd", "headers": {"n": 1}}})
    claims = [entry.claim(unique, "key", id_=str(uuid4())) for entry in [plain, odd] * 50]
    claims[10] = claims[10]._replace(payload=b"")
    claims[11] = claims[11]._replace(payload=bytes(range(256)) * 2000, binary=True)

    client.write(_frames(*claims))
    _, deliveries = await client.settled(len(claims))

    assert [claim.payload for claim in claims] == [delivery.body for delivery in deliveries]
    assert [claim.id for claim in claims] == [delivery.properties.message_id for delivery in deliveries]


async def test_the_longest_headers_pass(client: RawClient, unique: str) -> None:
    """A message whose headers and properties are all at their limits is taken: the header frame still fits."""
    await client.declare_exchange(unique)
    await client.consume(unique, "key")
    names = ("contentType", "contentEncoding", "correlationId", "messageId", "replyTo", "type", "appId")
    options = {**dict.fromkeys(names, "x" * 255), "headers": {"h": "x" * (128_000 - 7)}, "timestamp": 1, "priority": 1}
    claim = Poison(kind=0, name="", outcome="delivered", columns={"options": options}).claim(unique, "key")

    client.write(_frames(claim._replace(replay_of=str(uuid4()))))
    said, [delivery] = await client.settled()

    assert ["Basic.Ack"] == [method.name for method in said]
    assert "x" * (128_000 - 7) == (delivery.properties.headers or {}).get("h")
