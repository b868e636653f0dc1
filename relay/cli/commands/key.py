"""`relay key`: lists ordering keys that wait, and skips, parks or resumes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from relay.cli.common.arguments import Json, OrderingKey, Reason
from relay.cli.common.output import quoted, show_json, show_table, typed, words
from relay.cli.common.support import changed, console, new_group, not_found, refuse

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

app = new_group(
    help="Ordering keys that wait: parked, or their first message waits for its next attempt, its own time or a paused exchange."
)

COLUMNS = ["ordering_key", "head_id", "behind", "why"]


@app.command("list")
def list_keys(
    *, limit: Annotated[int, typer.Option(min=1, max=100_000, help="List at most this many keys.")] = 100, as_json: Json = False
) -> None:
    """List waiting ordering keys, each with the reason and the number of messages behind its first message."""
    with console() as opened:
        rows = opened.rows("list_blocked_keys", most=limit, paused=True)
    if as_json:
        show_json(rows)
    else:
        show_table(
            [{**row, "ordering_key": quoted(row["ordering_key"]), "why": _why(row)} for row in rows], COLUMNS, nothing="no key waits"
        )


@app.command("skip")
def skip_key(
    key: OrderingKey, *, head: Annotated[UUID | None, typer.Option(help="Skip only if this message (id) is still the first one.")] = None
) -> None:
    """Archive a key's first message as discarded, code skipped, so that the next one is sent. Refused while the first message is locked.

    If the first message was not tried yet, it is skipped only if --head names it.
    """
    with console() as opened:
        skipped = opened.row("skip_key", key=key, expected=head or _tried_head(opened, key))["id"]
    typer.echo(f"message {skipped} is archived as discarded; replay it with `relay dead replay {skipped}`")


@app.command("park")
def park_key(key: OrderingKey, *, reason: Reason = "") -> None:
    """Park a key: its messages stay in the queue until the key is resumed.

    If the key is already parked, a new --reason replaces the old one.
    """
    with console() as opened:
        held = opened.row("park_key", key=key, reason=reason)["held"]
    typer.echo(f"key {quoted(key)} {changed(held, 'parked', reason)}")


@app.command("resume")
def resume_key(key: OrderingKey) -> None:
    """Resume a parked key, beginning with its first message."""
    with console() as opened:
        freed = opened.row("resume_key", key=key)["freed"]
    if not freed:
        not_found(f"Key {quoted(key)} is not parked; `relay key list` shows the waiting keys.")
    typer.echo(f"key {quoted(key)} is resumed")


def _tried_head(opened: OperatorSession, key: str) -> UUID:
    """The key's first message; refused if it was not tried yet, because it may have replaced the message that the operator saw."""
    found = opened.rows("read_key_head", key=key)
    if not found:
        not_found(f"No message waits under the ordering key {quoted(key)}.")
    [head] = found
    if not (head["attempts"] or head["error_detail"] or head["state"] == "locked"):
        refuse(
            f"Message {head['id']}, the first of key {quoted(key)}, was not tried yet, and nothing is changed: look with `relay key list`; "
            f"to discard it all the same name it with --head {head['id']}."
        )
    found_id: UUID = head["id"]
    return found_id


def _why(row: dict[str, Any]) -> str:
    """Why a key waits and until when, short enough for a terminal."""
    said = f": {row['reason'] or row['last_error']}" if row["reason"] or row["last_error"] else ""
    if row["why"] == "exchange paused":
        return f"exchange {quoted(row['exchange'])} is paused{said} ({typed('resume', row['exchange'])})"
    until = f" until {words(row['available_at'])}" if row["available_at"] and row["why"] != "parked" else ""
    return f"{row['why']}{until}{said}"
