"""Commands about single messages and their exchanges: enqueue, cancel, pause, resume, limit, unlimit."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from relay.cli.common.arguments import Archived, Exchange, MessageIds, Reason
from relay.cli.common.output import count, quoted, rate, words
from relay.cli.common.support import NOT_FOUND, REFUSED, changed, complain, console, moment, not_found, publish_options, refuse

if TYPE_CHECKING:
    from relay.client import Message
    from relay.postgres.operator_session import OperatorSession

CHUNK = 1000
"""Messages of one statement."""
CHUNK_BYTES = 8 << 20
"""Bytes of input after which a statement is run with fewer messages."""
MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Byte order marks that some editors and shells write before the first line."""
KEYS = ("dedup_key", "dedup_seconds", "coalesce_key", "bundle_key")
"""Options that are passed on only if they are given."""
FOLLOW = ": relays follow within about 2 seconds; what they have claimed by then is still sent"
"""Relays read pauses and limits with each heartbeat. The database does not know which relays have read them."""
NAMED = 20
"""How many bad lines are named; the others are only counted."""


@dataclass(frozen=True, kw_only=True)
class EnqueueOptions:
    """How messages are sent; each field is an option (see relay.cli.common.help)."""

    options: Annotated[str | None, typer.Option(help="Publish options as a JSON object, e.g. '{\"priority\": 5}'.")] = None
    ordering_key: Annotated[str | None, typer.Option(help="Messages with the same key are sent in order; '' is a key like any other.")] = (
        None
    )
    available_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Send the message not before this time: 2031-01-31T12:00:00Z, or 90s, 15m, 2h, 7d from now."),
    ] = None
    expires_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Send the message not after this time; written as for --available-at.")
    ] = None
    dedup_key: Annotated[
        str | None, typer.Option(help="Do not enqueue a message while the key is known from an earlier message to the same exchange.")
    ] = None
    dedup_seconds: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="How long the key is known; by default the setting dedup_seconds.")
    ] = None
    coalesce_key: Annotated[str | None, typer.Option(help="Send only the newest of the unsent messages with the same key.")] = None
    bundle_key: Annotated[str | None, typer.Option(help="Send messages with the same key together, as one JSON list.")] = None

    def fields(self, now: Callable[[], datetime]) -> dict[str, Any]:
        """The message fields from these options; lengths of time count from `now`, which returns the database's time."""
        return {
            "options": publish_options(self.options),
            "ordering_key": self.ordering_key,
            "available_at": moment(now, self.available_at, "--available-at", ahead=True),
            "expires_at": moment(now, self.expires_at, "--expires-at", ahead=True),
            **{name: value for name in KEYS if (value := getattr(self, name)) is not None},
        }


def enqueue(
    exchange: Exchange,
    routing_key: Annotated[str, typer.Argument(help="Routing key; for the default exchange the queue's name.")],
    content: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="Content; if left out, each line of standard input is one message's content.")
    ] = None,
    *,
    terms: EnqueueOptions,
    ids: Annotated[bool, typer.Option("--ids", help="Print the id of each line's message, not the number of messages.")] = False,
) -> None:
    """Enqueue one message and print its id; or enqueue one message for each line of standard input, all or none.

    A message whose dedup key is already known is left out without an error, and the id of the earlier message is printed.
    """
    if content is None and sys.stdin.isatty():
        raise typer.BadParameter("Give the content as JSON, or lines of JSON on standard input.")
    with console() as opened:
        fields = {"exchange": exchange, "routing_key": routing_key, **terms.fields(opened.now)}
        if content is None:
            _enqueue_lines(opened, fields, ids=ids)
        else:
            _enqueue_one(opened, fields, content)


def cancel(messages: MessageIds) -> None:
    """Cancel messages that no relay has claimed: they are archived as discarded, code cancelled.

    Each id is cancelled separately; ids that cannot be cancelled are listed. Exit 1 if a message was already claimed or settled, else 3 if
    a message does not exist.
    """
    wrong = set()
    with console() as opened:
        for message in dict.fromkeys(messages):
            if opened.row("cancel_message", id=message)["cancelled"]:
                typer.echo(f"message {message} is cancelled")
            else:
                wrong.add(_not_cancelled(opened, message))
    if wrong:
        raise typer.Exit(min(wrong))


def pause(exchange: Exchange, *, reason: Reason = "") -> None:
    """Pause an exchange: its messages stay in the queue until the exchange is resumed.

    If the exchange is already paused, a new --reason replaces the old one.
    """
    with console() as opened:
        held = opened.row("pause_exchange", exchange=exchange, reason=reason)["held"]
    typer.echo(f"exchange {quoted(exchange)} {changed(held, 'paused', reason)}{FOLLOW if held else ''}")


def resume(exchange: Exchange) -> None:
    """Resume a paused exchange."""
    with console() as opened:
        freed = opened.row("resume_exchange", exchange=exchange)["freed"]
    if not freed:
        not_found(f"Exchange {quoted(exchange)} is not paused; `relay status` lists the paused ones.")
    typer.echo(f"exchange {quoted(exchange)} is resumed")


def limit(
    exchange: Exchange,
    per_second: Annotated[
        float,
        typer.Argument(
            metavar="RATE",
            min=0.001,
            max=1_000_000,
            help="Messages a second, of all relays together; from 0.001 to 1000000. To send nothing, pause the exchange.",
        ),
    ],
    *,
    reason: Reason = "",
) -> None:
    """Limit an exchange to this many messages a second; other exchanges are not slowed down. Run the command again to change the limit."""
    with console() as opened:
        found = opened.row("limit_exchange", exchange=exchange, per_second=per_second, reason=reason)
    state, before = f"limited to {rate(per_second)}", found["before"]
    if before in {None, per_second}:
        typer.echo(f"exchange {quoted(exchange)} {changed(found['limited'], state, reason)}{FOLLOW if before is None else ''}")
    else:
        typer.echo(f"exchange {quoted(exchange)} is {state} (it was {rate(before)}){FOLLOW}")


def unlimit(exchange: Exchange) -> None:
    """Lift the limit of an exchange."""
    with console() as opened:
        lifted = opened.row("unlimit_exchange", exchange=exchange)["lifted"]
    if not lifted:
        not_found(f"Exchange {quoted(exchange)} is not limited; `relay status` lists the limits.")
    typer.echo(f"exchange {quoted(exchange)} has no limit any more")


def _not_cancelled(opened: OperatorSession, message: UUID) -> int:
    """Print why a message was not cancelled; return the exit code."""
    story = opened.rows("show_message", **Archived(message)._asdict(), most=1)
    if not story:
        complain(f"No message has the id {message}, neither in the queue nor in the archive.")
        return NOT_FOUND
    newest = story[-1]
    if newest["archived_at"]:
        code = f" ({newest['error_code']})" if newest["error_code"] else ""
        complain(f"Message {message} was settled already as {newest['state']}{code}; `relay show {message}` tells its story.")
    elif newest["state"] == "locked":
        complain(
            f"Message {message} is claimed until {words(newest['lock_expires_at'])} and may be with the broker: if it is still "
            "in the queue after that, try again."
        )
    else:
        complain(f"Message {message} was claimed a moment ago and is back in the queue: try again.")
    return REFUSED


def _enqueue_one(opened: OperatorSession, fields: dict[str, Any], content: str) -> None:
    from relay.client import JsonText  # noqa: PLC0415 - heavy for --help
    from relay.client import enqueue as insert  # noqa: PLC0415
    from relay.client.message import validate  # noqa: PLC0415

    message = validate({**fields, "content": JsonText(content)})
    with opened.transaction(needs=_producer()) as connection:
        made = insert(connection, message, schema=opened.schema)
    typer.echo(str(made))
    if made != message.id:
        complain("Nothing was enqueued: the dedup_key is known, by the message of this id.")


def _producer() -> str:
    from relay.postgres.operator_session import PRODUCER  # noqa: PLC0415 - heavy for --help

    return PRODUCER


def _enqueue_lines(opened: OperatorSession, fields: dict[str, Any], *, ids: bool) -> None:
    from relay.client import JsonText  # noqa: PLC0415 - heavy for --help
    from relay.client import enqueue_many as insert  # noqa: PLC0415
    from relay.client.message import validate  # noqa: PLC0415

    # The shared options are checked first, so that a mistake in them is reported once and not for every line.
    validate({**fields, "content": JsonText("null")})
    made: list[UUID] = []
    known = 0
    bad: list[str] = []
    with opened.transaction(needs=_producer()) as connection:
        for chunk in _chunks(fields, bad):
            found = insert(connection, chunk, schema=opened.schema)
            known += sum(id_ != message.id for id_, message in zip(found, chunk, strict=True))
            made += found
        if bad:
            _report(bad)
        if not made:
            refuse(
                "Standard input holds no line with JSON: nothing was enqueued; give one JSON value a line, or the content as an argument."
            )
    duplicates = f", {known} known by the dedup_key already" if known else ""
    typer.echo("\n".join(map(str, made)) if ids else f"{count(len(made) - known, 'message')} enqueued{duplicates}")


def _report(bad: list[str]) -> None:
    """Name bad lines and end the command, whose transaction rolls back."""
    for problem in bad[:NAMED]:
        complain(problem)
    more = f" ({len(bad) - NAMED} of them not shown)" if len(bad) > NAMED else ""
    refuse(f"{count(len(bad), 'bad line')}{more}: nothing was enqueued; each line must be one whole JSON value.")


def _chunks(fields: dict[str, Any], bad: list[str]) -> Iterator[list[Message]]:
    """Chunks of messages, up to the first bad line; the lines after it are only checked."""
    chunk: list[Message] = []
    size = 0
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if number == 1 and line.startswith(MARKS):
            refuse("line 1: begins with a byte order mark: nothing was enqueued; save the input as UTF-8 without one.")
        if not line.strip():
            continue
        message = _line(fields, line, number, bad)
        if message is None or bad:
            continue
        chunk.append(message)
        size += len(line)
        if len(chunk) == CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk and not bad:
        yield chunk


def _line(fields: dict[str, Any], line: bytes, number: int, bad: list[str]) -> Message | None:
    from relay.client import JsonText, MessageError  # noqa: PLC0415 - heavy for --help
    from relay.client.message import validate  # noqa: PLC0415

    try:
        return validate({**fields, "content": JsonText(line.decode().strip())})
    except UnicodeDecodeError:
        bad.append(f"line {number}: not UTF-8")
    except MessageError as error:
        bad.append(f"line {number}: {error}")
    return None
