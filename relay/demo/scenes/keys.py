"""Keys: messages that are sent once, messages of which only the newest is sent, bundles; and a message that is cancelled."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from relay.demo.scenes.audience import EXCHANGE
from relay.demo.scenes.stage import Check, Stage


async def play(stage: Stage) -> list[Check]:
    """Insert messages under each kind of key, and wait for their results."""
    charges = [await _insert(stage, "charge", {"order": 7}, dedup_key="charge-7") for _ in range(2)]
    levels = [await _insert(stage, "level", {"left": left}, coalesce_key="item-3") for left in (12, 11, 10)]
    lines = [await _insert(stage, "line", {"line": line}, bundle_key="audit") for line in (1, 2, 3)]
    endings = [await stage.ending(id_) for id_ in (*levels, *lines) if id_]
    sent = {key: [delivery.content for delivery in await stage.audience.seen(key)] for key in ("charge", "level", "line")}
    codes = [ending.code for ending in endings]
    return [
        Check("dedup_key: inserted, of 2 with one key", sum(id_ is not None for id_ in charges), 1),
        Check("coalesce_key: the newest of 3, delivered alone", int(sent["level"] == [{"left": 10}]), 1),
        Check("coalesce_key: discarded, superseded", codes.count("superseded"), 2),
        Check("bundle_key: 3 rows in one message, in their order", int(sent["line"] == [[{"line": 1}, {"line": 2}, {"line": 3}]]), 1),
        Check("bundle_key: discarded, bundled", codes.count("bundled"), 3),
        await _cancel(stage),
    ]


async def _cancel(stage: Stage) -> Check:
    """Cancel a message that is due in an hour."""
    [row] = await stage.commit(("scene_insert_later", {"exchange": EXCHANGE, "routing_key": "never", "content": Jsonb({})}))
    id_ = str(row[0]) if row else ""
    await stage.sidecars.command("cancel", id_)
    ending = await stage.ending(id_)
    kept_back = ending.code == "cancelled" and not stage.audience.of("never")
    return Check(f"relay cancel: {ending.result}, {ending.code}, not delivered", int(kept_back), 1)


async def _insert(stage: Stage, routing_key: str, content: dict[str, Any], **keys: str) -> str | None:
    """The id of the inserted message; None if its dedup key is known."""
    values = {"exchange": EXCHANGE, "routing_key": routing_key, "content": Jsonb(content)}
    no_keys: dict[str, object] = {"dedup_key": None, "coalesce_key": None, "bundle_key": None}
    [row] = await stage.commit(("scene_insert_keyed", {**values, **no_keys, **keys}))
    return str(row[0]) if row else None
