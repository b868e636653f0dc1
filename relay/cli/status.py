"""`relay status`: what waits, what goes out, who is at work, and what needs a person."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relay.cli.output import length, show_json, show_json_line, table, terminal
from relay.cli.support import console, settings
from relay.cli.types import Json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from relay.console import Console

RECENT = 5000
"""Messages that the view queue_message_recent looks at."""
SHOWN = 20
"""Blocked keys that are listed."""

Status = dict[str, Any]


def status(
    *,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again until Ctrl-C; with --json one line each.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two looks of --watch.")] = 2.0,
) -> None:
    """Show what waits, what goes out, which relays are at work and what needs a person."""
    with console() as opened:
        if watch:
            _watch(opened, interval, as_json=as_json)
        elif as_json:
            show_json(read_status(opened))
        else:
            terminal().print(picture(read_status(opened)))


def read_status(opened: Console) -> Status:
    """Everything that `relay status --json` prints."""
    found: Status = {"schema": opened.schema, "queue": opened.row("read_status")}
    found["recent"] = _recent(opened)
    found["relays"] = opened.rows("read_relays")
    found["paused"] = opened.rows("list_paused")
    found["blocked_keys"] = opened.rows("list_blocked_keys", most=SHOWN)
    found["transactions"] = opened.row("read_transactions")
    found["overruled"] = _overruled(opened)
    return found


def picture(found: Status) -> RenderableType:
    """The status for people."""
    from rich.console import Group  # noqa: PLC0415 - see cli_output

    parts: list[RenderableType] = [_queue(found), _recent_line(found["recent"])]
    if found["relays"]:
        columns = ["relay", "host", "broker", "listen", "in_flight", "lanes", "heard"]
        parts += ["", table([_relay_row(row) for row in found["relays"]], columns)]
    parts += _troubles(found)
    return Group(*parts)


def _watch(opened: Console, interval: float, *, as_json: bool) -> None:
    from rich.live import Live  # noqa: PLC0415 - see cli_output

    if as_json:
        while True:
            show_json_line(read_status(opened))
            time.sleep(interval)
    with Live(picture(read_status(opened)), console=terminal(), auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(interval)
            live.update(picture(read_status(opened)), refresh=True)


def _recent(opened: Console) -> Status:
    rows = opened.rows("read_recent")
    messages, minute = sum(row["messages"] for row in rows), sum(row["last_minute"] for row in rows)
    span = max((row["oldest_seconds"] for row in rows), default=0.0)
    # Where all that was looked at is younger than a minute there may be more: then the span is what they took.
    seconds = max(span, 0.001) if messages == RECENT and span < 60 else 60.0  # noqa: PLR2004 - the query's minute
    results = [{key: row[key] for key in ("result", "error_code", "messages")} for row in rows]
    return {"messages": messages, "seconds": span, "per_second": round(minute / seconds, 2), "results": results}


def _overruled(opened: Console) -> list[Status]:
    """Policy that this environment sets otherwise than the database, whose value holds."""
    database = {row["name"]: row["value"] for row in opened.rows("read_policy")}
    return [{"name": name, "environment": ours, "database": theirs} for name, ours, theirs in settings().overruled(database)]


def _queue(found: Status) -> str:
    queue = found["queue"]
    about = "" if queue["counted"] else "about "
    oldest = f", the oldest since {length(queue['oldest_seconds'])}" if queue["oldest_seconds"] else ""
    return (
        f"{about}{queue['waiting']} messages wait in schema {found['schema']}: "
        f"{queue['ready']} ready{oldest}, {queue['locked']} locked, {queue['delayed']} delayed"
    )


def _recent_line(recent: Status) -> str:
    if not recent["messages"]:
        return "nothing was settled yet"
    results = ", ".join(
        f"{row['messages']} {row['result']}" + (f" ({row['error_code']})" if row["error_code"] else "") for row in recent["results"]
    )
    return (
        f"{recent['per_second']:g} messages/s in the last minute; the newest {recent['messages']} in {length(recent['seconds'])}: {results}"
    )


def _relay_row(row: Status) -> Status:
    state = row["state"]
    return {
        "relay": f"{row['name']} ({row['id']}, {row['version']})",
        "host": f"{row['host']}:{row['pid']}",
        "broker": state.get("broker") if row["alive"] else "silent",
        "listen": state.get("listen"),
        "in_flight": state.get("in_flight"),
        "lanes": row["lanes"],
        "heard": f"{length(max(row['silent_seconds'], 0))} ago",
    }


def _troubles(found: Status) -> list[str]:
    """What a person should know; nothing where all is well."""
    queue, writing = found["queue"], found["transactions"]
    alive = [row for row in found["relays"] if row["alive"]]
    lines = [] if alive else ["no relay is alive: start one with `relay run`"]
    lines += [f"{row['name']}: the broker is {row['state']['broker']}" for row in alive if row["state"].get("broker", "up") != "up"]
    if queue["dead_unacknowledged"]:
        lines.append(f"{queue['dead_unacknowledged']} dead messages are not acknowledged: `relay dead list`")
    lines += [f"exchange {row['exchange']!r} is paused by {row['paused_by']}: `relay resume`" for row in found["paused"]]
    lines += [_blocked(row) for row in found["blocked_keys"]]
    if queue["blocked_keys"] > SHOWN:
        lines.append(f"{queue['blocked_keys'] - SHOWN} more blocked keys: `relay key list`")
    lines += [f"{row['name']}: {exchange!r} has not answered for {length(seconds)}" for row in alive for exchange, seconds in _silent(row)]
    if writing["writing"]:
        lines.append(
            f"{writing['writing']} transactions write, the oldest for {length(writing['oldest_seconds'])}, {writing['prepared']} prepared"
        )
    if queue["partition_days_ahead"] < 1:
        lines.append("the archive has no partition for tomorrow: run `SELECT queue_message_ensure_partitions()`")
    lines += [
        f"{row['name']} is {row['environment']!r} in this environment; the database's {row['database']!r} holds: `relay config set`"
        for row in found["overruled"]
    ]
    return ["", *lines] if lines else []


def _blocked(row: Status) -> str:
    reason = row["reason"] or row["last_error"] or ""
    waiting = f"{row['behind']} behind {row['head_id']}" if row["head_id"] else "no message of it waits"
    return f"key {row['ordering_key']!r}: {row['why']}, {waiting} {reason}".rstrip()


def _silent(row: Status) -> list[tuple[str, float]]:
    silent = row["state"].get("silent")
    return list(silent.items()) if isinstance(silent, dict) else []
