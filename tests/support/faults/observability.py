"""By what an operator sees each fault of the menu: metric, log event, status line; the fault's own test asserts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.support.faults.catalogue import MENU


class Signs(NamedTuple):
    """Where one fault shows.

    Each is a name in backticks and at most a few words: a metric and its value, an event of the log, what `relay status` says. Where it
    does not show it is why: "none: …", or "as …" for a fault that shows as others do.
    """

    metric: str
    event: str
    status: str


SIGNS: Mapping[int, Signs] = {
    1: Signs('at the others `relay_swept_total{to="queue"}` rises', "at the others `locks_swept`", "relay `silent`"),
    2: Signs("`up` 0 once it is gone", "`stopping` with `drain`, `stopped` with `kept` 0", "`no relay is alive` if it was the last"),
    3: Signs("`relay_in_flight`", "`stopping`, `stopped` with `kept`", "`left`, with the messages that it keeps locked"),
    4: Signs("`relay_database_up` 0", "`database_down`, `database_up`", "refused: `PostgreSQL does not answer`"),
    5: Signs("`relay_listen_up` 0", "`listen_down`, `listen_up`", "none: over in seconds"),
    6: Signs(
        '`relay_failures_total{step="settle"}` rises',
        "`settle_failed`, `database_down`, `locks_swept` of a claim whose answer was lost",
        "none: over within the lock time",
    ),
    7: Signs("`relay_broker_up` 0", "`broker_down`, `broker_up`", "`the broker is down or blocked`"),
    8: Signs("`relay_broker_blocked` 1", "`broker_blocked`, `broker_unblocked`", "`the broker is down or blocked`"),
    9: Signs("`relay_broker_blocked` 1", "`broker_blocked`, `broker_unblocked`", "`the broker is down or blocked`"),
    10: Signs("`relay_broker_up` 0, `relay_database_up` 0", "`broker_down`, `database_down`", "as a stopped broker or PostgreSQL"),
    11: Signs(
        '`relay_messages_total{result="retry"}` rises, `relay_broker_up` 0',
        "`exchange_quarantined`, `broker_down`, `broker_up`",
        "`… delayed`",
    ),
    12: Signs('`relay_messages_total{result="retry"}` rises', "none: one more attempt; `relay show` has the last error", "`… delayed`"),
    13: Signs(
        '`relay_dead_total` by code, `relay_failures_total{step="channel"}` rises',
        "`message_dead`, `exchange_quarantined`",
        "`… not acknowledged`",
    ),
    14: Signs('`relay_dead_total{code="unroutable"}` rises', "`message_dead`", "`… dead messages are not acknowledged`"),
    15: Signs(
        '`relay_lock_lost_total`, at the others `relay_swept_total{to="queue"}`',
        "`lock_lost`, at the others `locks_swept`",
        "relay `silent`",
    ),
    16: Signs("`relay_queue_relays_alive`", "none: each relay's own `started` and `stopped`", "each living relay with its id"),
    17: Signs(
        "`relay_clock_skew_seconds`; `relay_queue_read_timestamp_seconds` is off by as much",
        "`timestamp` of every line is off by as much",
        "none: only the database's clock decides",
    ),
    18: Signs(
        "`relay_queue_oldest_transaction_seconds` rises",
        "none: messages go out as fast as before",
        "`the oldest open transaction began`, and when",
    ),
    19: Signs("`relay_stranded_total` stays", "none: nothing is wrong", "none: nothing is wrong"),
    20: Signs("none: rolled-back rows are no messages", "none: rolled-back rows are no messages", "`2 transactions write`, `2 prepared`"),
    21: Signs("`relay_queue_waiting` rises", "none: a relay works as ever", "`… messages wait`"),
    22: Signs('`relay_dead_total{code="body_too_large"}` rises', "`message_dead`", "`… rejected (body_too_large)`"),
    23: Signs(
        "`relay_listen_up` 0, `relay_queue_notification_queue_usage` above 0.5",
        "`listen_down` says `too many notifications`",
        "none: messages go out by the poll",
    ),
    24: Signs("`relay_listen_up` 0", "`listen_down` names `RELAY_LISTEN_URL`", "none: messages go out by the poll"),
    25: Signs('`relay_failures_total{step="settle"}` rises', "`settle_failed` says `No space left on device`", "`… messages wait`"),
    26: Signs(
        '`relay_failures_total{step="settle"}` rises',
        "`settle_failed` says what is missing",
        "`the archive has no partition for today, so nothing can be settled`, or `What was sent cannot be settled`, and why",
    ),
    27: Signs(
        "`relay_database_up` or `relay_broker_up` 0",
        "`database_down` or `broker_down` says what was refused",
        "`the broker is down or blocked`",
    ),
    28: Signs(
        "`relay_database_up` or `relay_broker_up` 0",
        "`database_down` or `broker_down` says `no connection left`",
        "`the broker is down or blocked`",
    ),
    29: Signs(
        "as a relay that is killed or frozen",
        "`database_down` says `has no memory`; starved, as a frozen relay",
        "as a relay that is killed or frozen",
    ),
    30: Signs("as the faults that it is made of", "as the faults that it is made of", "as the faults that it is made of"),
    31: Signs("none: two versions side by side are no trouble", "`database_down` says to run `relay migrate`", "each relay's version"),
    32: Signs("`relay_broker_up` 0", "`receive_failed`, `broker_down`", "none: a receiver claims nothing"),
    33: Signs("`relay_failures_total` rises", "`maintenance_failed`, `locks_swept`", "worker `silent`"),
    34: Signs("none: messages keep their order and go out", "`messages_renumbered`", "none: messages keep their order and go out"),
    35: Signs("as a killed PostgreSQL", "`database_down`, unless a pooler kept the sessions", "as a killed PostgreSQL"),
    36: Signs("none: later times count by the new clock", "`locks_swept` of what a dead relay held", "none: over within the lock time"),
}
"""By number of the fault."""


def signs() -> str:
    """The table of docs/operations/runbook.md."""
    rows = (f"| {MENU[number]} | {' | '.join(SIGNS[number])} |" for number in sorted(SIGNS))
    return "\n".join(["| fault | metric | log event | `relay status` |", "|---|---|---|---|", *rows])
