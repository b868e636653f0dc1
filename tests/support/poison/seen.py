"""What a consumer must see of a row: its options as docs/options.md says, but for what a kind of queue takes away."""

from __future__ import annotations

from typing import Any, Final

from tests.support.broker.raw_amqp import Delivery
from tests.support.poison.lab import KINDS
from tests.support.poison.rows import PLAIN, Row, kept

DEFAULTS: Final[dict[str, Any]] = {
    "content_type": "application/json",
    "delivery_mode": 2,
    "headers": {},
    **dict.fromkeys(("content_encoding", "priority", "correlation_id", "reply_to", "expiration", "timestamp", "type", "user_id", "app_id")),
}
"""Properties of a row without options."""
ADDED: Final = {"x-original-exchange", "x-original-routing-key", "x-original-cc"}
"""Headers that a federated queue adds."""
FAR: Final = {"federated", "federated-queue", "shovelled"}
STREAM: Final = "stream"


def altered(row: Row, kind: str, delivery: Delivery) -> str:
    """What is not as it was given, empty if all is."""
    expected = _expected(row, kind)
    seen = delivery.seen(expected)
    if "headers" in seen:
        seen["headers"] = _lasting(seen["headers"] if _is_plain(kind) else kept(seen["headers"]), kind)
    wrong = [f"{name} is {seen[name]!r:.200}, not {value!r:.200}" for name, value in expected.items() if seen[name] != value]
    return ", ".join([*wrong, *(["the body"] if row.payload != delivery.body else [])])


def _expected(row: Row, kind: str) -> dict[str, Any]:
    given = {**row.columns.expect, **row.options.expect}
    if row.options is PLAIN and "body" not in row.columns.columns:
        given = {**DEFAULTS, **given}
    expected = {name: value for name, value in given.items() if not name.startswith("body") and name not in _changing(kind)}
    return {**expected, **({"headers": _lasting({**given["headers"], **kept(row.headers)}, kind)} if "headers" in given else {})}


def _changing(kind: str) -> set[str]:
    """Properties that are taken away on the way."""
    if kind in FAR:
        return {"user_id"}
    return set() if _is_plain(kind) or kind == STREAM else {"expiration"}


def _lasting(headers: dict[str, Any], kind: str) -> dict[str, Any]:
    """Headers that no version of the broker changes on the way.

    A stream of RabbitMQ 3.10 has no place for lists and objects, and one of 4.3 has a meaning of its own for `x-opt-deaths`.
    """
    if _is_plain(kind):
        return headers
    if kind == STREAM:
        return {name: value for name, value in headers.items() if not isinstance(value, list | dict) and name != "x-opt-deaths"}
    return {name: value for name, value in headers.items() if name not in {*ADDED, "CC"}}


def _is_plain(kind: str) -> bool:
    """Whether a queue hands out what came, and adds nothing."""
    return kind not in KINDS or not (KINDS[kind].dead_letters or KINDS[kind].returns or kind in FAR or kind == STREAM)
