"""A trace: messages are delivered with the trace context that their transaction has set."""

from __future__ import annotations

from typing import Final

from psycopg.types.json import Jsonb

from relay.demo.scenes.audience import EXCHANGE
from relay.demo.scenes.stage import Check, Stage

_TRACE: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def play(stage: Stage) -> list[Check]:
    """Set the trace context by a PostgreSQL setting, as any language can."""
    await stage.commit(
        ("scene_set_trace", {"trace": _TRACE}),
        ("scene_insert", {"exchange": EXCHANGE, "routing_key": "traced", "content": Jsonb({})}),
    )
    [delivery] = await stage.audience.seen("traced")
    return [Check("relay.traceparent: in the message's headers", int(delivery.headers.get("traceparent") == _TRACE), 1)]
