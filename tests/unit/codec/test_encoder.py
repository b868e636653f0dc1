"""The encoder as it works through a queue: long bodies within a batch, and what it keeps from one message to the next."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import body, commands, frame

from relay.codec.encoder import Encoded, Encoder, encode_batch
from relay.codec.options import plan
from relay.memory import ENTRY, Cache
from relay.message import PublishResult
from tests.support.fakes.adapters import a_claim

CHUNK = 4096 - 8
LIMIT = 4096


def an_encoder() -> Encoder:
    """One for small frames that may write to any exchange."""
    return Encoder(frame_max=4096, max_body_bytes=1 << 20, allowed_exchanges=None)


def encoded(encoder: Encoder, **columns: Any) -> Encoded:
    """The frames of a message."""
    made = encoder.encode(a_claim(**columns))
    assert isinstance(made, Encoded)
    return made


def kinds(data: bytes) -> list[str]:
    """The types of the frames as an independent decoder reads them; one that is mistaken for another raises."""
    found = []
    while data:
        size, _, decoded = frame.unmarshal(data)
        names = {commands.Basic.Publish: "method", body.ContentBody: "body"}
        found.append(names.get(type(decoded), "header"))
        data = data[size:]
    return found


@pytest.mark.parametrize("options", [None, '{"type": "t"}'])
@pytest.mark.parametrize(("size", "frames"), [(0, 0), (1, 1), (CHUNK, 1), (CHUNK + 1, 2), (2 * CHUNK, 2), (2 * CHUNK + 1, 3)])
def test_a_message_behind_a_long_one_begins_with_its_own_method(size: int, frames: int, options: str | None) -> None:
    """A frame names the type of the next one: the last of a body says that a message is over, wherever the body was cut."""
    encoder = an_encoder()
    batch = [encoded(encoder, payload=b"x" * size, options=options), encoded(encoder)]

    assert ["method", "header", *["body"] * frames, "method", "header", "body"] == kinds(encode_batch(batch, 1))


@pytest.mark.parametrize("options", ['{"type": "t"}', '{"priority": 300}'])
def test_options_are_compiled_once(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue in which every message has the same options, fine or not, costs one look at them."""
    encoder, compiled = an_encoder(), []

    def counted(text: str, headers_limit: int) -> Any:
        compiled.append(text)
        return plan(text, headers_limit)

    monkeypatch.setattr("relay.codec.encoder.plan", counted)
    answers = [encoder.encode(a_claim(id="one", options=options)) for _ in range(3)]

    assert [options] == compiled
    assert answers == [answers[0]] * 3


def test_a_method_is_built_once() -> None:
    """Messages to one exchange with one routing key share the bytes of Basic.Publish; what is mandatory is no part of another's."""
    encoder = an_encoder()
    first, again, other = encoded(encoder), encoded(encoder), encoded(encoder, options='{"mandatory": false}')

    assert first[0] is again[0]
    assert first[0] != other[0]


def test_a_full_cache_starts_anew() -> None:
    """It holds what it may and not a byte more, and continues with what comes next."""
    cache = Cache[str, int](2 * ENTRY + 20)
    cache.keep("a", 1, 10)
    cache.keep("b", 2, 10)
    assert {"a": 1, "b": 2} == cache

    cache.keep("c", 3, 20)
    assert {"c": 3} == cache
    cache.keep("d", 4, 1)
    assert {"d": 4} == cache


def test_long_options_are_not_kept() -> None:
    """Up to 4,096 bytes are; longer ones are compiled each time, so that the cache stays small."""
    encoder = an_encoder()
    for length in (LIMIT, LIMIT + 1):
        encoder.encode(a_claim(options='{"type": "t"}'.ljust(length)))

    assert [LIMIT] == [len(text) for text in encoder._plans]


@pytest.mark.parametrize("column", ["exchange", "routing_key"])
def test_a_name_that_is_too_long_is_measured_in_bytes(column: str) -> None:
    """The sentence says which name, how long it is and how long it may be."""
    refused = an_encoder().encode(a_claim(**{column: "é" * 128}))

    assert isinstance(refused, PublishResult)
    assert ("name_too_long", f"{column} is 256 bytes long; the limit is 255 bytes") == (refused.code, refused.detail)
