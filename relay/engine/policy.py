"""The database's policy, as the relay reads it from `queue_message_setting`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self, get_args

from relay.engine.retry import RetryPolicy, Unroutable


@dataclass(frozen=True, slots=True)
class Policy:
    """The current policy. Its defaults are the defaults of the settings of the same names and of a new database."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    keep_successes: bool = True
    """False: successes are not archived (setting `archive` = failures)."""
    park_dead_keys: bool = False
    """True: a dead message parks its ordering key (setting `on_dead_key` = park)."""
    notify: str = "idle"
    lock_seconds: float = 30.0
    max_body_bytes: int = 16 << 20

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Self:
        """Read the table's rows. The database has checked their values; for a missing row the default applies.

        Raises:
            ValueError: a value is unknown to this relay, for example because the schema is newer.
        """
        default = cls()
        unroutable, by_exchange = parse_unroutable(settings.get("unroutable", default.retry.unroutable))
        retry = RetryPolicy(
            max_attempts=int(settings.get("max_attempts", default.retry.max_attempts)),
            backoff_base=float(settings.get("backoff_base", default.retry.backoff_base)),
            backoff_max=float(settings.get("backoff_max", default.retry.backoff_max)),
            unroutable=unroutable,
            unroutable_by_exchange=by_exchange,
        )
        return cls(
            retry=retry,
            keep_successes=settings.get("archive", "all") == "all",
            park_dead_keys=settings.get("on_dead_key", "continue") == "park",
            notify=settings.get("notify", default.notify),
            lock_seconds=float(settings.get("lock_seconds", default.lock_seconds)),
            max_body_bytes=int(settings.get("max_body_bytes", default.max_body_bytes)),
        )


class Controls(NamedTuple):
    """What operators have paused, limited or scheduled."""

    paused: list[str]
    limits: dict[str, float]
    """Messages a second by exchange, for all relays together."""
    relays: int
    """How many relays share the limits."""
    tick_in: float | None = None
    """Seconds until the next schedule is due; None without a schedule."""


def parse_unroutable(value: str) -> tuple[Unroutable, dict[str, Unroutable]]:
    """The policy for unroutable messages and its exceptions by exchange, from text such as `retry,audit=accept`.

    Raises:
        ValueError: a part is unknown, or two parts contradict each other.

    """
    found: dict[str | None, Unroutable] = {}
    for part in value.split(","):
        exchange, equals, chosen = part.strip().rpartition("=")
        name = exchange.strip() if equals else None
        choice = next((known for known in get_args(Unroutable) if known == chosen.strip()), None)
        if choice is None or "=" in exchange or found.get(name, choice) != choice:
            raise ValueError(f"{part.strip()!r} is no policy or contradicts another part: write one such as retry,audit=accept.")
        found[name] = choice
    default = found.pop(None, "retry")
    return default, {exchange: choice for exchange, choice in found.items() if exchange is not None}
