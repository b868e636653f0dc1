"""Publish options as somebody hostile would write them: names that the broker reads or writes, and values of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

HEADERS: Final = (
    *("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason", "x-last-death-exchange"),
    *("x-last-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count", "x-stream-offset", "x-stream-filter-value"),
    *("x-received-from", "x-shovelled", "x-shovelled-by", "x-invalid-headers", "x-exchange", "x-routing-key", "x-cc", "x-match"),
    *("x-opt-deaths", "x-opt-rabbitmq-received-time", "x-opt-delivery-count", "x-deprecated", "x-message-ttl", "x-expires", "x-delay"),
    *("x-priority", "x-max-length", "x-queue-type", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-quorum-initial-group-size"),
    *("x-amqp-1.0-properties", "x-amqp-1.0-app-properties", "x-amqp-1.0-message-annotations", "x-amqp-1.0-footer", "x-message-id"),
    *("x-basic-type", "x-basic-app-id", "x-basic-priority", "x-basic-delivery-mode", "x-basic-expiration", "x-message-id-type"),
    *(
        "x-correlation-id",
        "x-correlation-id-type",
        "timestamp_in_ms",
        "x-trace",
        "x-connection",
        "x-user",
        "x-relay-id",
        "x-relay-replay-of",
    ),
    *("cc", "bcc", "X-DEATH", "x-Death", "headers", "expiration", "traceparent", "hash-on", "count", "reason"),
)
"""Names in RabbitMQ's own source, its plugins', and those that look like them."""
_TEXTS: Final = st.sampled_from(
    ["", "expired", "rejected", "maxlen", "delivery_limit", "all", "any-with-x", "amqp-1.0", "0", "-1", "first", "next", "é" * 130]
) | st.text(max_size=12)
_NUMBERS: Final = (
    st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**31, 2**32, 2**53]) | st.floats(allow_nan=False, allow_infinity=False)
)
_DEATH: Final = st.fixed_dictionaries(
    {},
    optional={
        name: st.deferred(lambda: VALUES)
        for name in ("queue", "reason", "count", "time", "exchange", "routing-keys", "original-expiration", "uri", "hops", "redelivered")
    },
)
"""As an entry of `x-death` or `x-received-from`."""
VALUES: Final[st.SearchStrategy[Any]] = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(HEADERS) | st.text(max_size=6), inner, max_size=3),
    max_leaves=4,
) | st.lists(_DEATH, max_size=3)


def options(keys: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Options of a row.

    Args:
        keys: routing keys that lead somewhere.
    """
    selected = st.lists(st.sampled_from(keys) | _TEXTS, max_size=3)
    text = _TEXTS | st.sampled_from(["application/json", "gzip", "amqp-1.0", "x" * 255])
    headers = st.dictionaries(st.sampled_from(HEADERS), VALUES, max_size=4) | st.dictionaries(
        st.sampled_from(HEADERS), VALUES, min_size=1, max_size=1
    )
    return st.fixed_dictionaries(
        {"headers": headers},
        optional={
            **dict.fromkeys(("contentType", "contentEncoding", "correlationId", "messageId", "type", "appId", "replyTo"), text),
            "userId": st.just("guest"), "CC": selected, "BCC": selected, "mandatory": st.booleans(), "persistent": st.booleans(),
            "priority": st.integers(0, 255), "expiration": st.sampled_from([0, 1, 1000, 4294967295, "0", "00"]),
            "timestamp": st.sampled_from([0, 1, 2**31, 253402300799]),
        },
    )  # fmt: skip
