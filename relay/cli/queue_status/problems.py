"""Words what needs an operator, a line for each problem."""

from __future__ import annotations

from typing import Any

from relay.cli.common.output import count, length, quoted, words
from relay.cli.common.workers import NONE_ALIVE
from relay.cli.queue_check.wait_reasons import limited, paused, retrying
from relay.cli.queue_status.figures import SHOWN, Status

LONG_OPEN = 5.0
"""Seconds after which an open transaction is reported."""
COUNTED = 10_000
"""The most parked keys that `queue_message_status` counts; there may be more."""
DEAD_SEEN = 20_000
"""`queue_message_status` counts unacknowledged messages among this many of the newest dead messages; there may be more."""
LATE = {"keyed": 60.0, "schedules": 60.0, "sweep": 300.0, "lake": 0.0, "retention": 3600.0}
"""Seconds by which a task may be late. pg_cron runs keys, schedules and the sweep each minute, and retention each hour."""
OVERDUE = {
    "keyed": "messages under a key have been due for {late}, and nothing folds them: start a relay, or `SELECT queue_message_fold()`",
    "schedules": "schedules have been due for {late}: start a relay, or `SELECT queue_message_run_schedules()`",
    "sweep": "the sweep of expired locks is {late} late: see the relays' logs; `SELECT queue_message_sweep_minute()` does it or says why",
    "lake": "nothing is dropped until the lake is seen, for {late} by now: `relay pipeline run`, or see why it does not find the lake",
    "retention": "retention is {late} late: see the relays' logs; `SELECT * FROM queue_message_retain()` does it or says why",
}
BEHIND = "messages under a key have been due for {late}: the relays fold those that were due before, and do not keep up"
"""Replaces the sentence about keys in OVERDUE while a relay is alive."""


def problems(found: Status) -> list[str]:
    """Problems for an operator; empty if all is well."""
    queue = found["queue"]
    alive = [row for row in found["relays"] if row["alive"]]
    lines = [] if alive else [NONE_ALIVE[found["direction"] == "inbox"]]
    lines += _relay_problems(alive)
    if dead := queue["dead_unacknowledged"]:
        counted = "at least " if dead >= DEAD_SEEN else ""
        lines.append(f"{counted}{count(dead, 'dead message is', 'dead messages are')} not acknowledged: `relay dead list`")
    lines += retrying(found["retrying"])
    lines += _suspects(queue["suspects"]) + [paused(row) for row in found["paused"]]
    behind = {name for row in alive for name in _names(row, "behind")}
    lines += [limited(row, behind=row["exchange"] in behind) for row in found["limited"]]
    lines += [_blocked(row) for row in found["blocked_keys"]]
    if queue["blocked_keys"] > SHOWN:
        counted = "at least " if queue["blocked_keys"] >= COUNTED else ""
        lines.append(f"{counted}{count(queue['blocked_keys'] - SHOWN, 'more blocked key')}: `relay key list`")
    lines += _overdue(queue, alive=bool(alive)) + _schedules(found)
    lines += _isolated_exchanges(alive) + _transactions(found["transactions"]) + _partitions(queue["partition_days_ahead"]) + _export(queue)
    if found["relays_left_out"]:
        gone = count(found["relays_left_out"], "relay that fell silent earlier is", "relays that fell silent earlier are")
        lines.append(f"{gone} not listed: `relay status --all`")
    lines += [
        f"{row['name']} is {row['environment']!r} in this environment; the database's {row['database']!r} holds: `relay config set`"
        for row in found["overruled"]
    ]
    return ["", *lines] if lines else []


def _relay_problems(alive: list[Status]) -> list[str]:
    """The relays' own reasons for not being ready or being slow."""
    lines = []
    for row in alive:
        reasons = _items(row, "reasons")
        if (broker := row["state"].get("broker", "up")) != "up":
            why = "".join(f": {sentence}" for about, sentence in reasons if about in {"broker", "blocked"})
            lines.append(f"{row['name']}: the broker is {broker}{why}")
        lines += [f"{row['name']}: {sentence}" for about, sentence in reasons if about in {"database", "settle"}]
        lines += [f"{row['name']}: {sentence}" for _, sentence in _items(row, "notes")]
        lines += [f"{row['name']} cannot check contract {sentence}" for sentence in _names(row, "unusable_contracts")]
    return lines


def _suspects(waiting: int) -> list[str]:
    """The line about suspects, which the database counts once they have waited five seconds longer than the lock time."""
    return [f"{count(waiting, 'message')} back from an expired lock: each goes out alone, one after the other"] if waiting else []


def _overdue(queue: Status, *, alive: bool) -> list[str]:
    """Overdue tasks: no relay runs them, or another session has locked their rows."""
    late = {task: seconds for task in OVERDUE if (seconds := queue[f"{task}_overdue_seconds"] or 0) > LATE[task]}
    return [(BEHIND if alive and task == "keyed" else OVERDUE[task]).format(late=length(seconds)) for task, seconds in late.items()]


def _schedules(found: Status) -> list[str]:
    lines = [f"schedule {quoted(row['name'])} fails: {words(row['why'])}" for row in found["failing_schedules"]]
    if more := found["queue"]["schedules_failing"] - len(lines):
        lines.append(f"{count(more, 'more schedule fails', 'more schedules fail')}: `relay schedule list`")
    return lines


def _isolated_exchanges(alive: list[Status]) -> list[str]:
    """Exchanges that the relays claim separately."""
    silent = [
        f"{row['name']}: {quoted(exchange)} has not answered for {length(seconds)}"
        for row in alive
        for exchange, seconds in _items(row, "silent")
    ]
    return silent + [
        f"{row['name']}: exchange {quoted(name)} has a backlog and takes turns with the others"
        for row in alive
        for name in _names(row, "flooding")
    ]


def _transactions(writing: Status) -> list[str]:
    """Open transactions: inserts that are not committed yet, and sessions that hold vacuum back."""
    lines = []
    if writing["writing"]:
        oldest = "" if writing["oldest_seconds"] is None else f", the oldest for {length(max(writing['oldest_seconds'], 0))}"
        lines.append(f"{count(writing['writing'], 'transaction writes', 'transactions write')}{oldest}, {writing['prepared']} prepared")
    if (writing["open_seconds"] or 0) > LONG_OPEN:
        lines.append(f"the oldest open transaction began {length(writing['open_seconds'])} ago: vacuum removes nothing settled since")
    if writing["hidden"]:
        lines.append("how old the oldest open transaction is cannot be seen by this login: grant it pg_read_all_stats")
    return lines


def _partitions(days_ahead: int) -> list[str]:
    """A problem if the archive has no partition for today or tomorrow."""
    if days_ahead > 0:
        return []
    day = "today, so nothing can be settled" if days_ahead < 0 else "tomorrow"
    return [f"the archive has no partition for {day}: run `SELECT queue_message_ensure_partitions()`"]


def _export(queue: Status) -> list[str]:
    """Why retention keeps old days of the archive."""
    lines = []
    if days := queue["export_unverified_days"]:
        lines.append(f"{count(days, 'day')} past retention kept until the export is verified: `relay pipeline verify`")
    if partitions := queue["export_differing_partitions"]:
        lines.append(f"{count(partitions, 'partition')} of the archive not as in the lake: `relay pipeline verify` names rows and files")
    return lines


def _blocked(row: Status) -> str:
    reason = row["reason"] or row["last_error"]
    waiting = f"{row['behind']} behind {row['head_id']}" if row["head_id"] else "no message of it waits"
    return f"key {quoted(row['ordering_key'])}: {row['why']}, {waiting}" + (f": {words(reason)}" if reason else "")


def _items(row: Status, what: str) -> list[tuple[str, Any]]:
    items = row["state"].get(what)
    return list(items.items()) if isinstance(items, dict) else []


def _names(row: Status, what: str) -> list[str]:
    names = row["state"].get(what)
    return names if isinstance(names, list) else []
