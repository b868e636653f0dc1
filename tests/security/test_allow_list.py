"""Where messages may go: what an allow-list leaves out, what the broker's permission leaves out, and what no option can change."""

from __future__ import annotations

import json
import re

import pytest

from relay import devservers
from relay.codec.encoder import Encoded, Encoder
from relay.message import PublishResult
from tests import ROOT
from tests.support.broker.publishing import claim
from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue
from tests.support.relays.processes import Relays
from tests.support.servers.private import user_of

ALLOWED = ["orders", "audit.*", "a[b]c", "naïve"]
PASSES = ["orders", "audit.", "audit.eu", "audit.eu.west", "naïve"]
STAYS = [
    "", "amq.direct", "amq.topic", "amq.default", "amq.rabbitmq.trace", "Orders", "orders ", " orders", "orders\n", "orders\x00",
    "orders.eu", "xorders", "audit", "auditXeu", "xaudit.eu", "nai\u0308ve", "orders\u200b", "ord\u0435rs", "*", "orders,audit.eu",
]  # fmt: skip
"""Among them letters that look like those of an allowed name, and what a pattern could take for its own."""


def _encoded(exchange: str, allowed: list[str] | None) -> Encoded | PublishResult:
    encoder = Encoder(frame_max=131_072, max_body_bytes=1 << 20, allowed_exchanges=allowed)
    return encoder.encode(claim(exchange))


@pytest.mark.parametrize("exchange", STAYS)
def test_what_the_list_does_not_name_is_forbidden(exchange: str) -> None:
    """The default exchange and amq.* too, without being named."""
    found = _encoded(exchange, ALLOWED)
    assert isinstance(found, PublishResult)
    assert "exchange_forbidden" == found.code
    assert found.detail.isprintable()


@pytest.mark.parametrize("exchange", PASSES)
def test_what_the_list_names_passes(exchange: str) -> None:
    """By its name, or by a glob."""
    assert isinstance(_encoded(exchange, ALLOWED), Encoded)


@pytest.mark.parametrize("exchange", ["", "amq.direct", "orders"])
def test_without_a_list_every_exchange_passes_and_with_an_empty_one_none(exchange: str) -> None:
    """The default keeps what applications use; a list that names nothing allows nothing."""
    assert isinstance(_encoded(exchange, None), Encoded)
    assert isinstance(_encoded(exchange, ["*"]), Encoded)
    assert isinstance(_encoded(exchange, []), PublishResult)


@pytest.mark.ids("C12")
async def test_one_pattern_of_the_broker_bars_the_default_exchange_and_amq(
    queue: Queue, relays: Relays, own_broker: devservers.RabbitMQ, own_topology: Topology, unique: str
) -> None:
    r"""The permission '^(?!amq\.)', as docs/operations/access.md has it, bars those alone; messages to other exchanges are sent."""
    made = await own_topology.declare()
    await queue.sql("SELECT queue_message_config_set('max_attempts', '1')")
    for exchange, key in (("", made.queue), ("amq.direct", "k"), ("amq.topic", "k"), (made.exchange, made.routing_key)):
        await queue.insert(exchange=exchange, routing_key=key)
    with user_of(own_broker, unique, may_write=r"^(?!amq\.)") as url:
        await relays.start(database=queue.url, broker=url)
        await queue.settled(seconds=60)

    ends = "SELECT exchange, result, error_code FROM queue_message_archive ORDER BY exchange"
    refused = [(exchange, "failed", "access_refused") for exchange in ("", "amq.direct", "amq.topic")]
    assert [*refused, (made.exchange, "success", None)] == await queue.sql(ends)
    assert 1 == await own_topology.waiting(made.queue)


async def test_one_pattern_of_the_broker_bars_keys_that_are_no_topics_of_mqtt(
    queue: Queue, relays: Relays, own_broker: devservers.RabbitMQ, own_topology: Topology, unique: str
) -> None:
    """The topic permission of docs/options.md bars those keys; messages with an ordinary key are sent."""
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    [pattern] = re.findall(r"set_topic_permissions -p / relay amq.topic '(.*?)'", page)
    made = await own_topology.declare(kind="topic", routing_key="#")
    await queue.sql("SELECT queue_message_config_set('max_attempts', '1')")
    barred = ["", "*", "a.*", "a.#", "a.+.b", "\n", "a\n", "a\x01", "\x7f", "a\x85", "\uffff"]
    for key in (*barred, "Orders.eu-1/a_b"):
        await queue.insert(exchange=made.exchange, routing_key=key)
    with user_of(own_broker, unique, may_write=".*") as url:
        own_broker.ctl("set_topic_permissions", unique, made.exchange, pattern, "^$")
        await relays.start(database=queue.url, broker=url)
        await queue.settled(seconds=60)

    ended = await queue.sql("SELECT routing_key, result, error_code FROM queue_message_archive")
    assert {*((key, "failed", "access_refused") for key in barred), ("Orders.eu-1/a_b", "success", None)} == {*ended}
    assert 1 == await own_topology.waiting(made.queue)


async def test_no_option_stands_in_for_what_the_relay_says(queue: Queue, relays: Relays, topology: Topology, amqp_url: str) -> None:
    """Whatever the headers are called, a consumer finds the message's own id, and an origin only where there is one."""
    made = await topology.declare()
    forged = dict.fromkeys(("x-relay-id", "x-relay-replay-of"), "forged")
    [sent] = await queue.insert(exchange=made.exchange, routing_key=made.routing_key, options=json.dumps({"headers": forged}))
    await relays.start(database=queue.url, broker=amqp_url)

    [came] = await topology.drain(made.queue, 1, seconds=60)

    assert sent == came.headers["x-relay-id"]
    assert "forged" not in came.headers.values()
