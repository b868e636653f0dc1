"""`relay dead`: lists, shows, acknowledges, replays and watches dead messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from relay.cli.common.arguments import Archived, ArchivedMessages, Json, MessageId, SameId
from relay.cli.common.output import count, named, show_fields, show_json, show_table, words
from relay.cli.common.support import REFUSED, complain, console, new_group, not_found
from relay.cli.dead_watch.options import DeadFilter, DeadResult, WatchActions, plan

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

app = new_group(help="Dead messages (rejected, failed or lock_expired): list, show, acknowledge, replay or watch them.")

MAX_CONTENT = 192 << 20
"""The most bytes of content, options and body that are read: enough for the largest body (128 MiB) in base64, and for the rest."""
Content = Annotated[
    bool,
    typer.Option("--content", help="Also show content, options and body (base64); your role must be allowed to read queue_message_dead."),
]


@app.command("list")
def list_dead(
    *,
    acknowledged: Annotated[bool, typer.Option("--all", help="Also list acknowledged messages.")] = False,
    exchange: Annotated[str | None, typer.Option(help="Only messages of this exchange.")] = None,
    routing_key: Annotated[str | None, typer.Option(help="Only messages with this routing key.")] = None,
    code: Annotated[str | None, typer.Option(help="Only messages with this code.")] = None,
    result: Annotated[
        DeadResult | None, typer.Option(metavar="RESULT", help="Only messages with this result: rejected, failed or lock_expired.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="List at most this many messages.")] = 100,
    as_json: Json = False,
) -> None:
    """List unacknowledged dead messages, the newest first."""
    with console() as opened:
        names = {"exchange": exchange, "routing_key": routing_key, "code": code, "result": None if result is None else result.value}
        rows = opened.rows("list_dead", acknowledged=acknowledged, **names, most=limit)
    if as_json:
        show_json(rows)
        return
    show_table([_list_row(row) for row in rows], ["id", "archived_at", "sent_to", "why"], nothing="no dead messages")


@app.command("groups")
def group_dead(
    *, limit: Annotated[int, typer.Option(min=1, max=10_000, help="List at most this many groups.")] = 20, as_json: Json = False
) -> None:
    """Count unacknowledged dead messages by exchange, routing key and code, the most first; of the newest 20,000 dead messages."""
    with console() as opened:
        rows = opened.rows("group_dead", most=limit)
    if as_json:
        show_json(rows)
        return
    show_table([_group_row(row) for row in rows], ["messages", "newest_at", "sent_to", "why"], nothing="no dead messages")


@app.command("show")
def show_dead(message: MessageId, *, content: Content = False, as_json: Json = False) -> None:
    """Show why a message is dead, and whether it was acknowledged or replayed."""
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
def acknowledge(messages: ArchivedMessages, *, note: Annotated[str, typer.Option(help="The reason; stored with your login.")] = "") -> None:
    """Acknowledge dead messages: no further action is needed. If one of them cannot be acknowledged, none is."""
    with console() as opened, opened.transaction():
        answers = [_acknowledge(opened, message, note) for message in dict.fromkeys(messages)]
    before = len(answers) - (answered := sum(answers))
    typer.echo(f"{answered} acknowledged" + (f", {count(before, 'was', 'were')} already" if before else ""))


@app.command("replay")
def replay_dead(
    messages: ArchivedMessages,
    *,
    again: Annotated[bool, typer.Option("--again", help="Also replay messages that were replayed before.")] = False,
    same_id: SameId = False,
    as_json: Json = False,
) -> None:
    """Enqueue archived messages again, acknowledge them, and print the new ids: all or none of them. An id given twice counts once.

    If one of them was replayed before, nothing is replayed, each such message is named, and the exit code is 1. With --again it is replayed
    once more.
    """
    with console() as opened, opened.transaction():
        opened.rows("lock_replays")
        made = {message: opened.row("replay_message", **message._asdict(), same_id=same_id)["id"] for message in dict.fromkeys(messages)}
        # Looked up only now. A watch that replayed a message at the same time has committed by now, because both acknowledge it.
        ids, xids, seqs = map(list, zip(*made, strict=True))
        if not again and (before := opened.rows("find_replayed", ids=ids, xids=xids, seqs=seqs)):
            _refuse(before, as_json=as_json)
    if as_json:
        _show_replayed(replayed=[{"id": message.id, "replayed_as": new} for message, new in made.items()])
    else:
        typer.echo("\n".join(map(str, made.values())))


@app.command("watch")
def watch_dead(
    *,
    which: DeadFilter,
    acting: WatchActions,
    content: Content = False,
    once: Annotated[
        bool, typer.Option("--once", help="Handle the existing messages and exit; exit code 1 if one was not handled.")
    ] = False,
    poll: Annotated[float, typer.Option(min=0.1, max=3600, help="The longest pause between two polls, in seconds.")] = 10.0,
    as_json: Json = False,
) -> None:
    """Report each unacknowledged dead message, existing or new, by a line, a command or a webhook, or replay it, until SIGTERM.

    Each message is handled at least once. After a restart, all messages that are not acknowledged (by --ack or by an operator) are handled
    again. The same happens after a kill between handling and acknowledgement. Of several watches with the same handlers and filter only one
    is active; the others stand by. A replay acknowledges its message by itself.
    """
    from relay.cli.dead_watch.watch_session import watch  # noqa: PLC0415 - what only this command needs

    chosen = plan(which, acting, look=with_content if content else None, as_json=as_json)
    raise typer.Exit(watch(chosen, once=once, poll=poll))


def with_content(opened: OperatorSession, row: dict[str, Any]) -> dict[str, Any]:
    """The row of a dead message with its payload, or with a sentence on why the payload is missing.

    Raises the same errors as `OperatorSession.rows`.
    """
    from relay.postgres.operator_session import UnreadableError  # noqa: PLC0415 - see relay.cli.main

    nothing = {"content": None, "options": None, "body": None}
    try:
        held = opened.rows("read_dead_content", id=row["id"], xid=row["xid"], seq=row["seq"], most=MAX_CONTENT)
    except UnreadableError as error:
        return {**row, **nothing, "content_missing": f"PostgreSQL cannot hand out the content: {error}"}
    if not held:
        return {**row, **nothing, "content_missing": "The message is no longer in the archive."}
    if (size := held[0].pop("size")) > MAX_CONTENT:
        return {**row, **nothing, "content_missing": f"The content takes {size} bytes here, and at most {MAX_CONTENT} are shown."}
    return {**row, **held[0]}


def _acknowledge(opened: OperatorSession, message: Archived, note: str) -> int:
    answered: int = opened.row("acknowledge_dead", **message._asdict(), note=note)["answered"]
    if message.xid and not any((message.xid, message.seq) == (row["xid"], row["seq"]) for row in opened.rows("show_dead", id=message.id)):
        not_found(f"No dead message has the id {message.id} and the place {message.xid}/{message.seq}.")
    return answered


def _refuse(before: Sequence[dict[str, Any]], *, as_json: bool) -> NoReturn:
    """Report the refused messages, and end the command, whose transaction rolls back."""
    reasons = {
        str(Archived(row["id"], row["xid"], row["seq"])): f"it was replayed as {row['replayed_as']} at {words(row['replayed_at'])} already"
        for row in before
    }
    if as_json:
        _show_replayed(refusals=[{"id": message, "reason": reason} for message, reason in reasons.items()])
    for message, reason in reasons.items():
        complain(f"Nothing is replayed, message {message} was refused: {reason}; --again sends it once more.")
    raise typer.Exit(REFUSED)


def _show_replayed(*, replayed: Sequence[dict[str, Any]] = (), refusals: Sequence[dict[str, Any]] = ()) -> None:
    """Print JSON with the fields of `relay replay`, and the new ids."""
    show_json({"messages": len(replayed), "refused": len(refusals), "refusals": refusals, "replayed": replayed})


def _list_row(row: dict[str, Any]) -> dict[str, Any]:
    """A dead message in four columns, so that it fits a terminal."""
    code = f" ({row['error_code']})" if row["error_code"] else ""
    answer = f"; acknowledged by {row['acknowledged_by']}" if row["acknowledged_at"] else ""
    why = f"{row['result']}{code} after {count(row['attempts'], 'attempt')}: {row['error_detail'] or 'no detail'}{answer}"
    return {"id": row["id"], "archived_at": row["archived_at"], "sent_to": _sent_to(row), "why": why}


def _group_row(row: dict[str, Any]) -> dict[str, Any]:
    why = " ".join(filter(None, (row["result"], f"({row['error_code']})" if row["error_code"] else "")))
    detail = f": {row['newest_detail']}" if row["newest_detail"] else ""
    return {"messages": row["messages"], "newest_at": row["newest_at"], "sent_to": _sent_to(row), "why": f"{why}{detail}"}


def _sent_to(row: dict[str, Any]) -> str:
    return named(row["exchange"]) + (f" {named(row['routing_key'])}" if row["routing_key"] else "")
