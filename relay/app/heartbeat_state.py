"""The state that a relay reports with each heartbeat; `relay status` shows it."""

from __future__ import annotations

from collections.abc import Mapping

from relay.claims.intake import Intake
from relay.engine.window import Window
from relay.observability.health import Health
from relay.ports import LivePublisher


def state_of(*, publisher: LivePublisher, listen: str, intake: Intake, window: Window, health: Health) -> Mapping[str, object]:
    """The relay's state, in JSON types."""
    return {
        "broker": "up" if publisher.ready else "down or blocked",
        "reasons": health.reasons,
        "listen": listen,
        "in_flight": window.messages,
        "pending_transactions": intake.streams.pending,
        "lanes": len(intake.lanes.owned),
        "held": intake.streams.paused,
        "flooding": intake.streams.going,
        "limited": sorted(intake.limits.names),
        "behind": intake.behind,
        "silent": {exchange: round(seconds, 1) for exchange, seconds in publisher.silent().items() if seconds > 1},
        "notes": health.notes,
    }
