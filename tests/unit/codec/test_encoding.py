"""Frames of a message: what the relay sets, what it splits, what it refuses. Decoded by pamqp, which had no part in the encoding."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from relay.codec.encoder import Encoded, Encoder, encode_batch
from relay.message import Claim, PublishResult, TruncatedPayload, Verdict
from tests.support.fakes.adapters import octets
from tests.support.fakes.json_values import options_text

ID = "0190b3b0-0000-7000-8000-000000000001"
REPLAYED = "0190b3b0-0000-7000-8000-000000000002"


def _claim(**columns: Any) -> Claim:
    given: dict[str, Any] = {
        "xid": 1, "seq": 1, "id": ID, "exchange": "orders", "routing_key": "new", "payload": b'{"a": 1}', "binary": False,
        "options": None, "ordering_key": None, "replay_of": None, "attempts": 1, "expires_in": None,
    }  # fmt: skip
    return Claim(**{**given, **columns, **octets(columns.get("options"))})


def _encoder(**settings: Any) -> Encoder:
    return Encoder(**{"frame_max": 131_072, "max_body_bytes": 1 << 24, "allowed_exchanges": None, **settings})


def _encoded(claim: Claim, **settings: Any) -> Encoded:
    encoded = _encoder(**settings).encode(claim)
    assert isinstance(encoded, Encoded), encoded
    return encoded


def _refusal(claim: Claim, **settings: Any) -> tuple[str, str]:
    result = _encoder(**settings).encode(claim)
    assert isinstance(result, PublishResult)
    assert Verdict.INVALID is result.verdict
    return result.code, result.detail


def _frames(encoded: Encoded, channel: int) -> bytes:
    return encode_batch((encoded,), channel)


def _decoded(data: bytes) -> list[tuple[int, Any]]:
    """Channel and frame, for each frame in the bytes."""
    found = []
    while data:
        size, channel, decoded = frame.unmarshal(data)
        found.append((channel, decoded))
        data = data[size:]
    return found


def _message(claim: Claim, **settings: Any) -> tuple[commands.Basic.Publish, commands.Basic.Properties, bytes]:
    """Publish method, properties and body as a broker reads them."""
    decoded = [item for _, item in _decoded(_frames(_encoded(claim, **settings), 1))]
    method, properties, *parts = decoded
    assert isinstance(method, commands.Basic.Publish)
    assert isinstance(properties, header.ContentHeader)
    assert isinstance(properties.properties, commands.Basic.Properties)
    assert all(isinstance(part, body.ContentBody) for part in parts)
    whole = b"".join(part.value for part in parts)
    assert len(whole) == properties.body_size
    return method, properties.properties, whole


def test_a_message_without_options_gets_safe_defaults() -> None:
    """It is persistent, mandatory, JSON, and carries its id twice: as message id and as the relay's own header."""
    method, properties, whole = _message(_claim())

    assert ("orders", "new", True, False) == (method.exchange, method.routing_key, method.mandatory, method.immediate)
    assert ("application/json", 2, ID, {"x-relay-id": ID}) == (
        properties.content_type, properties.delivery_mode, properties.message_id, properties.headers,
    )  # fmt: skip
    assert b'{"a": 1}' == whole


def test_a_binary_payload_is_said_to_be_one() -> None:
    """A `body` travels untouched, as application/octet-stream."""
    _, properties, whole = _message(_claim(payload=b"\x00\xff\xce", binary=True))

    assert ("application/octet-stream", b"\x00\xff\xce") == (properties.content_type, whole)


@pytest.mark.parametrize("claim", [_claim(), _claim(binary=True), _claim(payload=b"x" * 5000)], ids=["json", "binary", "large"])
def test_empty_options_and_none_are_the_same_frames(claim: Claim) -> None:
    """The prebuilt header of the common case is the header that the options would make."""
    assert _encoded(claim) == _encoded(claim._replace(options=b"{}"))


def test_every_option_reaches_its_property() -> None:
    """All options of the documented table travel in the field that bears their name."""
    _, properties, _ = _message(
        _claim(
            options="""{"contentType": "text/plain", "contentEncoding": "gzip", "persistent": false, "priority": 7, "correlationId": "c",
                "replyTo": "r", "expiration": 60000, "messageId": "m", "timestamp": 1700000000, "type": "t", "userId": "u", "appId": "a",
                "headers": {"k": "v"}, "CC": "x", "BCC": ["y", "z"]}"""
        )
    )

    assert ("text/plain", "gzip", 1, 7, "c", "r", "60000", "m") == (
        properties.content_type, properties.content_encoding, properties.delivery_mode, properties.priority,
        properties.correlation_id, properties.reply_to, properties.expiration, properties.message_id,
    )  # fmt: skip
    assert datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC) == properties.timestamp
    assert ("t", "u", "a") == (properties.message_type, properties.user_id, properties.app_id)
    assert {"k": "v", "CC": ["x"], "BCC": ["y", "z"], "x-relay-id": ID} == properties.headers


@pytest.mark.parametrize(
    ("options", "expected"), [("{}", True), ('{"priority": 1}', True), ('{"mandatory": true}', True), ('{"mandatory": false}', False)]
)
def test_mandatory_is_the_app_s_to_say(options: str, expected: bool) -> None:
    """Mandatory unless the option says otherwise, and messages that differ in it do not share a prebuilt frame."""
    encoder = _encoder()
    encoder.encode(_claim())

    encoded = encoder.encode(_claim(options=options))

    assert isinstance(encoded, Encoded)
    assert expected == _decoded(_frames(encoded, 1))[0][1].mandatory


def test_the_relay_s_own_headers_cannot_be_forged() -> None:
    """Whatever an app copied into its headers, the relay's fields say what the relay knows."""
    forged = '{"headers": {"x-relay-id": "forged", "x-relay-replay-of": "forged", "kept": 1}}'

    assert {"kept": 1, "x-relay-id": ID} == _message(_claim(options=forged))[1].headers
    assert {"kept": 1, "x-relay-id": ID, "x-relay-replay-of": REPLAYED} == _message(_claim(options=forged, replay_of=REPLAYED))[1].headers


def test_a_replay_names_its_original() -> None:
    """A replay without options carries the lineage header too."""
    assert {"x-relay-id": ID, "x-relay-replay-of": REPLAYED} == _message(_claim(replay_of=REPLAYED))[1].headers


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 8176, 8177, 20_000])
def test_a_body_is_split_at_the_frame_limit(size: int) -> None:
    """No frame is longer than was negotiated, and the pieces are the payload."""
    payload = bytes(index % 251 for index in range(size))
    data = _frames(_encoded(_claim(payload=payload), frame_max=4096), 1)

    assert payload == _message(_claim(payload=payload), frame_max=4096)[2]
    assert all(len(piece) <= 4096 for piece in _raw_frames(data))


def test_a_connection_without_a_frame_limit_is_served() -> None:
    """A negotiated frame_max of 0 means no limit; bodies are still split."""
    assert b"x" * 300_000 == _message(_claim(payload=b"x" * 300_000), frame_max=0)[2]


def test_a_batch_is_its_messages_in_order() -> None:
    """One write for a batch holds what the messages would be one by one, on the channel that was asked for."""
    batch = [_encoded(claim) for claim in (_claim(), _claim(payload=b""), _claim(payload=b"y" * 9000, options='{"type": "t"}'))]

    data = encode_batch(batch, 515)

    assert data == b"".join(_frames(encoded, 515) for encoded in batch)
    assert {515} == {channel for channel, _ in _decoded(data)}
    assert len(data) == sum(encoded.size for encoded in batch)
    assert b"" == encode_batch([], 1)


@pytest.mark.parametrize(
    ("patterns", "exchange", "fine"),
    [
        (["orders"], "orders", True),
        (["orders"], "orders.eu", False),
        (["other", "orders.*"], "orders.eu", True),
        (["a[1]"], "a[1]", True),
        (["*"], "", True),
        ([""], "", True),
        (["orders"], "", False),
        ([], "orders", False),
    ],
)
def test_only_allowed_exchanges_are_written_to(patterns: list[str], exchange: str, fine: bool) -> None:
    """With an allow-list, an exchange passes by its name or by a glob; an empty list allows nothing."""
    result = _encoder(allowed_exchanges=patterns).encode(_claim(exchange=exchange))

    assert fine == isinstance(result, Encoded)
    if not isinstance(result, Encoded):
        assert ("exchange_forbidden", f'exchange "{exchange}" is not among the allowed exchanges (RELAY_ALLOWED_EXCHANGES)') == (
            result.code, result.detail,
        )  # fmt: skip


def test_a_payload_over_the_limit_says_which_limit() -> None:
    """The sentence names the column, the limit and the setting."""
    limit = "is longer than the limit of 10 bytes (RELAY_MAX_BODY_BYTES)"

    assert ("body_too_large", f"content {limit}") == _refusal(_claim(payload=b"x" * 11), max_body_bytes=10)
    assert ("body_too_large", f"body {limit}") == _refusal(_claim(payload=b"x" * 11, binary=True), max_body_bytes=10)
    assert isinstance(_encoder(max_body_bytes=10).encode(_claim(payload=b"x" * 10)), Encoded)


def test_the_beginning_of_a_payload_is_never_sent() -> None:
    """It was cut at a limit that was raised since: what the limit is now says nothing about it."""
    code, _ = _refusal(_claim(payload=TruncatedPayload(b"x" * 11)), max_body_bytes=100)

    assert "body_too_large" == code


def test_headers_leave_room_for_all_other_properties() -> None:
    """Headers at their limit, with every other property at its longest, still fit the one frame that a header may take."""
    names = ("contentType", "contentEncoding", "correlationId", "replyTo", "messageId", "type", "userId", "appId")
    longest = ", ".join(f'"{name}": "{"x" * 255}"' for name in names)
    options = f'{{{longest}, "timestamp": 1, "priority": 1, "expiration": "{"0" * 20}", "headers": {{"h": "{"x" * (1024 - 7)}"}}}}'

    data = _frames(_encoded(_claim(options=options, replay_of=REPLAYED), frame_max=4096), 1)

    assert all(len(piece) <= 4096 for piece in _raw_frames(data))
    assert "headers_too_large" == _refusal(_claim(options=options.replace('"h"', '"hh"')), frame_max=4096)[0]


@pytest.mark.parametrize("column", ["exchange", "routing_key"])
def test_a_name_that_is_no_text_is_refused(column: str) -> None:
    """A lone surrogate cannot be sent, and does not raise."""
    assert ("text_invalid", f"{column} is not valid UTF-8") == _refusal(_claim(**{column: "\ud800"}))


def test_an_oddity_of_the_row_itself_never_raises() -> None:
    """A message that no rule foresaw is refused with a code of its own; its neighbours continue."""
    code, sentence = _refusal(_claim(id="é" * 300))

    assert ("encoding_failed", "The message cannot be encoded: ValueError") == (code, sentence)


def test_out_of_memory_is_not_the_message_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is never rejected because the relay ran out of memory."""
    encoder = _encoder()

    def exhausted(_: Claim) -> Encoded:
        raise MemoryError

    monkeypatch.setattr(encoder, "_encode", exhausted)
    with pytest.raises(MemoryError):
        encoder.encode(_claim())


def test_caches_stay_bounded() -> None:
    """A queue of ever new names, options and refusals does not grow the relay."""
    encoder = _encoder()
    for number in range(5000):
        encoder.encode(_claim(routing_key=f"{number} " + "é" * 120, options=f'{{"type": "{number}"}}'))
        encoder.encode(_claim(options=f'{{"unknown{number}": {"1" * 3000}}}'))
    encoder.encode(_claim(options=f'{{"headers": {{"long": "{"x" * 5000}"}}}}'))

    assert 500 < len(encoder._methods) < (4 << 20) // (len("orders") + 4 * 120)
    assert 500 < len(encoder._plans) < (4 << 20) // 3000
    assert max(map(len, encoder._plans)) <= 4096


def test_a_refusal_is_the_same_the_second_time() -> None:
    """Cached options are refused with the same code and sentence."""
    encoder = _encoder()

    assert encoder.encode(_claim(options='{"priority": 300}')) == encoder.encode(_claim(options='{"priority": 300}'))


ANY_TEXT = st.text(max_size=300)
BAD_JSON = ['{"headers": {"a": "\\ud800"}}', '{"a": NaN}', "[" * 100_000, '{"headers": {"n": -Infinity}}', '{"headers": {"n": 1e999}}']
ANY_CLAIM = st.builds(
    _claim,
    id=st.uuids().map(str),
    options=st.none() | options_text() | ANY_TEXT | st.sampled_from(BAD_JSON),
    exchange=ANY_TEXT,
    routing_key=ANY_TEXT,
    payload=st.binary(max_size=9000),
    binary=st.booleans(),
    replay_of=st.none() | st.just(REPLAYED),
)


@given(claim=ANY_CLAIM)
def test_any_message_is_encoded_or_refused(claim: Claim) -> None:
    """Whatever is in a row, the result is frames that an independent decoder reads, or INVALID with a code and a sentence."""
    result = _encoder(frame_max=4096).encode(claim)

    if isinstance(result, PublishResult):
        assert Verdict.INVALID is result.verdict
        assert result.code not in {"", "encoding_failed"}
        assert result.detail.isprintable()
        assert result.detail
    else:
        _, properties, whole = _message(claim, frame_max=4096)
        assert whole == claim.payload
        assert claim.id == (properties.headers or {}).get("x-relay-id")


def _raw_frames(data: bytes) -> list[bytes]:
    pieces = []
    while data:
        end = int.from_bytes(data[3:7], "big") + 8
        pieces.append(data[:end])
        data = data[end:]
    return pieces
