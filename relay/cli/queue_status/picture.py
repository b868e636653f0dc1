"""Words the figures of the queue: what waits, what was settled last, the lake, and the relays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.cli.common.output import count, length, table, words
from relay.cli.queue_status.figures import MINUTE, Status
from relay.cli.queue_status.problems import problems

if TYPE_CHECKING:
    from rich.console import RenderableType

RETRIES = 10_000
"""The most messages that wait for another attempt that `queue_message_status` counts; there may be more."""
RESULTS = 10
"""Most pairs of result and code that are listed for the newest messages. Programs choose codes, so there may be thousands."""


def picture(found: Status) -> RenderableType:
    """The human-readable status."""
    from rich.console import Group  # noqa: PLC0415 - see relay.cli.common.output

    parts: list[RenderableType] = [queue_line(found), recent_line(found["recent"])]
    if found["lake"]["registered"]:
        parts.append(found["lake"]["words"])
    if found["relays"]:
        columns = ["relay", "host", "broker", "listen", "in_flight", "lanes", "heard"]
        parts += ["", table([relay_row(row) for row in found["relays"]], columns)]
    parts += problems(found)
    # Foreign text, such as names of relays and exchanges, is cleaned here, because Rich does not remove escape codes.
    return Group(*(words(part) if isinstance(part, str) else part for part in parts))


def queue_line(found: Status) -> str:
    """What waits, in a sentence."""
    queue = found["queue"]
    about = "" if queue["counted"] else "about "
    keyed = f"; {count(queue['keyed'], 'message')} under a key" if queue["keyed"] else ""
    oldest = f", the oldest for {length(queue['oldest_seconds'])}" if queue["oldest_seconds"] else ""
    retries = f"{'at least ' if queue['retrying'] >= RETRIES else ''}{queue['retrying']} retrying"
    return (
        f"{about}{count(queue['waiting'], 'message waits', 'messages wait')} in schema {found['schema']}: "
        f"{queue['ready']} ready{oldest}, {queue['locked']} locked, {queue['scheduled']} scheduled, {retries}{keyed}"
    )


def recent_line(recent: Status) -> str:
    """What was settled last, in a sentence."""
    if not recent["messages"]:
        return "nothing was settled yet"
    shown, others = recent["results"][:RESULTS], recent["results"][RESULTS:]
    results = ", ".join(
        f"{row['messages']} {row['result']}" + (f" ({words(row['error_code'])})" if row["error_code"] else "") for row in shown
    )
    if others:
        results += f", {sum(row['messages'] for row in others)} with {count(len(others), 'other code')}"
    newest = "the only one" if recent["messages"] == 1 else f"the newest {recent['messages']}"
    over = "minute" if recent["rate_seconds"] == MINUTE else length(recent["rate_seconds"])
    return f"{count(recent['per_second'], 'message')} a second in the last {over}; {newest} within {length(recent['seconds'])}: {results}"


def relay_row(row: Status) -> Status:
    """A relay in seven columns."""
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
