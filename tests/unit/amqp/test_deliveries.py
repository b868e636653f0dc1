"""Deliveries off the wire, cut anywhere, and what they become."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from relay.amqp.consuming.deliveries import DeliveryReader, RawDelivery
from relay.amqp.frames import ReplyReason
from relay.inbox.delivery import Delivery, delivery

CHANNEL = 3
LIMIT = 1 << 20


class Heard:
    """A handler and a watcher that note what they hear."""

    def __init__(self) -> None:
        self.messages: list[RawDelivery] = []
        self.methods: list[tuple[int, int]] = []

    def delivered(self, message: RawDelivery) -> None:
        """Note it."""
        self.messages.append(message)

    def replied(self, method: tuple[int, int]) -> None:
        """Note it."""
        self.methods.append(method)

    def acked(self, tag: int, *, multiple: bool) -> None:
        """Not of interest here."""

    def nacked(self, tag: int, *, multiple: bool) -> None:
        """Not of interest here."""

    def returned(self, relay_id: str, reason: ReplyReason) -> None:
        """Not of interest here."""

    def closed(self, reason: ReplyReason) -> None:
        """Not of interest here."""

    def blocked(self, reason: str) -> None:
        """Not of interest here."""

    def unblocked(self) -> None:
        """Not of interest here."""

    def closing(self, reason: ReplyReason) -> None:
        """Not of interest here."""


def frames(tag: int, body: bytes, piece: int) -> bytes:
    """A delivery as the broker writes it."""
    properties = commands.Basic.Properties(content_type="application/json", message_id=f"m-{tag}", headers={"n": tag})
    parts: list[Any] = [
        commands.Basic.Deliver("relay", tag, False, "exchange", "key"),
        ContentHeader(0, len(body), properties),
        *(ContentBody(body[at : at + piece]) for at in range(0, len(body), piece)),
    ]
    return b"".join(frame.marshal(part, CHANNEL) for part in parts)


@given(bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=4), piece=st.integers(1, 9), step=st.integers(1, 64))
def test_deliveries_are_whole_however_the_bytes_come(bodies: list[bytes], piece: int, step: int) -> None:
    """Cut into frames of any size, and read in slices of any length; an empty body is one too."""
    heard = Heard()
    wire = DeliveryReader(heard)
    wire.handlers[CHANNEL] = heard
    stream = b"".join(frames(tag, body, piece) for tag, body in enumerate(bodies, start=1))
    stream += frame.marshal(commands.Basic.ConsumeOk("relay"), CHANNEL)
    for at in range(0, len(stream), step):
        assert b"" == wire.feed(stream[at : at + step])

    assert [(tag, b"exchange", b"key", body) for tag, body in enumerate(bodies, start=1)] == [
        (each.tag, each.exchange, each.routing_key, each.body) for each in heard.messages
    ]
    assert ["m-1", {"n": 1}] == [heard.messages[0].properties()[name] for name in ("message_id", "headers")]
    assert [(60, 21)] == heard.methods


def made(payload: bytes = b"1", **properties: Any) -> Delivery:
    """A delivery of this payload and these properties."""
    properties = {"content_type": "application/json", **properties}
    return delivery(queue="q", exchange="e", routing_key="k", payload=payload, properties=properties, max_body_bytes=LIMIT)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"headers": {"x-relay-id": "a"}, "message_id": "b"}, "a"),
        ({"headers": {"x-relay-id": 7}, "message_id": "b"}, "b"),
        ({"headers": {"x-relay-id": "a" * 256}, "message_id": "b"}, "b"),
        ({"headers": {"x-relay-id": ""}, "message_id": "b"}, "b"),
        ({"headers": {"x-relay-id": "a\0"}, "message_id": "b"}, "b"),
        ({"headers": None, "message_id": "b"}, "b"),
    ],
)
def test_a_message_is_known_by_the_relays_header_else_by_its_property(properties: dict[str, Any], expected: str) -> None:
    """What cannot be an id is none."""
    assert expected == made(**properties).message_id


def test_a_message_without_an_id_is_like_no_other() -> None:
    """Each delivery of it has a name of its own, under which a write that is tried again finds it."""
    assert made().message_id != made().message_id


def test_header_values_become_json() -> None:
    """Whatever AMQP has for a type, and however deep."""
    moment = datetime(2031, 1, 2, tzinfo=UTC)
    seconds = 1_925_078_400
    headers = {"x-death": [{"time": moment, "count": 2}], "octets": b"\xff", "text": b"abc", "nothing": None, "flag": True, "part": 0.5}
    assert (
        '{"content_type":"application/json","headers":{"x-death":[{"time":"2031-01-02T00:00:00+00:00","count":2}],'
        '"octets":"/w==","text":"abc","nothing":null,"flag":true,"part":0.5},"timestamp":1925078400}'
    ) == made(headers=headers, timestamp=seconds).options


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/Vnd.shop+JSON", "text/json"])
def test_json_is_told_by_its_type(kind: str) -> None:
    """Parameters and capitals do not matter."""
    assert '{"a":1}' == made(b'{"a":1}', content_type=kind).content


@pytest.mark.parametrize("properties", [{"content_type": "text/plain"}, {"content_type": None}, {"content_encoding": "gzip"}])
def test_other_payloads_are_not_looked_into(properties: dict[str, Any]) -> None:
    """They stay bytes, although they would be JSON."""
    assert (None, None) == (made(**properties).content, made(**properties).problem)


def test_a_delivery_counts_all_that_it_keeps_in_memory() -> None:
    """Its payload, the text that is made of it with up to four bytes a character, its properties as text, and its names."""
    payload = '"' + "\U0001f600" * 1000 + '"'
    plain, text = made(payload.encode(), content_type="text/plain"), made(payload.encode(), content_type="application/json")

    assert plain.size - len(plain.options) - len(plain.payload) >= 1000
    assert text.size - plain.size >= 4 * 1000
    assert made(headers={"h": "x" * 5000}).size - made().size >= 5000
    assert made(headers={"h": "é" * 5000}).size - made().size >= 2 * 5000
