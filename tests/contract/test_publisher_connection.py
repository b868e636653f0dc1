"""What the publisher says and does when the connection goes, hangs or is blocked."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

import pytest

from relay.amqp import channel_limit
from relay.amqp.publishing import publisher
from relay.codec.encoder import Encoded, Encoder
from relay.devservers import RabbitMQ
from relay.events.broker import BrokerBlocked, BrokerDown, BrokerUnblocked, BrokerUp, ChannelsLimited, ChannelsUnlimited
from relay.message import CONFIRMED, Claim, PublishResult, Verdict
from tests.support.broker.publishing import batch, claim, publishing
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import until
from tests.support.network.proxy import Proxy
from tests.support.servers.private import user_of

pytestmark = pytest.mark.faults
ALARM_ON, ALARM_OFF = ("set_vm_memory_high_watermark", "0.0000001"), ("set_vm_memory_high_watermark", "absolute", "2GB")


def some(made: Declared, count: int, size: int = 10) -> list[Claim]:
    """Messages for an exchange."""
    return [claim(made.exchange, made.routing_key, b"x" * size) for _ in range(count)]


async def in_a_thread(node: RabbitMQ, *words: str) -> str:
    """Run rabbitmqctl while the event loop continues."""
    return await asyncio.to_thread(node.ctl, *words)


async def test_a_killed_broker_leaves_what_was_written_unknown(own_broker: RabbitMQ, own_topology: Topology) -> None:
    """Nothing that was confirmed is missing after the restart, and the publisher is back by itself."""
    made = await own_topology.declare()
    await asyncio.to_thread(own_broker.persist_topology)
    async with publishing(own_broker.url) as broker:
        assert await broker.send(some(made, 1)) == [CONFIRMED]
        sends = [asyncio.create_task(broker.send(some(made, 500, 1000))) for _ in range(20)]
        await sends[0]
        await asyncio.to_thread(own_broker.crash)
        results = [result for send in sends for result in await send]
        assert not broker.publisher.ready
        down = await broker.seen.wait_for(BrokerDown)
        assert down.error.startswith(("The connection to the broker at 127.0.0.1", "The broker at 127.0.0.1"))
        [refused] = await broker.send(some(made, 1))
        assert (refused.verdict, refused.code) == (Verdict.UNWRITTEN, "broker_down")
        await asyncio.to_thread(own_broker.start)
        await broker.seen.wait_for(BrokerUp, 2)
        assert await broker.send(some(made, 1)) == [CONFIRMED]
    counts = Counter(result.verdict for result in results)
    assert set(counts) <= {Verdict.CONFIRMED, Verdict.UNKNOWN, Verdict.UNWRITTEN}
    assert not any(result.blame for result in results)
    async with Topology(own_broker.url, "") as now:
        assert await now.waiting(made.queue) >= counts[Verdict.CONFIRMED] + 2


@pytest.mark.parametrize("limit", [1, 3])
async def test_exchanges_share_what_channels_a_user_may_have(own_broker: RabbitMQ, own_topology: Topology, unique: str, limit: int) -> None:
    """The limit is not in what is negotiated: it is learned from a refusal, be it one channel, and hardly ever run into again."""
    made = [await own_topology.declare(f"{unique}.{n}", f"{unique}.{n}") for n in range(10)]
    with user_of(own_broker, unique, may_write=".*") as url:
        await in_a_thread(own_broker, "set_user_limits", unique, json.dumps({"max-channels": limit}))
        async with publishing(url) as broker:
            for count in (100, *[1] * 20):
                left = [one for each in made for one in some(each, count)]
                async with asyncio.timeout(60):
                    while left:
                        await broker.publisher.wait_ready()
                        results = await broker.send(left)
                        left = [one for one, result in zip(left, results, strict=True) if result != CONFIRMED]
            downs = broker.seen.of(BrokerDown)
    assert 1 <= len(downs) < 5, "without that each round of the exchanges would end a connection"
    assert all("NOT_ALLOWED - number of channels opened for user" in down.error for down in downs)
    limited = broker.seen.of(ChannelsLimited)
    assert 1 <= len(limited) <= len(downs)
    assert all(1 <= each.channels <= max(1, limit // 2) and 1 < each.sharing <= len(made) for each in limited)
    assert downs[0].error.endswith("fewer channels are shared from now on: for more raise the limit and start the relay again.")


async def test_exchanges_that_wait_for_one_of_the_channels_that_a_node_grants_are_told_of(
    own_broker: RabbitMQ, own_topology: Topology, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node says so when the connection begins, and never refuses one; all messages go, in turn. The report ends when none waits."""
    monkeypatch.setattr(publisher, "LOOKS", 0.05)
    made = [await own_topology.declare(f"{unique}.{n}", f"{unique}.{n}") for n in range(10)]
    few = "{ok, N} = application:get_env(rabbit, channel_max), application:set_env(rabbit, channel_max, %s), N."
    before = await in_a_thread(own_broker, "eval", few % 4)
    try:
        async with publishing(own_broker.url) as broker:
            results = await broker.send([one for each in made for one in some(each, 5)])
            limited = broker.seen.of(ChannelsLimited)
            assert [] == broker.seen.of(ChannelsUnlimited)
            monkeypatch.setattr(channel_limit, "HOLDS", 0.0)
            await broker.seen.wait_for(ChannelsUnlimited)
    finally:
        await in_a_thread(own_broker, "eval", few % before)
    assert [CONFIRMED] * 50 == results
    assert [(4, 10)] == [(each.channels, each.sharing) for each in limited]


async def test_a_connection_that_an_operator_closes_is_made_anew(own_broker: RabbitMQ, own_topology: Topology) -> None:
    """The broker says 320: no message is at fault, and the next batch goes out on the next connection."""
    made = await own_topology.declare()
    async with Proxy.before(own_broker.url) as proxy, publishing(proxy.url(own_broker.url)) as broker:
        await broker.send(some(made, 1))
        proxy.hold_answers()
        send = asyncio.create_task(broker.send(some(made, 10)))
        await until(lambda: broker.publisher.in_flight() == {made.exchange: 10})
        await in_a_thread(own_broker, "close_all_connections", "maintenance")
        proxy.heal()
        results = await send
        await broker.seen.wait_for(BrokerUp, 2)
        assert "320 CONNECTION_FORCED - maintenance" in broker.seen.of(BrokerDown)[0].error
        assert await broker.send(some(made, 1)) == [CONFIRMED]
    assert {(result.verdict, result.blame) for result in results} <= {(Verdict.UNKNOWN, False), (Verdict.CONFIRMED, False)}


async def test_a_connection_that_a_message_brought_down_blames_what_was_in_flight(amqp_url: str, topology: Topology) -> None:
    """The broker closes with a protocol error (here 540 for `immediate`): an attempt, or such a message would go round for ever."""
    made = await topology.declare()
    async with publishing(amqp_url, encoder=lambda frame_max: ImmediateEncoder(frame_max=frame_max)) as broker:
        await broker.send(some(made, 1))
        results = await broker.send([*some(made, 3), claim(made.exchange, "immediate")])
        await broker.seen.wait_for(BrokerUp, 2)
        assert "540 NOT_IMPLEMENTED" in broker.seen.of(BrokerDown)[0].error
    assert results[3].verdict is Verdict.UNKNOWN
    assert results[3].blame


async def test_a_message_that_ends_connections_is_soon_alone_to_blame(amqp_url: str, topology: Topology) -> None:
    """Steady messages of others go out next to it: hardly any of these is suspected twice, and few connections end."""
    made = [await topology.declare() for _ in range(4)]
    tries: Counter[int] = Counter()

    async def deliver(one: Claim) -> PublishResult:
        """Send until the result is certain.

        A message suspected together with others is sent again as its next attempt, while others are in flight.
        """
        while True:
            await broker.publisher.wait_ready()
            [result] = await broker.send([one])
            if result == CONFIRMED or result.alone:
                tries[one.attempts] += 1
                return result
            if result.blame:
                one = one._replace(attempts=one.attempts + 1)
                await more_come_through(tries.total() + 100)

    async def more_come_through(count: int) -> None:
        """Wait until so many messages are confirmed."""
        await until(lambda: tries.total() > count)

    async def others(each: Declared) -> None:
        """Keep a message of an exchange on its way."""
        while not guilty.done():
            await deliver(*some(each, 1))

    async with publishing(amqp_url, encoder=lambda frame_max: ImmediateEncoder(frame_max=frame_max)) as broker, asyncio.timeout(60):
        steady = [asyncio.create_task(others(each)) for each in made * 50]
        guilty = asyncio.create_task(deliver(claim(made[0].exchange, "immediate")))
        blamed = await guilty
        await asyncio.gather(*steady)
    assert "540 NOT_IMPLEMENTED" in blamed.detail
    assert max(tries) <= 4


class ImmediateEncoder(Encoder):
    """Sets the flag that RabbitMQ does not know, for the routing key `immediate`."""

    def __init__(self, *, frame_max: int) -> None:
        super().__init__(frame_max=frame_max, max_body_bytes=1 << 24, allowed_exchanges=None)

    def encode(self, claim: Claim) -> Encoded | PublishResult:
        """Encode, and set the bit behind `mandatory`."""
        encoded = super().encode(claim)
        if claim.routing_key != "immediate" or isinstance(encoded, PublishResult):
            return encoded
        method, *others = encoded
        return Encoded((method[:-3] + bytes([method[-3] | 2]) + method[-2:], *others))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            b"\x03\x00\x01\x00\x02\x00\x00",
            "The broker sent a frame of 131080 bytes, 131072 were agreed at the most; the connection is dropped",
        ),
        (b"\x01\x00\x00\x7f\xff\xff\xff", "The broker sent a frame of 2147483655 bytes, "),
        (b"HTTP/1.1 400 Bad Request", "The broker sent bytes that are no frame; "),
    ],
)
async def test_what_is_no_frame_of_the_agreed_size_ends_the_connection(amqp_url: str, topology: Topology, said: bytes, words: str) -> None:
    """No waiting for a rest that never comes: a sentence, what was written is unknown, and the next connection works."""
    made = await topology.declare()
    async with Proxy.before(amqp_url) as proxy, publishing(proxy.url(amqp_url)) as broker:
        await broker.send(some(made, 1))
        proxy.hold_answers()
        send = asyncio.create_task(broker.send(some(made, 10)))
        await until(lambda: broker.publisher.in_flight() == {made.exchange: 10})
        proxy.say(said + b"x")
        assert {(result.verdict, result.blame) for result in await send} == {(Verdict.UNKNOWN, False)}
        assert (await broker.seen.wait_for(BrokerDown)).error.startswith(words)
        proxy.heal()
        await broker.seen.wait_for(BrokerUp, 2)
        assert await broker.send(some(made, 1)) == [CONFIRMED]


async def test_a_reset_connection_is_unknown_at_once(amqp_url: str, topology: Topology) -> None:
    """RST needs no heartbeat to be noticed; the batch is decided and a new connection is made."""
    made = await topology.declare()
    async with Proxy.before(amqp_url) as proxy, publishing(proxy.url(amqp_url)) as broker:
        await broker.send(some(made, 1))
        proxy.hold_answers()
        send = asyncio.create_task(broker.send(some(made, 100)))
        await until(lambda: broker.publisher.in_flight() == {made.exchange: 100})
        proxy.reset()
        assert {(result.verdict, result.code) for result in await send} == {(Verdict.UNKNOWN, "connection_lost")}
        proxy.heal()
        await broker.seen.wait_for(BrokerUp, 2)
        assert await broker.send(some(made, 1)) == [CONFIRMED]
        assert proxy.connections == 2


async def test_a_peer_that_falls_silent_is_noticed_by_the_heartbeat(amqp_url: str, topology: Topology) -> None:
    """A black hole keeps the connection open; after three missed heartbeats it is given up and what was written is unknown."""
    made = await topology.declare()
    async with Proxy.before(amqp_url) as proxy, publishing(proxy.url(amqp_url), heartbeat=1) as broker:
        await broker.send(some(made, 1))
        proxy.black_hole()
        began = time.monotonic()
        results = await broker.send(some(made, 10))
        assert {result.verdict for result in results} == {Verdict.UNKNOWN}
        assert time.monotonic() - began < 12
        proxy.heal()
        await broker.seen.wait_for(BrokerUp, 2)
        assert await broker.send(some(made, 1)) == [CONFIRMED]


async def test_a_blocked_broker_is_waited_for(own_broker: RabbitMQ, own_topology: Topology) -> None:
    """A memory alarm: nothing times out, nothing is sent twice on the living connection, and nothing new is written."""
    made = await own_topology.declare()
    async with publishing(own_broker.url, patience=0.05) as broker:
        await broker.send(some(made, 1))
        await in_a_thread(own_broker, *ALARM_ON)
        try:
            written = asyncio.create_task(broker.send(some(made, 10)))
            alarm = await broker.seen.wait_for(BrokerBlocked)
            assert "memory" in alarm.reason
            assert not broker.publisher.ready
            waiting = asyncio.create_task(broker.send(some(made, 10)))
            [late] = await broker.send(some(made, 1), seconds=0.3)
            assert (late.verdict, late.code) == (Verdict.UNWRITTEN, "deadline")
            assert not written.done()
            assert broker.publisher.silent()[made.exchange] > 0.3
        finally:
            await in_a_thread(own_broker, *ALARM_OFF)
        assert await written == await waiting == [CONFIRMED] * 10
        await broker.seen.wait_for(BrokerUnblocked)
        await broker.publisher.wait_ready()
        assert len(broker.seen.of(BrokerUp)) == 1
    assert await own_topology.waiting(made.queue) == 21


async def test_what_waits_for_room_in_the_buffer_is_bounded(amqp_url: str, topology: Topology) -> None:
    """A peer that reads nothing takes what sockets and the transport's buffer hold; the rest stays unwritten until there is room."""
    made = await topology.declare()
    async with Proxy.before(amqp_url) as proxy, publishing(proxy.url(amqp_url)) as broker:
        await broker.send(some(made, 1))
        proxy.hold_requests()
        send = asyncio.create_task(broker.send(some(made, 100, 1_000_000)))
        transport = broker.publisher._session._pipe._transport  # type: ignore[union-attr] # a look inside: nothing else shows it
        await until(lambda: transport.get_write_buffer_size() > 0)
        assert transport.get_write_buffer_size() < 7_000_000
        proxy.heal()
        assert await send == [CONFIRMED] * 100


@pytest.mark.ids("D9")
async def test_holding_gives_up_what_is_unwritten_and_waits_for_the_rest(amqp_url: str, topology: Topology) -> None:
    """The broker is slow: what its transport has not taken is UNWRITTEN at once and never goes out, what it has taken is confirmed."""
    made = await topology.declare()
    sent = batch(some(made, 100, 1_000_000))
    async with Proxy.before(amqp_url) as proxy, publishing(proxy.url(amqp_url)) as broker:
        await broker.send(some(made, 1))
        proxy.hold_requests()
        portions = broker.publisher.publish(sent)
        broker.publisher.stop_writing()
        unwritten = await anext(portions)
        assert {(result.verdict, result.code) for result in unwritten.results} == {(Verdict.UNWRITTEN, "cut")}
        assert {0.0} == {*unwritten.published}
        late = await broker.send(some(made, 1))
        assert [(Verdict.UNWRITTEN, "cut")] == [(result.verdict, result.code) for result in late]
        proxy.heal()
        written = [result for portion in [portion async for portion in portions] for result in portion.results]
    assert written == [CONFIRMED] * (100 - len(unwritten.claims))
    assert 0 < len(written) < 100
    assert await topology.waiting(made.queue) == 1 + len(written)


async def test_a_cut_decides_everything_at_once(amqp_url: str, topology: Topology) -> None:
    """What was written is UNKNOWN, what was not is UNWRITTEN; no confirm is waited for."""
    made = await topology.declare()
    async with Proxy.before(amqp_url) as proxy, publishing(proxy.url(amqp_url)) as broker:
        proxy.hold_answers()
        send = asyncio.create_task(broker.send(some(made, 10)))
        await until(lambda: broker.publisher.in_flight() == {made.exchange: 10})
        broker.publisher.cut()
        assert [(result.verdict, result.code) for result in await send] == [(Verdict.UNKNOWN, "cut")] + [(Verdict.UNWRITTEN, "cut")] * 9
        proxy.heal()
        assert await broker.send(some(made, 2)) == [CONFIRMED] * 2


async def test_closing_decides_what_is_in_flight(amqp_url: str, topology: Topology) -> None:
    """A publisher that is closed leaves no caller waiting for ever."""
    made = await topology.declare()
    async with Proxy.before(amqp_url) as proxy, publishing(proxy.url(amqp_url)) as broker:
        proxy.hold_answers()
        send = asyncio.create_task(broker.send(some(made, 1)))
        await until(lambda: broker.publisher.in_flight() == {made.exchange: 1})
        await broker.publisher.aclose()
        assert [result.verdict for result in await send] == [Verdict.UNKNOWN]


async def test_the_publisher_starts_before_its_broker(amqp_url: str, topology: Topology) -> None:
    """It reports that it waits, at most once a second, and continues by itself when the broker is there."""
    made = await topology.declare()
    async with Proxy.before(amqp_url) as proxy:
        await proxy.stop_listening()
        async with publishing(proxy.url(amqp_url), wait=False) as broker:
            down = await broker.seen.wait_for(BrokerDown)
            assert down.error.startswith(f"The broker at 127.0.0.1:{proxy.port} is not reachable")
            await proxy.listen()
            await broker.seen.wait_for(BrokerUp)
            assert await broker.send(some(made, 1)) == [CONFIRMED]
            assert [type(event) for event in broker.seen.events[:2]] == [BrokerDown, BrokerUp]


async def test_the_next_of_several_brokers_is_tried(amqp_url: str, topology: Topology) -> None:
    """Nodes of a cluster: the first that answers is used."""
    made = await topology.declare()
    async with Proxy.before(amqp_url) as proxy:
        dead = proxy.url(amqp_url)
        await proxy.stop_listening()
        async with publishing(dead, amqp_url) as broker:
            assert await broker.send(some(made, 1)) == [CONFIRMED]


async def test_an_operator_recognises_the_connection(own_broker: RabbitMQ) -> None:
    """The broker lists it by name and product."""
    async with publishing(own_broker.url):
        listed = json.loads(await in_a_thread(own_broker, "list_connections", "client_properties", "--formatter", "json"))
    names = {key: value for key, _, value in listed[0]["client_properties"]}
    assert (names["connection_name"], names["product"]) == ("outbox-relay/test", "outbox-relay")
