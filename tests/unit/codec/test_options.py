"""From the JSON of options to property bytes: exact wire types, spellings, and refusals in one sentence each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode

from relay.codec.option_rules import OptionsError, known_spellings, printable
from relay.codec.options import BROKER_HEADERS, BROKER_PREFIXES, CORRELATION_HEADER, RELAY_HEADERS, plan, short_string

KNOWN = (
    "appId, BCC, CC, contentEncoding, contentType, correlationId, deliveryMode, expiration, headers, immediate, mandatory, messageId, "
    "persistent, priority, replyTo, timestamp, type, userId"
)


def _headers(**headers: Any) -> bytes:
    return plan(json.dumps({"headers": headers}), 100_000).headers


def _error(text: str) -> OptionsError:
    with pytest.raises(OptionsError) as caught:
        plan(text, 100_000)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", b"l" + bytes(8)),
        ("-1", b"l" + b"\xff" * 8),
        ("9223372036854775807", b"l\x7f" + b"\xff" * 7),
        ("0.1", b"d" + bytes.fromhex("3fb999999999999a")),
        ("1.0", b"d" + bytes.fromhex("3ff0000000000000")),
        ("true", b"t\x01"),
        ("false", b"t\x00"),
        ("null", b"V"),
        ('"é"', b"S\x00\x00\x00\x02\xc3\xa9"),
        ("[]", b"A\x00\x00\x00\x00"),
        ("[null]", b"A\x00\x00\x00\x01V"),
        ("{}", b"F\x00\x00\x00\x00"),
        ('{"k": null}', b"F\x00\x00\x00\x03\x01kV"),
    ],
)
def test_a_header_value_has_one_type_on_the_wire(text: str, expected: bytes) -> None:
    """Integers are 64 bits and fractions double precision whatever their value; RabbitMQ's tags for the rest."""
    assert b"\x01h" + expected == plan(f'{{"headers": {{"h": {text}}}}}', 100_000).headers


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63 - 1)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=30),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=10), inner, max_size=4),
        ),
    )
)
def test_headers_come_out_as_they_went_in(headers: dict[str, Any]) -> None:
    """An independent decoder reads from the bytes what the JSON said, to the last bit of a number; names of the broker's are left out."""
    theirs = {"CC", "BCC", CORRELATION_HEADER, *RELAY_HEADERS, *BROKER_HEADERS}
    own = {name: value for name, value in headers.items() if name not in theirs and not name.startswith(BROKER_PREFIXES)}

    data = _headers(**own)

    assert own == decode.field_table(len(data).to_bytes(4, "big") + data)[1]


@pytest.mark.parametrize("name", known_spellings())
def test_null_leaves_an_option_out(name: str) -> None:
    """Every option may be null, which says nothing."""
    assert plan("{}", 100_000) == plan(f'{{"{name}": null}}', 100_000)


@pytest.mark.parametrize(
    ("camel", "snake", "value"),
    [
        ("appId", "app_id", '"x"'), ("BCC", "bcc", '"x"'), ("CC", "cc", '["x"]'), ("contentEncoding", "content_encoding", '"x"'),
        ("contentType", "content_type", '"x"'), ("correlationId", "correlation_id", '"x"'), ("deliveryMode", "delivery_mode", "1"),
        ("messageId", "message_id", '"x"'), ("replyTo", "reply_to", '"x"'), ("userId", "user_id", '"x"'),
    ],
)  # fmt: skip
def test_both_spellings_say_the_same(camel: str, snake: str, value: str) -> None:
    """CamelCase and snake_case mean one option, which may be given twice as long as it says one thing."""
    given = plan(f'{{"{camel}": {value}}}', 100_000)

    assert plan("{}", 100_000) != given
    assert given == plan(f'{{"{snake}": {value}}}', 100_000) == plan(f'{{"{snake}": {value}, "{camel}": {value}}}', 100_000)
    assert given == plan(f'{{"{snake}": null, "{camel}": {value}}}', 100_000)


def test_two_spellings_that_differ_are_refused() -> None:
    """The relay does not choose between two values for one option."""
    error = _error('{"contentType": "a/b", "content_type": "c/d"}')

    assert ("option_conflict", "options.content_type and options.contentType differ; give one of them") == (error.code, error.sentence)
    assert "option_conflict" == _error('{"deliveryMode": true, "delivery_mode": 1}').code


@pytest.mark.parametrize(
    ("text", "expected"), [('{"persistent": true, "deliveryMode": 1}', 2), ('{"persistent": false, "deliveryMode": 2}', 1), ("{}", 2)]
)
def test_persistent_wins_over_delivery_mode(text: str, expected: int) -> None:
    """As in amqplib, `persistent` has the last word; without both a message is persistent."""
    assert expected == plan(text, 100_000).middle[0]


@pytest.mark.parametrize(("value", "expected"), [("1", 1), ("2", 2), ('"2"', 2), ("true", 2)])
def test_delivery_mode_is_taken_as_amqplib_takes_it(value: str, expected: int) -> None:
    """A number, and what amqplib would send as persistent."""
    assert expected == plan(f'{{"deliveryMode": {value}}}', 100_000).middle[0]


@pytest.mark.parametrize(
    ("value", "code"),
    [('"é"', ""), ('"' + "x" * 256 + '"', "option_too_long"), ('["x", "' + "x" * 256 + '"]', "option_too_long"), ("5", "option_type")],
)
def test_a_routing_key_of_cc_is_held_to_its_limit_given_alone_too(value: str, code: str) -> None:
    """One key may be given without a list around it; what is no key is refused all the same."""
    if code:
        error = _error(f'{{"CC": {value}}}')
        keys = "a list of strings, each of at most 255 bytes, none beginning with amq.rabbitmq.reply-to."
        assert (code, f"options.CC must be a string or {keys}") == (error.code, error.sentence)
    else:
        assert plan(f'{{"CC": {value}}}', 100_000) == plan(f'{{"CC": [{value}]}}', 100_000)


@pytest.mark.parametrize("value", ["4294967295", '"4294967295"'])
def test_the_longest_expiration_is_allowed(value: str) -> None:
    """Number or string of digits: the limit itself is the last that passes."""
    assert b"\x0a4294967295" == plan(f'{{"expiration": {value}}}', 100_000).middle[1:]
    assert "option_range" == _error(f'{{"expiration": {value.replace("95", "96")}}}').code


@pytest.mark.parametrize(("value", "expected"), [("5000", b"\x045000"), ('"5000"', b"\x045000"), ("5e3", b"\x045000"), ("0", b"\x010")])
def test_expiration_is_milliseconds_as_digits(value: str, expected: bytes) -> None:
    """A number and a string of digits are the same on the wire."""
    assert b"\x02" + expected == plan(f'{{"expiration": {value}}}', 100_000).middle


@pytest.mark.parametrize("text", ["", "{", "nonsense", "{]", '{"a": 1,}'])
def test_what_is_not_json_is_refused(text: str) -> None:
    """A text that is no JSON at all gets a sentence of its own."""
    assert ("option_type", "options is not valid JSON") == (_error(text).code, _error(text).sentence)


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        ('{"headers": {"h": NaN}}', "option_type", "options is not valid JSON"),
        ('{"headers": {"h": -Infinity}}', "option_type", "options is not valid JSON"),
        ("[]", "option_type", "options must be a JSON object"),
        (
            '{"ttl": 1}',
            "option_unknown",
            f'options has the unknown option "ttl"; known are {KNOWN}, also in snake_case',
        ),
        ('{"type": "\\ud800"}', "text_invalid", "options holds text that is not valid UTF-8; escape it or leave it out"),
        (
            '{"headers": {"h": 9223372036854775808}}',
            "number_out_of_range",
            "options.headers holds a number that fits neither a 64-bit integer nor a double; send it as a string",
        ),
    ],
)
def test_a_refusal_says_what_to_do(text: str, code: str, sentence: str) -> None:
    """In the words that operators look for."""
    error = _error(text)

    assert (code, sentence) == (error.code, error.sentence)


@pytest.mark.parametrize("digits", [31, 5000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_of_any_length_is_out_of_range(sign: str, digits: int) -> None:
    """Also one that Python does not parse, which is valid JSON all the same."""
    assert "option_range" == _error(f'{{"priority": {sign}{"9" * digits}}}').code


def test_a_refusal_names_the_option_as_it_was_written() -> None:
    """The sentence quotes the app's own spelling, and is what the error says where it is shown as such."""
    assert "options.correlation_id must be a string of at most 255 bytes" == str(_error('{"correlation_id": 5}'))
    assert _error('{"correlation_id": 5}').sentence == "options.correlation_id must be a string of at most 255 bytes"
    assert _error('{"correlationId": 5}').sentence == "options.correlationId must be a string of at most 255 bytes"


def test_foreign_text_cannot_forge_a_log_line() -> None:
    """Control characters, escapes and anything beyond ASCII are masked, and long texts are cut."""
    assert '"?[31m??a"' == printable("\x1b[31m\r\na")
    assert '"' + "x" * 64 + '"' == printable("x" * 1000)


def test_a_short_string_holds_255_bytes() -> None:
    """The limit counts bytes, not characters."""
    assert b"\xff" + "é".encode() * 127 + b"x" == short_string("é" * 127 + "x")
    with pytest.raises(ValueError, match="256 bytes"):
        short_string("é" * 128)


@pytest.mark.parametrize("name", [*BROKER_HEADERS, *(f"{prefix}any" for prefix in BROKER_PREFIXES)])
def test_what_the_broker_writes_itself_is_left_out(name: str) -> None:
    """Whatever it is: the broker reads it back and trusts its form."""
    assert _headers(kept=1) == _headers(**{"kept": 1, name: "text"})


@pytest.mark.parametrize("value", [7, 1.5, True, None, [], ["text"], {}])
def test_a_correlation_id_is_text_or_left_out(value: Any) -> None:
    """An application's own stays as it is; over another form an MQTT subscriber's connection ends."""
    assert _headers(kept=1) == _headers(**{"kept": 1, "x-correlation-id": value})
    assert _headers(kept=1) != _headers(**{"kept": 1, "x-correlation-id": "text"})
