"""Explains in one sentence why a message is still in the queue, with the command that ends the wait. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relay.cli.common.output import count, length, quoted, rate, typed, words
from relay.cli.common.workers import Workers
from relay.cli.queue_check.rows import QueueRow, holder, when, why_lost

Row = Mapping[str, Any]

_ALL_RETRYING = "`SELECT * FROM queue_message_retrying()`"
TURN = "its turn; if it stays, `relay check --queue` says why"


@dataclass(frozen=True, kw_only=True)
class WaitContext:
    """Facts that decide what a message waits for, in addition to its own row."""

    paused: Mapping[str, Row]
    """Paused exchanges by name: rows of `list_paused.sql`."""
    limited: Mapping[str, Row]
    """Limited exchanges by name: rows of `list_limited.sql`."""
    parked: Row | None
    """The row of `read_key_hold.sql` about the message's ordering key; None if the key is not parked."""
    head: QueueRow | None
    """The first message of the message's key; None if it is the message itself."""
    workers: Workers


def waits_for(row: QueueRow, around: WaitContext) -> str:
    """What a message of the queue waits for, and what to do if the wait takes too long."""
    if reason := why_lost(row):
        return f"nothing, for no relay will find it: {reason}"
    if row.lock_ends_at is not None:
        return _lock(row, row.lock_ends_at, around.workers)
    if holds := list(_holds(row, around)):
        return ", and ".join(holds)
    if row.state == "waiting" and row.available_at is not None:
        return f"its time, {when(row.available_at)}"
    return _claim(row, around)


def paused(row: Row) -> str:
    """Describe a paused exchange."""
    return f"exchange {quoted(row['exchange'])} has been paused {_since_by(row, 'paused')}; {typed('resume', row['exchange'])}"


def limited(row: Row, *, behind: bool) -> str:
    """Describe a limited exchange; `behind` means that some of its messages wait for the limit."""
    waits = ", and messages wait for it" if behind else ""
    name = row["exchange"]
    held = f"has been limited to {rate(row['per_second'])} {_since_by(row, 'limited')}"
    return f"exchange {quoted(name)} {held}{waits}; {typed('unlimit', name)}"


def retrying(rows: Sequence[Row]) -> Iterator[str]:
    """Lines on why messages wait for another attempt, from rows of `list_retrying.sql`, and on how many reasons are not listed."""
    for row in rows:
        why = f"{words(row['error_code'])}, exchange {quoted(row['exchange'])}"
        yield f"{_attempts(row['messages'])}: {why}; next in {length(row['next_seconds'])}"
    if rows and (others := rows[0]["all_reasons"] - len(rows)):
        messages = rows[0]["all_messages"] - sum(row["messages"] for row in rows)
        yield f"{_attempts(messages)} for {count(others, 'other reason')}: {_ALL_RETRYING}"


def _attempts(messages: int) -> str:
    return f"{count(messages, 'message waits', 'messages wait')} for another attempt"


def _parked(row: Row) -> str:
    return f"key {quoted(row['ordering_key'])} has been parked {_since_by(row, 'held')}; {typed('key resume', row['ordering_key'])}"


def _since_by(row: Row, done: str) -> str:
    """Since when, by whom and why."""
    why = f": {words(row['reason'])}" if row["reason"] else ", no reason given"
    return f"since {words(row[f'{done}_at'])} by {words(row[f'{done}_by'])}{why}"


def _holds(row: QueueRow, around: WaitContext) -> Iterator[str]:
    """What blocks a message: a pause, a parked key, or the message in front of it."""
    if row.exchange in around.paused:
        yield paused(around.paused[row.exchange])
    if around.parked:
        yield _parked(around.parked)
    elif around.head:
        head = around.head
        why = waits_for(head, replace(around, head=None))
        first = f"message {head.id} ({_state(head)}), which goes first under key {quoted(str(row.ordering_key))} and itself waits for"
        yield f"{first}: {why}; `relay show {head.id}`"


def _state(row: QueueRow) -> str:
    """The state in the words of `relay show`."""
    if row.lock_ends_at is not None:
        return "locked"
    return "delayed" if (row.available_at or 0.0) > row.clock else "ready"


def _lock(row: QueueRow, ends_at: float, workers: Workers) -> str:
    """What a locked message waits for: a relay, or the end of a lock set by hand."""
    if row.session is not None:
        return _session(row.session)
    if row.over:
        return workers.stopped or f"a relay, which frees it: its lock ended {when(ends_at)}"
    if row.locked_by in workers.alive:
        return f"{words(workers.alive[row.locked_by]['name'])}, which has claimed it; its lock ends {when(ends_at)} unless it is renewed"
    who = f"by relay {row.locked_by}, which is not alive" if row.locked_by else "by hand"
    return f"the end of its lock, {when(ends_at)}, which was taken {who}"


def _claim(row: QueueRow, around: WaitContext) -> str:
    """Why a message that could be claimed has not been claimed yet."""
    workers, silent = around.workers, around.workers.said("silent")
    if row.session is not None:
        return _session(row.session)
    if workers.stopped:
        return workers.stopped
    if row.exchange in silent:
        return f"the broker, which has not answered for exchange {quoted(row.exchange)} for {length(silent[row.exchange])}: `relay status`"
    if row.exchange in around.limited:
        return limited(around.limited[row.exchange], behind=row.exchange in workers.said("behind"))
    return TURN


def _session(pid: int) -> str:
    """The text about a session that has the row locked.

    A single scan cannot distinguish a new claim from a transaction that stays open.
    """
    return f"{holder(pid)}, which has the row locked: if that lasts, end its transaction"
