"""Encodes a claim as AMQP 0-9-1 frames, or returns why the message can never be sent. No I/O.

Frames are encoded by hand and without their channel number, so that a batch becomes bytes by one join (see `encode_batch`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import Final

from relay.codec.option_rules import LONGEST, REPLY_ADDRESS, RESERVED_KEY, SHORT_LIMIT, OptionsError, printable
from relay.codec.options import Plan, plan, short_string
from relay.memory import Cache, of_text
from relay.message import Claim, PublishResult, TruncatedPayload, Verdict

_CACHE_BYTES: Final = 4 << 20
"""Most bytes of each cache; a full cache is cleared."""
_CACHED_TEXT: Final = 4096
"""Compiled options are not cached if their text is longer than this, in bytes."""
_OTHER_PROPERTIES: Final = 3072
"""Bytes of the header frame reserved for everything except headers: nine short strings, the relay's two headers, fixed fields, framing."""
_DEFAULT_FRAME_MAX: Final = 131_072

_METHOD, _HEADER, _BODY = b"\x01", b"\x02", b"\x03"
_END: Final = b"\xce"
_PUBLISH: Final = b"\x00\x3c\x00\x28\x00\x00"
"""Basic.Publish (60, 40) and the reserved short."""
_BASIC: Final = b"\x00\x3c\x00\x00"
"""Class 60 and weight 0, the start of a content header."""
_JSON: Final = short_string("application/json")
_OCTETS: Final = short_string("application/octet-stream")
_RELAY_ID: Final = short_string("x-relay-id") + b"S"
_REPLAY_OF: Final = short_string("x-relay-replay-of") + b"S"
_NO_OPTIONS: Final = plan("{}", _DEFAULT_FRAME_MAX)
_UUID_LENGTH: Final = 36


class Encoded(tuple[bytes, ...]):
    """The frames of one message, split where the channel number must be inserted. So each part ends with the type of the next frame."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return sum(map(len, self)) + 2 * len(self)


def encode_batch(encodeds: Iterable[Encoded], channel: int) -> bytes:
    """All frames of a batch for one channel, ready for one write; empty for an empty batch."""
    parts = [_METHOD]
    for encoded in encodeds:
        parts += encoded
    # The last part ends with the type of a next frame, but no frame follows.
    parts[-1] = parts[-1][:-1]
    return channel.to_bytes(2, "big").join(parts)


class Encoder:
    """Encodes claims for one connection, whose `frame_max` was negotiated."""

    def __init__(self, *, frame_max: int, max_body_bytes: int, allowed_exchanges: Sequence[str] | None) -> None:
        """Encode for one connection.

        Args:
            frame_max: negotiated bytes of a whole frame; 0 means no limit, and then 131,072 is used.
            max_body_bytes: limit of a message's payload.
            allowed_exchanges: names or globs (`orders.*`); None allows all, `*` includes the default exchange.
        """
        frame_max = frame_max or _DEFAULT_FRAME_MAX
        self._chunk = frame_max - 8
        self._headers_limit = max(0, frame_max - _OTHER_PROPERTIES)
        self.max_body_bytes = max_body_bytes
        self._allowed = None if allowed_exchanges is None else _matcher(allowed_exchanges)
        self._methods = Cache[tuple[str, str, bool], bytes](_CACHE_BYTES)
        self._plans = Cache[bytes, Plan | OptionsError](_CACHE_BYTES)

    def encode(self, claim: Claim) -> Encoded | PublishResult:
        """Encode one claim, or return a result INVALID with a code and a sentence that says why the message can never be sent.

        Never raises because of a message's content. It raises MemoryError, because lack of memory is not the message's fault.
        """
        try:
            return self._encode(claim)
        except OptionsError as error:
            return PublishResult(Verdict.INVALID, error.code, error.sentence)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a row holds must not stop other messages
            return PublishResult(Verdict.INVALID, "encoding_failed", f"The message cannot be encoded: {type(error).__name__}")

    def _encode(self, claim: Claim) -> Encoded:
        _, _, relay_id, exchange, routing_key, payload, binary, options, _, replay_of, _, _, _ = claim
        size = len(payload)
        if size > self.max_body_bytes or type(payload) is TruncatedPayload:
            raise _too_large(claim, self.max_body_bytes)
        mandatory = True
        if options is None and replay_of is None and 0 < size <= self._chunk and len(relay_id) == _UUID_LENGTH:
            header = (_PLAIN_OCTETS if binary else _PLAIN_JSON).pack(size, relay_id)
        else:
            chosen = _NO_OPTIONS if options is None else self._plan(options)
            header = _content_header(chosen, claim)
            mandatory = chosen.mandatory is not False
        method = self._methods.get((exchange, routing_key, mandatory)) or self._method(exchange, routing_key, mandatory)
        if size <= self._chunk and size:
            return Encoded((method, header, size.to_bytes(4, "big") + payload + b"\xce\x01"))
        return Encoded((method, header, *self._body(payload)))

    def _method(self, exchange: str, routing_key: str, mandatory: bool) -> bytes:  # noqa: FBT001 - a cache key, as read from it
        """The Basic.Publish frame, cached: a queue has few pairs of exchange and routing key."""
        if self._allowed is not None and not self._allowed.fullmatch(exchange):
            sentence = f"exchange {printable(exchange)} is not among the allowed exchanges (RELAY_ALLOWED_EXCHANGES)"
            raise OptionsError("exchange_forbidden", sentence)
        if routing_key.startswith(REPLY_ADDRESS):
            raise OptionsError("reply_to_reserved", RESERVED_KEY)
        payload = _PUBLISH + _name("exchange", exchange) + _name("routing_key", routing_key) + bytes((mandatory,))
        method = _frame_part(payload, _HEADER)
        self._methods.keep((exchange, routing_key, mandatory), method, of_text(exchange) + of_text(routing_key) + len(method))
        return method

    def _plan(self, text: bytes) -> Plan:
        """The compiled options, cached: many messages carry the same options."""
        if len(text) > LONGEST:
            sentence = f"options is longer than {LONGEST} bytes as text; write numbers of that many digits as strings"
            raise OptionsError("headers_too_large", sentence)
        known = self._plans.get(text)
        if known is None:
            try:
                known = plan(text.decode(), self._headers_limit)
            except OptionsError as error:
                known = OptionsError(error.code, error.sentence)
            if len(text) <= _CACHED_TEXT:
                self._plans.keep(text, known, len(text) + _size_of(known))
        if isinstance(known, OptionsError):
            raise OptionsError(known.code, known.sentence)
        return known

    def _body(self, payload: bytes) -> list[bytes]:
        """Body frames of at most `frame_max` bytes; an empty payload has no body frame."""
        starts = range(0, len(payload), self._chunk)
        return [_frame_part(payload[at : at + self._chunk], _BODY if at + self._chunk < len(payload) else _METHOD) for at in starts]


class Encoders:
    """Makes the encoder of each connection, and changes the payload limit of the newest encoder.

    Args:
        max_body_bytes: limit of a payload, see `Encoder`.
        allowed_exchanges: see `Encoder`.

    """

    def __init__(self, *, max_body_bytes: int, allowed_exchanges: Sequence[str] | None) -> None:
        self._max_body_bytes = max_body_bytes
        self._allowed = allowed_exchanges
        self._newest: Encoder | None = None

    def make(self, frame_max: int) -> Encoder:
        """The encoder of a connection with this frame size."""
        self._newest = Encoder(frame_max=frame_max, max_body_bytes=self._max_body_bytes, allowed_exchanges=self._allowed)
        return self._newest

    def limit(self, max_body_bytes: int) -> None:
        """Change the limit of a payload."""
        self._max_body_bytes = max_body_bytes
        if self._newest:
            self._newest.max_body_bytes = max_body_bytes


class _Plain:
    """The content header of a message without options, made by a single `struct` pack."""

    def __init__(self, content_type: bytes) -> None:
        table = _RELAY_ID + _UUID_LENGTH.to_bytes(4, "big")
        before = _NO_OPTIONS.flags.to_bytes(2, "big") + content_type + (len(table) + _UUID_LENGTH).to_bytes(4, "big") + table
        after = _NO_OPTIONS.middle + bytes((_UUID_LENGTH,))
        self._before, self._after, self._end = before, after, _END + _BODY
        self._pack = struct.Struct(f">8sQ{len(before)}s36s{len(after)}s36s2s").pack
        self._start = (12 + len(before) + len(after) + 2 * _UUID_LENGTH).to_bytes(4, "big") + _BASIC

    def pack(self, size: int, relay_id: str) -> bytes:
        """The header frame for a payload of `size` bytes and an id of 36 ASCII characters."""
        name = relay_id.encode("ascii")
        return self._pack(self._start, size, self._before, name, self._after, name, self._end)


_PLAIN_JSON: Final = _Plain(_JSON)
_PLAIN_OCTETS: Final = _Plain(_OCTETS)


def _content_header(chosen: Plan, claim: Claim) -> bytes:
    """The header frame; the relay's own headers come last, after the application's headers."""
    table = chosen.headers + _RELAY_ID + _long_string(claim.id)
    if claim.replay_of is not None:
        table += _REPLAY_OF + _long_string(claim.replay_of)
    content_type = chosen.content_type or (_OCTETS if claim.binary else _JSON)
    message_id = chosen.message_id or short_string(claim.id)
    start = _BASIC + len(claim.payload).to_bytes(8, "big") + chosen.flags.to_bytes(2, "big")
    headers = len(table).to_bytes(4, "big") + table
    payload = b"".join((start, content_type, chosen.content_encoding, headers, chosen.middle, message_id, chosen.tail))
    return _frame_part(payload, _BODY if claim.payload else _METHOD)


def _size_of(known: Plan | OptionsError) -> int:
    return len(known.sentence) if isinstance(known, OptionsError) else len(known.headers) + len(known.middle) + len(known.tail)


def _frame_part(payload: bytes, next_type: bytes) -> bytes:
    return b"".join((len(payload).to_bytes(4, "big"), payload, _END, next_type))


def _long_string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "big") + data


def _name(column: str, text: str) -> bytes:
    try:
        return short_string(text)
    except UnicodeEncodeError:
        raise OptionsError("text_invalid", f"{column} is not valid UTF-8") from None
    except ValueError:
        size = len(text.encode())
        raise OptionsError("name_too_long", f"{column} is {size} bytes long; the limit is {SHORT_LIMIT} bytes") from None


def _too_large(claim: Claim, limit: int) -> OptionsError:
    column = "body" if claim.binary else "content"
    sentence = f"{column} is longer than the limit of {limit} bytes (RELAY_MAX_BODY_BYTES)"
    return OptionsError("body_too_large", sentence)


def _matcher(patterns: Sequence[str]) -> re.Pattern[str]:
    """One regular expression for exact names and globs; without patterns it matches nothing."""
    return re.compile("|".join(part for pattern in patterns for part in (re.escape(pattern), translate(pattern))) or "(?!)")
