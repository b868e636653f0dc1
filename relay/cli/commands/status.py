"""`relay status`: the queue, the throughput, the relays, and problems that need an operator."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relay.cli.common.arguments import Json
from relay.cli.common.output import count, length, quoted, show_json, show_json_line, table, terminal, words
from relay.cli.common.support import console, settings
from relay.cli.common.workers import NONE_ALIVE
from relay.cli.queue_check.wait_reasons import limited, paused, retrying
from relay.pipeline.lake.assessment import LakeRecord, judge

if TYPE_CHECKING:
    from rich.console import RenderableType

    from relay.postgres.operator_session import OperatorSession

RECENT = 5000
"""The most messages in the view queue_message_recent."""
LONG_OPEN = 5.0
"""Seconds after which an open transaction is reported."""
SHOWN = 20
"""How many blocked keys and failing schedules are listed."""
RETRYING = 5
"""How many pairs of error code and exchange are listed for messages that wait for another attempt."""
RESULTS = 10
"""Most pairs of result and code that are listed for the newest messages. Programs choose codes, so there may be thousands."""
COUNTED = 10_000
"""The most parked keys that `queue_message_status` counts; there may be more."""
RETRIES = 10_000
"""The most messages that wait for another attempt that `queue_message_status` counts; there may be more."""
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

Status = dict[str, Any]


def status(
    *,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show updates until Ctrl-C; with --json each update is one line.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Also show relays whose last heartbeat is older than the lock time plus 5 minutes.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two updates of --watch.")] = 2.0,
) -> None:
    """Show the queue, the throughput, the relays, and problems that need an operator."""
    with console() as opened:
        if watch:
            _watch(opened, interval, every=every, as_json=as_json)
        elif as_json:
            show_json(read_status(opened, every=every))
        else:
            terminal().print(picture(read_status(opened, every=every)))


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


def picture(found: Status) -> RenderableType:
    """The human-readable status."""
    from rich.console import Group  # noqa: PLC0415 - see relay.cli.common.output

    parts: list[RenderableType] = [_queue(found), _recent_line(found["recent"])]
    if found["lake"]["registered"]:
        parts.append(found["lake"]["words"])
    if found["relays"]:
        columns = ["relay", "host", "broker", "listen", "in_flight", "lanes", "heard"]
        parts += ["", table([_relay_row(row) for row in found["relays"]], columns)]
    parts += _problems(found)
    # Foreign text, such as names of relays and exchanges, is cleaned here, because Rich does not remove escape codes.
    return Group(*(words(part) if isinstance(part, str) else part for part in parts))


def _watch(opened: OperatorSession, interval: float, *, every: bool, as_json: bool) -> None:
    from rich.live import Live  # noqa: PLC0415 - see relay.cli.common.output

    if as_json:
        while True:
            show_json_line(read_status(opened, every=every))
            time.sleep(interval)
    with Live(picture(read_status(opened, every=every)), console=terminal(), auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(interval)
            live.update(picture(read_status(opened, every=every)), refresh=True)


def _recent(opened: OperatorSession) -> Status:
    rows = opened.rows("read_recent")
    messages, minute = sum(row["messages"] for row in rows), sum(row["last_minute"] for row in rows)
    span = max((row["oldest_seconds"] for row in rows), default=0.0)
    # If the view is full and all its rows are younger than a minute, there may be more rows: then the rate is that of these rows alone.
    seconds = max(span, 0.001) if messages == RECENT and span < 60 else 60.0  # noqa: PLR2004 - the query's minute
    results = [{key: row[key] for key in ("result", "error_code", "messages")} for row in rows]
    return {"messages": messages, "seconds": span, "per_second": round(minute / seconds, 2), "results": results}


def _overruled(database: dict[str, str]) -> list[Status]:
    """Policy settings for which this environment differs from the database; the database's value applies."""
    return [{"name": name, "environment": ours, "database": theirs} for name, ours, theirs in settings().overruled(database)]


def _queue(found: Status) -> str:
    queue = found["queue"]
    about = "" if queue["counted"] else "about "
    keyed = f"; {count(queue['keyed'], 'message')} under a key" if queue["keyed"] else ""
    oldest = f", the oldest for {length(queue['oldest_seconds'])}" if queue["oldest_seconds"] else ""
    retries = f"{'at least ' if queue['retrying'] >= RETRIES else ''}{queue['retrying']} retrying"
    return (
        f"{about}{count(queue['waiting'], 'message waits', 'messages wait')} in schema {found['schema']}: "
        f"{queue['ready']} ready{oldest}, {queue['locked']} locked, {queue['scheduled']} scheduled, {retries}{keyed}"
    )


def _recent_line(recent: Status) -> str:
    if not recent["messages"]:
        return "nothing was settled yet"
    shown, others = recent["results"][:RESULTS], recent["results"][RESULTS:]
    results = ", ".join(
        f"{row['messages']} {row['result']}" + (f" ({words(row['error_code'])})" if row["error_code"] else "") for row in shown
    )
    if others:
        results += f", {sum(row['messages'] for row in others)} with {count(len(others), 'other code')}"
    newest = "the only one" if recent["messages"] == 1 else f"the newest {recent['messages']}"
    return f"{count(recent['per_second'], 'message')} a second in the last minute; {newest} within {length(recent['seconds'])}: {results}"


def _lake(row: Status, queue: Status) -> Status:
    """The database's record of the lake, with a judgement."""
    judged = judge(LakeRecord(**row, lag_seconds=queue["export_lag_seconds"], differing=queue["export_differing_partitions"]), length)
    return {**row, "judgement": judged.kind, "words": words(judged.words)}


def _relay_row(row: Status) -> Status:
    state = row["state"]
    return {
        "relay": f"{row['name']} ({row['id']}, {row['version']})",
        "host": f"{row['host']}:{row['pid']}",
        "broker": state.get("broker") if row["alive"] else "left" if "left" in state else "silent",
        "listen": state.get("listen"),
        "in_flight": state.get("in_flight") if row["alive"] else row["kept"],
        "lanes": row["lanes"],
        "heard": f"{length(max(row['silent_seconds'], 0))} ago",
    }


def _problems(found: Status) -> list[str]:
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
