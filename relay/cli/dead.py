"""`relay dead`: messages that were archived without success, and the answers to them."""

from __future__ import annotations

import shlex
import shutil
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relay.cli.output import count, named, show_fields, show_json, show_table
from relay.cli.support import console, new_group, not_found
from relay.cli.types import Json, MessageId, MessageIds, SameId

if TYPE_CHECKING:
    from relay.console import Console

app = new_group(help="Dead messages: rejected, failed or lock_expired, and the answers to them.")

Content = Annotated[
    bool, typer.Option("--content", help="Also content, options and body (base64), if your role may read queue_message_dead.")
]


class DeadResult(StrEnum):
    """Results that make a message dead."""

    REJECTED = "rejected"
    FAILED = "failed"
    LOCK_EXPIRED = "lock_expired"


@app.command("list")
def list_dead(
    *,
    acknowledged: Annotated[bool, typer.Option("--all", help="Also those that are acknowledged.")] = False,
    exchange: Annotated[str | None, typer.Option(help="Only of this exchange.")] = None,
    result: Annotated[
        DeadResult | None, typer.Option(metavar="RESULT", help="Only with this result: rejected, failed or lock_expired.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 100,
    as_json: Json = False,
) -> None:
    """List dead messages that nobody has acknowledged, the newest first."""
    with console() as opened:
        wanted = None if result is None else result.value
        rows = opened.rows("list_dead", acknowledged=acknowledged, exchange=exchange, result=wanted, most=limit)
    if as_json:
        show_json(rows)
        return
    show_table([_list_row(row) for row in rows], ["id", "archived_at", "sent_to", "why"], nothing="no dead messages")


@app.command("show")
def show_dead(message: MessageId, *, content: Content = False, as_json: Json = False) -> None:
    """Show why a message is dead, and what was answered."""
    with console() as opened:
        rows = [with_content(opened, row) if content else row for row in opened.rows("show_dead", id=message)]
    if not rows:
        not_found(f"No dead message has the id {message}; `relay show {message}` looks everywhere.")
    if as_json:
        show_json(rows)
        return
    for row in rows:
        show_fields(row)


@app.command("ack")
def acknowledge(messages: MessageIds, *, note: Annotated[str, typer.Option(help="Why; kept with your name.")] = "") -> None:
    """Acknowledge dead messages: seen, and nothing more is to be done. All or none."""
    with console() as opened, opened.transaction():
        answers = [opened.row("acknowledge_dead", id=message, note=note)["answered"] for message in dict.fromkeys(messages)]
    before = len(answers) - (answered := sum(answers))
    typer.echo(f"{answered} acknowledged" + (f", {count(before, 'was', 'were')} already" if before else ""))


@app.command("replay")
def replay_dead(
    messages: MessageIds,
    *,
    same_id: SameId = False,
) -> None:
    """Enqueue archived messages again and acknowledge them; print the new ids. All or none; an id given twice is one message."""
    with console() as opened, opened.transaction():
        made = [opened.row("replay_message", id=message, same_id=same_id)["id"] for message in dict.fromkeys(messages)]
    typer.echo("\n".join(map(str, made)))


@app.command("watch")
def watch_dead(
    *,
    command: Annotated[
        str | None,
        typer.Option(help="Run it for each, the message as JSON on its standard input; exit 0 acknowledges, else it is tried again."),
    ] = None,
    content: Content = False,
    once: Annotated[bool, typer.Option("--once", help="Handle what is there and exit; 1 if a command failed.")] = False,
    poll: Annotated[float, typer.Option(min=0.1, max=3600, help="Longest pause between two looks, in seconds.")] = 10.0,
    timeout: Annotated[float, typer.Option(min=0.1, max=86_400, help="Seconds after which a command is killed.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Print each unacknowledged dead message, or run a command for it: first what is there, then what comes, until SIGTERM."""
    from relay.cli.watch import CommandHandler, LineHandler, watch  # noqa: PLC0415 - what only this command needs

    handler = CommandHandler(_argv(command), timeout=timeout) if command is not None else LineHandler(as_json=as_json)
    raise typer.Exit(watch(handler, once=once, poll=poll, look=with_content if content else None))


def with_content(opened: Console, row: dict[str, Any]) -> dict[str, Any]:
    """The row of a dead message with what it held."""
    held = opened.rows("read_dead_content", id=row["id"], xid=row["xid"], seq=row["seq"])
    return {**row, **(held[0] if held else {})}


def _list_row(row: dict[str, Any]) -> dict[str, Any]:
    """A dead message in four columns, so that it fits a terminal."""
    code = f" ({row['error_code']})" if row["error_code"] else ""
    answer = f"; acknowledged by {row['acknowledged_by']}" if row["acknowledged_at"] else ""
    why = f"{row['result']}{code} after {count(row['attempts'], 'attempt')}: {row['error_detail'] or 'no detail'}{answer}"
    return {"id": row["id"], "archived_at": row["archived_at"], "sent_to": _sent_to(row), "why": why}


def _sent_to(row: dict[str, Any]) -> str:
    return named(row["exchange"]) + (f" {named(row['routing_key'])}" if row["routing_key"] else "")


def _argv(command: str) -> list[str]:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise typer.BadParameter(f"--command cannot be split into words: {error}.") from None
    if not argv or shutil.which(argv[0]) is None:
        raise typer.BadParameter("--command names no program that can be run; give a path, or a name that PATH finds.")
    return argv
