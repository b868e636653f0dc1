"""The gauges of the queue, and the names of their metrics."""

from __future__ import annotations

from collections.abc import Mapping

GAUGES: Mapping[str, str] = {
    "waiting": "Messages in the queue, claimed ones included; an estimate in a large one.",
    "ready": "Messages that could be claimed now.",
    "locked": "Messages claimed by some relay.",
    "delayed": "Messages that wait for their time or for another try; beyond 10,000 an estimate in a large queue.",
    "scheduled": "Delayed messages without a failed attempt.",
    "retrying": "Delayed messages that wait for another attempt, up to 10,000.",
    "oldest_seconds": "Age of the oldest message that could be claimed now.",
    "dead_unacknowledged": "Dead messages that no operator has acknowledged, of the 20,000 newest.",
    "blocked_keys": "Ordering keys that stand still.",
    "paused_exchanges": "Exchanges that an operator has paused.",
    "limited_exchanges": "Exchanges that an operator has limited.",
    "keyed": "Messages that wait under a key, up to 100,000.",
    "keyed_overdue_seconds": "For how long the first message that waits under a key has been due.",
    "schedules_overdue_seconds": "For how long the first schedule has been due.",
    "retention_overdue_seconds": "For how long retention, which is due an hour after its last run, has been overdue.",
    "sweep_overdue_seconds": "For how long the sweep, which is due a minute after its last run, has been overdue.",
    "schedules_failing": "Schedules whose message was refused, or whose last one is dead and not acknowledged.",
    "suspects": "Messages back from an expired lock that go out one by one, of the 20,000 that came due first and last.",
    "relays_alive": "Relays that have reported within the lock time.",
    "partition_days_ahead": "Days after today up to the first without an archive partition; -1 if today has none.",
    "notification_queue_usage": "Share of PostgreSQL's notification queue that is full.",
    "oldest_transaction_seconds": "Age of the oldest transaction that keeps vacuum off, if the role may see it (pg_read_all_stats).",
    "clock_skew_seconds": "The relay's clock is at least this many seconds ahead of the database's, which decides; negative behind.",
    "lake_overdue_seconds": "For how long a registered export's check of its lake has been due: nothing is dropped meanwhile.",
    "export_lag_seconds": "Age of the first archived message that is not in the lake, if an export is registered.",
    "export_unverified_days": "Days past their retention that are kept until their export is verified.",
    "export_differing_partitions": "Partitions of the archive that were compared with the lake and differ.",
}
"""The gauges' help texts, by column of the statement `read_gauges`."""


def named(column: str) -> str:
    """The metric's name for a column: `relay_queue_…`, but `relay_…` for the export, the lake, the clock and schedules."""
    return f"relay_{column}" if column.startswith(("export_", "lake_", "clock_", "schedules_")) else f"relay_queue_{column}"
