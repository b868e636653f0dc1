"""Properties off the wire, of every type that AMQP has: nothing of them is lost, and none of them rejects its message."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.amqp.consuming.deliveries import RawDelivery
from relay.codec import option_rules
from relay.inbox.delivery import Delivery, delivery

Field = tuple[bytes, Any]
"""As it is on the wire, with its type, and as the inbox has it."""
LAST = option_rules.TIMESTAMP_LIMIT


def packed(code: str, tag: bytes) -> Callable[[Any], Field]:
    """Fields of a number."""
    return lambda number: (tag + struct.pack(code, number), number)


def long(octets: bytes) -> bytes:
    """With its length before it."""
    return len(octets).to_bytes(4, "big") + octets


def text(octets: bytes) -> str:
    """What the inbox makes of bytes."""
    try:
        assert b"\0" not in octets
        return octets.decode()
    except (AssertionError, UnicodeDecodeError):
        return base64.b64encode(octets).decode()


def fraction(number: float) -> float | str:
    """What the inbox makes of a number that need not be whole."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number if -(2**63) <= number < 2**63 else repr(number)


def moment(seconds: int) -> Any:
    """What the inbox makes of a time in a header."""
    if seconds > LAST:
        return seconds if seconds < 2**63 else str(seconds)
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def decimal(parts: tuple[int, int]) -> Field:
    """A number with so many decimal places."""
    places, digits = parts
    shown = str(Decimal((0, tuple(map(int, str(digits))), -places)))
    return b"D" + bytes((places,)) + digits.to_bytes(4, "big"), shown


def whole(tag: bytes, code: str, bits: int, *, signed: bool) -> st.SearchStrategy[Field]:
    """Integers of a width."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high).map(packed(code, tag))


TIMES = st.one_of(
    st.integers(0, 2**64 - 1), st.sampled_from([0, 2**32, LAST, LAST + 1, 1_700_000_000_000, 1_700_000_000_000_000, 2**64 - 1])
)
PLAIN = st.one_of(
    st.booleans().map(lambda flag: (b"t" + bytes((flag,)), flag)),
    whole(b"b", ">b", 8, signed=True),
    whole(b"B", ">B", 8, signed=False),
    whole(b"s", ">h", 16, signed=True),
    whole(b"U", ">h", 16, signed=True),
    whole(b"u", ">H", 16, signed=False),
    whole(b"I", ">i", 32, signed=True),
    whole(b"i", ">I", 32, signed=False),
    whole(b"l", ">q", 64, signed=True),
    whole(b"L", ">q", 64, signed=True),
    st.floats(width=32).map(lambda number: (b"f" + struct.pack(">f", number), fraction(number))),
    st.floats().map(lambda number: (b"d" + struct.pack(">d", number), fraction(number))),
    st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1)).map(decimal),
    st.one_of(st.binary(max_size=20), st.text(max_size=20).map(str.encode)).map(lambda octets: (b"S" + long(octets), text(octets))),
    st.binary(max_size=20).map(lambda octets: (b"x" + long(octets), text(octets))),
    TIMES.map(lambda seconds: (b"T" + seconds.to_bytes(8, "big"), moment(seconds))),
    st.sampled_from([(b"V", None), (b"\0", None)]),
)
NAMES = st.text(min_size=1, max_size=20).filter(lambda name: len(name.encode()) <= 120)


def table(members: dict[str, Field]) -> Field:
    """A table of fields, without its type."""
    wire = b"".join(bytes((len(name.encode()),)) + name.encode() + field for name, (field, _) in members.items())
    return long(wire), {name.replace("\0", "\ufffd"): value for name, (_, value) in members.items()}


def array(fields: list[Field]) -> Field:
    """A list of fields."""
    return b"A" + long(b"".join(field for field, _ in fields)), [value for _, value in fields]


def nested(fields: st.SearchStrategy[Field]) -> st.SearchStrategy[Field]:
    """Lists and tables of them."""
    tables = st.dictionaries(NAMES, fields, max_size=4).map(table).map(lambda made: (b"F" + made[0], made[1]))
    return st.lists(fields, max_size=4).map(array) | tables


HEADERS = st.dictionaries(NAMES, st.recursive(PLAIN, nested, max_leaves=12), min_size=1, max_size=6).map(table)


def arrived(flags: int, properties: bytes) -> Delivery:
    """What becomes of a message with these properties."""
    header = struct.pack(">HHQH", 60, 0, 0, flags) + properties
    given = RawDelivery(1, b"", b"", header, b"").properties()
    return delivery(queue="q", exchange="e", routing_key="k", payload=b"", properties=given, max_body_bytes=1)


@given(headers=HEADERS)
def test_headers_of_every_type_arrive(headers: Field) -> None:
    """As what JSON has for them, and as what the table takes: a number that is none must not reject its neighbours and the payload."""
    wire, expected = headers

    came = arrived(0x2000, wire)

    assert came.problem is None
    assert expected == json.loads(came.options)["headers"]
    option_rules.collect(option_rules.parse(came.options))


@given(seconds=TIMES)
def test_a_timestamp_is_kept_as_the_number_that_was_sent(seconds: int) -> None:
    """In seconds it is the option. Milliseconds and microseconds, which cannot be known for certain, are a header."""
    came = json.loads(arrived(0x2040, long(b"\x01aI\x00\x00\x00\x07") + seconds.to_bytes(8, "big")).options)

    kept = seconds if seconds < 2**63 else str(seconds)
    assert ({"timestamp": seconds, "headers": {"a": 7}} if seconds <= LAST else {"headers": {"a": 7, "x-relay-timestamp": kept}}) == came


@pytest.mark.parametrize(
    ("flags", "properties"),
    [
        (0x2000, b""),
        (0x2000, long(b"\x01aZ")),
        (0x2000, long(b"\x01aI\x00")),
        (0x2000, long(b"\x01aS\x00\x00\x00\x09short")),
        (0x2000, long(b"\x05a")),
        (0x8000, b"\x02\xff\xfe"),
        (0x0040, b"\x00\x00"),
    ],
    ids=["no table", "type", "number", "string", "name", "text", "timestamp"],
)
def test_properties_that_end_too_early_or_have_no_type_are_an_error(flags: int, properties: bytes) -> None:
    """Which rejects that message, with its payload, and no other."""
    with pytest.raises((ValueError, IndexError)):
        arrived(flags, properties)


def test_flags_that_nobody_knows_are_stepped_over() -> None:
    """A header may announce more flags, in 16 bits more."""
    header = struct.pack(">HHQHH", 60, 0, 0, 0x8001, 0x0000) + b"\x04text"
    assert "text" == RawDelivery(1, b"", b"", header, b"").properties()["content_type"]


def of_json(payload: str) -> Delivery:
    """A delivery whose content type is that of JSON."""
    return delivery(
        queue="q",
        exchange="",
        routing_key="",
        payload=payload.encode(),
        properties={"content_type": "application/json"},
        max_body_bytes=1 << 24,
    )


def names(count: int, begin: str = "") -> str:
    """An object with so many names, which all begin so."""
    return json.dumps({f"{begin}{number}:": number for number in range(count)})


@pytest.mark.parametrize(
    ("payload", "is_content"),
    [
        (names(14_600), True),
        (names(14_700), False),
        (names(3_800, "x" * 500), True),
        (names(4_000, "x" * 500), False),
        (f"[{','.join([names(4_500)] * 10)}]", True),
        (f"[{','.join([names(4_700)] * 10)}]", False),
        (f'{{"a": [{names(14_600)}, {{"b": {names(2_000)}}}]}}', False),
        ("{" + ",".join(['"a": 1'] * 40_000) + "}", False),
        (json.dumps([{"a": number} for number in range(100_000)]), True),
        (json.dumps(["a:b"] * 100_000), True),
    ],
    ids=[
        "most",
        "too many",
        "most long ones",
        "too many long ones",
        "most of several",
        "too many of several",
        "nested",
        "the same",
        "small objects",
        "texts with colons",
    ],
)
def test_json_whose_names_take_long_to_sort_is_no_content(payload: str, is_content: bool) -> None:
    """PostgreSQL sorts them for minutes if somebody chose their order so, and nothing can cancel that; such a message is no poison."""
    made = of_json(payload)
    assert (payload if is_content else None, None, payload.encode()) == (made.content, made.problem, made.payload)


@pytest.mark.parametrize(
    ("payload", "is_content"),
    [
        (f"[{','.join(['6.02e23'] * 20_000)}]", True),
        (f"[{','.join(['1e300'] * 200)}]", True),
        (f"[{','.join(['1e300'] * 300)}]", False),
        (f'[{",".join(["1e131071"] * 40)}, "{"x" * 600_000}"]', False),
        (f'[{",".join(["1e131071"] * 40)}, "{"x" * 700_000}"]', True),
        (f"[{','.join(['1e131071'] * 40)}{' ' * 700_000}]", False),
    ],
    ids=["usual", "short", "long", "much for its length", "little for its length", "blanks"],
)
def test_json_whose_numbers_take_long_to_write_is_no_content(payload: str, is_content: bool) -> None:
    """PostgreSQL writes the digits of numbers with exponents several times, before it refuses them or not; blanks count for nothing."""
    made = of_json(payload)
    assert (payload if is_content else None, None, payload.encode()) == (made.content, made.problem, made.payload)
