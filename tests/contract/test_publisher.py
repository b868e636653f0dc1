"""What the publisher says of messages that a healthy broker takes, returns or refuses."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from relay.amqp.publishing.publisher import RabbitPublisher
from relay.events.broker import BrokerUp
from relay.message import CONFIRMED, Verdict
from tests.support.broker.publishing import Seen, batch, claim, plain_encoder, publishing
from tests.support.broker.topology import Topology
from tests.support.network.proxy import Proxy
from tests.support.servers.shared import Declare, Drain


@pytest.mark.ids("C1", "C6")
async def test_a_confirmed_message_is_in_the_queue(amqp_url: str, declare: Declare, drain: Drain) -> None:
    """CONFIRMED means that the broker took exactly these bytes, persistent and under the relay's id."""
    made = await declare()
    one = claim(made.exchange, made.routing_key, b'{"a": 1.50}')
    async with publishing(amqp_url) as broker:
        assert await broker.send([one]) == [CONFIRMED]
    [came] = await drain(made.queue)
    assert (came.body, came.message_id, came.delivery_mode) == (b'{"a": 1.50}', one.id, 2)
    assert came.headers == {"x-relay-id": one.id}


async def test_times_say_when_a_message_was_written_and_confirmed(amqp_url: str, declare: Declare) -> None:
    """Both times are monotonic seconds; what was not confirmed has none."""
    made = await declare()
    sent = batch([claim(made.exchange, made.routing_key), claim(made.exchange, "nowhere"), claim("x" * 256)])
    async with publishing(amqp_url) as broker:
        [portion] = await broker.portions(sent)
    assert sent.claimed_tick < portion.published[0] <= portion.confirmed[0]
    assert portion.published[1] > 0
    assert (portion.confirmed[1], portion.published[2], portion.confirmed[2]) == (0.0, 0.0, 0.0)


@pytest.mark.ids("C12")
async def test_the_default_exchange_and_the_predefined_ones_work(amqp_url: str, declare: Declare, unique: str) -> None:
    """The empty name leads to the queue that the routing key names; `amq.direct` is an exchange like any other."""
    direct = await declare("amq.direct", routing_key=unique)
    default = await declare("", f"{direct.queue}.default")
    async with publishing(amqp_url) as broker:
        assert await broker.verdicts([claim("amq.direct", direct.routing_key), claim("", default.routing_key)]) == [Verdict.CONFIRMED] * 2


async def test_returns_are_told_from_confirms_although_all_have_one_message_id(amqp_url: str, declare: Declare, drain: Drain) -> None:
    """Of 200 messages with the same message id of the app every other one is unroutable, and each gets its own verdict."""
    made = await declare()
    same = json.dumps({"messageId": "same for all"})
    claims = [claim(made.exchange, made.routing_key if n % 2 else "nowhere", options=same) for n in range(200)]
    async with publishing(amqp_url) as broker:
        results = await broker.send(claims)
    assert [result.verdict for result in results] == [Verdict.RETURNED, Verdict.CONFIRMED] * 100
    assert results[0].code == "unroutable"
    assert results[0].detail == f"No queue takes routing key 'nowhere' of exchange '{made.exchange}' (312 NO_ROUTE)."
    came = await drain(made.queue)
    assert [message.headers["x-relay-id"] for message in came] == [one.id for one in claims[1::2]]


async def test_an_unroutable_message_that_is_not_mandatory_is_confirmed(amqp_url: str, declare: Declare) -> None:
    """The app may ask for that; RabbitMQ then confirms and drops it."""
    made = await declare()
    async with publishing(amqp_url) as broker:
        assert await broker.verdicts([claim(made.exchange, "nowhere", options='{"mandatory": false}')]) == [Verdict.CONFIRMED]


async def test_a_nack_is_a_refusal(amqp_url: str, declare: Declare) -> None:
    """A queue that is full and rejects gives nacks; the one that fits is confirmed."""
    made = await declare(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    async with publishing(amqp_url) as broker:
        assert await broker.verdicts([claim(made.exchange, made.routing_key)]) == [Verdict.CONFIRMED]
        results = await broker.send([claim(made.exchange, made.routing_key) for _ in range(20)])
    assert Counter((result.verdict, result.code) for result in results) == {(Verdict.REFUSED, "nacked"): 20}
    assert results[0].detail.endswith("look for a full queue with overflow reject-publish.")


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 3_000_000])
async def test_bodies_of_any_size_arrive_whole(amqp_url: str, declare: Declare, drain: Drain, size: int) -> None:
    """A body is cut into frames of the negotiated size; an empty one has none."""
    made = await declare()
    payload = bytes(n % 251 for n in range(size))
    async with publishing(amqp_url) as broker:
        assert await broker.verdicts([claim(made.exchange, made.routing_key, payload, binary=True)]) == [Verdict.CONFIRMED]
    [came] = await drain(made.queue)
    assert came.body == payload


async def test_a_large_unroutable_message_is_returned_too(amqp_url: str, declare: Declare) -> None:
    """The broker sends the whole body back in many frames, in between the confirms of others."""
    made = await declare()
    keys = ["nowhere", made.routing_key] * 3
    async with publishing(amqp_url) as broker:
        assert (
            await broker.verdicts(claim(made.exchange, key, b"x" * 1_000_000) for key in keys) == [Verdict.RETURNED, Verdict.CONFIRMED] * 3
        )


@pytest.mark.ids("C15")
async def test_what_cannot_be_sent_harms_no_neighbour(amqp_url: str, declare: Declare) -> None:
    """Messages that cannot be encoded or have expired are decided without the broker; the others go out."""
    made = await declare()
    good = claim(made.exchange, made.routing_key)
    bad = [claim(made.exchange, "k" * 300), claim(made.exchange, options='{"persistant": true}'), claim(made.exchange, expires_in=-1.0)]
    late = claim(made.exchange, made.routing_key, expires_in=60.0)
    async with publishing(amqp_url) as broker:
        results = await broker.send([*bad, good, late])
    assert [(result.verdict, result.code) for result in results] == [
        (Verdict.INVALID, "name_too_long"),
        (Verdict.INVALID, "option_unknown"),
        (Verdict.EXPIRED, "expired"),
        (Verdict.CONFIRMED, ""),
        (Verdict.CONFIRMED, ""),
    ]


async def test_nothing_is_written_past_the_deadline_of_its_lock(amqp_url: str, declare: Declare, drain: Drain) -> None:
    """A batch whose deadline has passed is UNWRITTEN: another relay may hold it by now."""
    made = await declare()
    async with publishing(amqp_url) as broker:
        [result] = await broker.send([claim(made.exchange, made.routing_key)], seconds=-1)
        assert (result.verdict, result.code) == (Verdict.UNWRITTEN, "deadline")
    assert await drain(made.queue) == []


async def test_batches_keep_the_order_of_the_calls(amqp_url: str, declare: Declare, drain: Drain) -> None:
    """Several batches are in flight, the first of them on a new exchange: the queue has them in the order of the calls."""
    made = await declare()
    bodies = [str(n).encode() for n in range(1000)]
    async with publishing(amqp_url) as broker:
        parts = [[claim(made.exchange, made.routing_key, body) for body in bodies[at : at + 200]] for at in range(0, 1000, 200)]
        await asyncio.gather(*(broker.send(part) for part in parts))
    assert [message.body for message in await drain(made.queue)] == bodies


async def test_what_is_decided_is_handed_over_while_the_rest_is_silent(amqp_url: str, declare: Declare) -> None:
    """After the patience a portion comes with what is decided so far, and later another with the rest."""
    made = await declare()
    sent = batch([claim(made.exchange, made.routing_key), claim("x" * 256), claim(made.exchange, made.routing_key)])
    async with Proxy.before(amqp_url) as proxy, publishing(proxy.url(amqp_url), patience=0.05) as broker:
        proxy.hold_answers()
        portions = broker.publisher.publish(sent)
        first = await anext(portions)
        assert [one.exchange for one in first.claims] == ["x" * 256]
        assert broker.publisher.in_flight() == {made.exchange: 2}
        assert broker.publisher.silent()[made.exchange] > 0
        proxy.heal()
        rest = [portion async for portion in portions]
    assert [result for portion in rest for result in portion.results] == [CONFIRMED, CONFIRMED]
    assert [one for portion in rest for one in portion.claims] == [sent.claims[0], sent.claims[2]]


async def test_hundreds_of_exchanges_share_a_few_channels(amqp_url: str, topology: Topology, unique: str) -> None:
    """Idle channels are closed, the least recently used first, and opened again; no message notices."""
    made = [await topology.declare(f"{unique}.{n}", f"{unique}.{n}") for n in range(12)]
    async with publishing(amqp_url, open_channels=3) as broker:
        for _ in range(3):
            for one in made:
                assert await broker.verdicts([claim(one.exchange, one.routing_key)]) == [Verdict.CONFIRMED]
        assert await broker.verdicts(claim(one.exchange, one.routing_key) for one in made * 10) == [Verdict.CONFIRMED] * 120
        assert len(broker.seen.of(BrokerUp)) == 1
    assert [await topology.waiting(one.queue) for one in made] == [13] * 12


async def test_an_empty_batch_yields_nothing(amqp_url: str) -> None:
    """There is nothing to say of no message."""
    async with publishing(amqp_url) as broker:
        assert await broker.portions(batch([])) == []


async def test_start_and_close_are_legal_in_any_order_and_number(amqp_url: str) -> None:
    """Closing before starting, starting twice and closing twice change nothing."""
    publisher = RabbitPublisher(urls=[amqp_url], name="test", encoder=plain_encoder, emit=Seen())
    await publisher.aclose()
    await publisher.start()
    await publisher.start()
    await publisher.wait_ready()
    await publisher.aclose()
    await publisher.aclose()
    assert not publisher.ready


async def test_an_abandoned_batch_is_not_written_any_more(amqp_url: str, declare: Declare, drain: Drain) -> None:
    """A caller that stops listening settles nothing, so messages that were not yet written must never be written."""
    made = await declare()
    async with Proxy.before(amqp_url) as proxy, publishing(proxy.url(amqp_url), patience=0.05) as broker:
        proxy.hold_answers()
        portions = broker.publisher.publish(batch([claim("x" * 256), *(claim(made.exchange, made.routing_key) for _ in range(5))]))
        await anext(portions)
        await portions.aclose()
        proxy.heal()
        assert await broker.verdicts([claim(made.exchange, made.routing_key)]) == [Verdict.CONFIRMED]
    assert len(await drain(made.queue)) == 2
