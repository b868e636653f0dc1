"""Reads the figures that `relay status` shows: the queue, the newest results, the relays, the lake and what may need an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relay.cli.common.output import length, words
from relay.cli.common.support import settings
from relay.pipeline.lake.assessment import LakeRecord, judge

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

RECENT = 5000
"""The most messages in the view queue_message_recent."""
MINUTE = 60.0
"""Seconds over which the view counts `last_minute`."""
SHOWN = 20
"""How many blocked keys and failing schedules are listed."""
RETRYING = 5
"""How many pairs of error code and exchange are listed for messages that wait for another attempt."""

Status = dict[str, Any]


def read_status(opened: OperatorSession, *, every: bool = False) -> Status:
    """Everything that `relay status --json` prints. `every` includes relays whose last heartbeat is old."""
    found: Status = {"schema": opened.schema, "queue": opened.row("read_status")}
    found["lake"] = _lake(opened.row("read_lake"), found["queue"])
    found["recent"] = _recent(opened)
    relays = opened.rows("read_relays")
    found["relays"] = [row for row in relays if every or not row["gone"]]
    found["relays_left_out"] = len(relays) - len(found["relays"])
    found["paused"] = opened.rows("list_paused")
    found["limited"] = opened.rows("list_limited")
    found["retrying"] = opened.rows("list_retrying", most=RETRYING)
    found["blocked_keys"] = opened.rows("list_blocked_keys", most=SHOWN, paused=False)
    found["failing_schedules"] = opened.rows("list_failing_schedules", most=SHOWN)
    found["transactions"] = opened.row("read_transactions")
    policy = {row["name"]: row["value"] for row in opened.rows("read_policy") if row["kind"] == "setting"}
    found["direction"] = policy.get("direction", "outbox")
    found["overruled"] = _overruled(policy)
    return found


def _recent(opened: OperatorSession) -> Status:
    rows = opened.rows("read_recent")
    messages, minute = sum(row["messages"] for row in rows), sum(row["last_minute"] for row in rows)
    span = max((row["oldest_seconds"] for row in rows), default=0.0)
    # A full view whose rows are all younger than a minute may lack older rows of that minute: then the rate is that of the view's own time.
    seconds = max(span, 0.001) if messages == RECENT and span < MINUTE else MINUTE
    results = [{key: row[key] for key in ("result", "error_code", "messages")} for row in rows]
    return {"messages": messages, "seconds": span, "per_second": round(minute / seconds, 2), "rate_seconds": seconds, "results": results}


def _overruled(database: dict[str, str]) -> list[Status]:
    """Policy settings for which this environment differs from the database; the database's value applies."""
    return [{"name": name, "environment": ours, "database": theirs} for name, ours, theirs in settings().overruled(database)]


def _lake(row: Status, queue: Status) -> Status:
    """The database's record of the lake, with a judgement."""
    judged = judge(LakeRecord(**row, lag_seconds=queue["export_lag_seconds"], differing=queue["export_differing_partitions"]), length)
    return {**row, "judgement": judged.kind, "words": words(judged.words)}
