"""A message that may well close its channel goes over a channel of its own, so no good message next to it goes out twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from relay.devservers import RabbitMQ
from relay.events.broker import BrokerUp
from relay.message import Claim, Verdict
from tests.support.broker.publishing import Publishing, claim, publishing
from tests.support.broker.topology import Declared, Topology
from tests.support.servers.private import user_of

MIB = 1 << 20
Make = Callable[[Declared, int], Claim]


def good(made: Declared, number: int) -> Claim:
    """One without a property that can be refused, or in the connection's own name."""
    options = (None, '{"userId": "guest"}', '{"user_id": "guest", "headers": {"userId": "nobody"}}')[number % 3]
    return claim(made.exchange, made.routing_key, options=options)


async def send_among(broker: Publishing, made: Declared, bad: Callable[[int], Claim], places: range) -> tuple[list[Claim], list[str]]:
    """Send a thousand messages, those at some places bad; return the good ones, and what became of the bad ones."""
    claims = [bad(number) if number in places else good(made, number) for number in range(1000)]
    results = await broker.send(claims)
    assert {Verdict.CONFIRMED} == {result.verdict for number, result in enumerate(results) if number not in places}
    return [one for number, one in enumerate(claims) if number not in places], [results[place].code for place in places]


async def came_once(topology: Topology, made: Declared, claims: list[Claim]) -> None:
    """Each is in the queue, and none of them twice."""
    came = Counter(message.headers["x-relay-id"] for message in await topology.drain(made.queue))
    assert {one.id: 1 for one in claims} == came


@pytest.mark.ids("C9", "C15")
@pytest.mark.parametrize("places", [range(500, 501), range(3, 1000, 100), range(0, 1000, 2)], ids=["one", "ten", "half"])
async def test_a_message_in_another_users_name_repeats_no_good_one(amqp_url: str, topology: Topology, places: range) -> None:
    """RabbitMQ closes the channel with 406; those without a name, and those in the relay's own, were never on it."""
    made = await topology.declare()
    async with publishing(amqp_url) as broker:
        await broker.verdicts([claim(made.exchange, made.routing_key)])
        await topology.drain(made.queue)
        sent, codes = await send_among(
            broker, made, lambda number: claim(made.exchange, made.routing_key, options=f'{{"userId": "u{number}"}}'), places
        )
        assert {"broker_refused"} == {*codes}
        assert 1 == len(broker.seen.of(BrokerUp))
    await came_once(topology, made, sent)


async def test_messages_in_other_users_names_are_taken_from_an_impersonator(
    own_broker: RabbitMQ, own_topology: Topology, unique: str
) -> None:
    """The broker lets such a user write any name: all arrive, once."""
    made = await own_topology.declare(unique, unique)
    with user_of(own_broker, unique, may_write=".*") as url:
        own_broker.ctl("set_user_tags", unique, "impersonator")
        async with publishing(url) as broker:
            claims = [claim(made.exchange, made.routing_key, options=f'{{"userId": "u{number}"}}') for number in range(1000)]
            assert {Verdict.CONFIRMED} == {*await broker.verdicts(claims)}
    await came_once(own_topology, made, claims)


@pytest.fixture
def small_messages(own_broker: RabbitMQ) -> Iterator[None]:
    """The broker takes no message of more than 2 MiB."""
    before = int(own_broker.ctl("eval", "{ok, Most} = application:get_env(rabbit, max_message_size), Most."))
    limit_messages(own_broker, 2 * MIB)
    yield
    limit_messages(own_broker, before)


def limit_messages(broker: RabbitMQ, size: int) -> None:
    """Up to 4.2 a new channel reads the setting; from then on all read what the node made of it when it started."""
    broker.ctl("eval", f"application:set_env(rabbit, max_message_size, {size}), persistent_term:put(max_message_size, {size}).")


async def test_a_message_that_is_too_large_for_the_broker_repeats_no_good_one(
    own_broker: RabbitMQ, own_topology: Topology, small_messages: None
) -> None:
    """The broker's limit is not in what is negotiated; whatever is large goes apart."""
    made = await own_topology.declare()
    async with publishing(own_broker.url) as broker:
        sent, codes = await send_among(
            broker, made, lambda _: claim(made.exchange, made.routing_key, b"x" * (2 * MIB + 1)), range(10, 1000, 400)
        )
        assert {"broker_refused"} == {*codes}
    await came_once(own_topology, made, sent)


async def test_what_was_refused_before_repeats_no_good_one_when_it_is_tried_again(
    own_broker: RabbitMQ, own_topology: Topology, unique: str
) -> None:
    """A topic without permission cannot be foreseen; from its second attempt on it is known to be no ordinary message."""
    made = await own_topology.declare(f"{unique}.topics", routing_key="#", kind="topic")
    with user_of(own_broker, unique, may_write=".*") as url:
        own_broker.ctl("set_topic_permissions", "-p", "/", unique, made.exchange, "^open.*", "")
        async with publishing(url) as broker:
            claims = [claim(made.exchange, "closed" if n % 100 == 50 else "open", attempts=2 if n % 100 == 50 else 1) for n in range(1000)]
            results = await broker.send(claims)
    refused = [one for one, result in zip(claims, results, strict=True) if result.verdict is not Verdict.CONFIRMED]
    assert {"closed"} == {one.routing_key for one in refused}
    await came_once(own_topology, made, [one for one in claims if one.routing_key == "open"])
