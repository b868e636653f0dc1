"""Messages and receipts of an hour, for judgements of what became of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from relay.pipeline.reconcile.classify import Rules

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ARCHIVE = (
    "xid long, seq long, id string, exchange string, routing_key string, result string, created_at timestamp, claimed_at timestamp, "
    "confirmed_at timestamp, archived_at timestamp, replay_of string, copied boolean"
)
RECEIPTS = "message_id string, queue string, received_at timestamp"
Message = tuple[Any, ...]


def at(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def message(
    seq: int,
    id_: str,
    *,
    exchange: str = "orders",
    key: str = "k",
    result: str = "success",
    second: float = 0,
    replays: str | None = None,
    copied: bool = False,
) -> Message:
    """A message that was created at a second, claimed after one more, confirmed after two and archived after three."""
    confirmed = at(second + 2) if result == "success" else None
    return (1, seq, id_, exchange, key, result, at(second), at(second + 1), confirmed, at(second + 3), replays, copied)


def rules(**given: Any) -> Rules:
    """An hour from noon on, looked at a day later."""
    return Rules(**{"since": NOON, "until": at(3600), "as_of": at(86_400), **given})
