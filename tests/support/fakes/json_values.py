"""Strategies for options: near enough to the real ones to reach every rule, strange enough to break it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from relay.codec.option_rules import known_spellings

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_LONG_TEXT = st.integers(126, 260).map("x".__mul__) | st.integers(63, 130).map("é".__mul__)
_WHOLE = st.sampled_from(
    [-1, 0, 1, 2, 255, 256, 2**32 - 1, 2**32, 253402300799, 253402300800, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**40]
)
_NUMBER = _WHOLE | st.integers() | st.floats(allow_nan=False, allow_infinity=False, width=32)
_SCALAR = (
    st.none()
    | st.booleans()
    | _NUMBER
    | _TEXT
    | _LONG_TEXT
    | st.sampled_from(["0", "5000", "4294967296", "2", "amq.rabbitmq.reply-to", "amqp-1.0"])
)
_ANY = st.recursive(
    _SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT | _LONG_TEXT, inner, max_size=4), max_leaves=12
)
_HEADER = st.sampled_from(["CC", "BCC", "x-relay-id", "x-relay-replay-of", "x-delay", "x-stream-filter-value"]) | _TEXT | _LONG_TEXT
_OPTION = st.sampled_from(known_spellings()) | st.sampled_from(["persistant", "Type", "clusterId", "Cc"]) | _TEXT
_VALUE = _SCALAR | st.lists(_TEXT | _SCALAR, max_size=3) | st.dictionaries(_HEADER, _ANY, max_size=4) | _ANY


_RIGHT: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("app_id", "type", "correlationId", "message_id", "reply_to", "replyTo"), _TEXT | _LONG_TEXT),
    "mandatory": st.booleans(), "persistent": st.booleans(), "priority": st.integers(0, 255), "delivery_mode": st.integers(1, 2),
    "deliveryMode": st.integers(1, 2), "timestamp": st.integers(0, 253402300799), "expiration": st.integers(0, 2**32 - 1) | st.just("500"),
    "headers": st.dictionaries(_HEADER, _SCALAR | _ANY, max_size=3),
}  # fmt: skip


@st.composite
def nearly_right(draw: st.DrawFn) -> str:
    """JSON text of options as an application gives them, of which one may be wrong in an interesting way."""
    names = draw(st.sets(st.sampled_from(sorted(_RIGHT)), max_size=5))
    made: dict[str, Any] = {name: draw(_RIGHT[name]) for name in sorted(names)}
    spoiled: bool = draw(st.booleans())
    if made and spoiled:
        made[draw(st.sampled_from(sorted(made)))] = draw(_VALUE)
    return json.dumps(made, ensure_ascii=False)


def options(values: st.SearchStrategy[Any] = _VALUE) -> st.SearchStrategy[dict[str, Any]]:
    """Objects whose names are mostly options and whose values are mostly wrong in an interesting way."""
    return st.dictionaries(_OPTION, values, max_size=4)


def options_text() -> st.SearchStrategy[str]:
    """JSON text that a jsonb column can hold: mostly objects, now and then anything."""
    return st.one_of(options(), options(), _ANY).map(lambda value: json.dumps(value, ensure_ascii=False))
