"""`relay show`: the history of one message, and the reason why it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from relay.cli.common.arguments import Archived, Json, ShownMessage
from relay.cli.common.output import show_fields, show_json, words
from relay.cli.common.support import console, not_found
from relay.cli.queue_check.contexts import WaitContexts, read_row
from relay.cli.queue_check.rows import QueueRow
from relay.cli.queue_check.wait_reasons import waits_for

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

FOLDED = 1000
"""How many parts of a bundle are listed: the default of bundle_max_messages."""
SHOWN = 1000
"""How many entries of a history, and how many replays, are shown. Producers choose ids, so there may be any number of both."""


def show(message: ShownMessage, *, as_json: Json = False) -> None:
    """Show a message's history in keys, queue and archive: state, attempts, reason for waiting, replays, bundled and replaced messages.

    If several messages have the id, all are shown, each with its place; ID@XID/SEQ shows only the message at that place.
    """
    asked = message._asdict()
    with console() as opened:
        story = opened.rows("show_message", **asked, most=SHOWN)
        seen = _seen(opened, message)
        waits = waits_for(seen, WaitContexts(opened).of(seen)) if seen else None
        replays = opened.rows("list_replays", **asked, most=SHOWN)
        folded = opened.rows("list_folded", **asked, most=FOLDED)
        erasures = opened.rows("list_erasures", **asked, most=SHOWN)
    if not story:
        not_found(f"No message has the id {message}, neither in the queue nor in the archive.")
    if as_json:
        show_json({"id": message.id, "story": story, "waits_for": waits, "replays": replays, "folded": folded, "erasures": erasures})
        return
    several = sum(part["replay_of"] != message.id for part in story) > 1
    if several:
        typer.echo(f"Several messages have this id. `relay show {message.id}@{story[0]['place']}` shows the one at that place.\n")
    if SHOWN in {len(story), len(replays)}:
        typer.echo(f"Only the newest {SHOWN:,} are shown. ID@XID/SEQ shows an older one.\n")
    for part in story:
        show_fields(part)
        typer.echo()
    if waits:
        typer.echo(f"waits for: {waits}")
    for replay in replays:
        whose = f"the one at {replay['of_place']} was " if several and replay["of_place"] else ""
        typer.echo(f"{whose}replayed as {replay['id']} ({replay['state']})")
    for erasure in erasures:
        which = f"the one at {erasure['place']} was " if several else ""
        typer.echo(f"{which}erased {words(erasure['erased_at'])} by {erasure['erased_by']}")
    for part in folded:
        typer.echo(f"{'it holds' if part['error_code'] == 'bundled' else 'it replaced'} {part['id']}")


def _seen(opened: OperatorSession, message: Archived) -> QueueRow | None:
    """The row of a message in the queue; None if the message is not in the queue."""
    found = read_row(opened, message.id)
    return found if found and message.xid in {None, found.xid} and message.seq in {None, found.seq} else None
