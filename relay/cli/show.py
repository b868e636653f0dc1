"""`relay show`: one message's story, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import typer

from relay.cli.check_rows import Seen
from relay.cli.output import show_fields, show_json
from relay.cli.reasons import Around, waits_for
from relay.cli.support import console, not_found
from relay.cli.types import Json, MessageId
from relay.cli.workers import read_workers

if TYPE_CHECKING:
    from relay.console import Console

FOLDED = 1000
"""Parts of a bundle that are named, which is what a bundle holds unless bundle_max_messages says otherwise."""


def show(message: MessageId, *, as_json: Json = False) -> None:
    """Tell one message's story over keys, queue and archive: state, attempts, what it waits for, replays, what it holds or replaced."""
    with console() as opened:
        story = opened.rows("show_message", id=message)
        seen = _seen(opened, message)
        waits = waits_for(seen, _around(opened, seen)) if seen else None
        replays = opened.rows("list_replays", id=message)
        folded = opened.rows("list_folded", id=message, most=FOLDED)
    if not story:
        not_found(f"No message has the id {message}, neither in the queue nor in the archive.")
    if as_json:
        show_json({"id": message, "story": story, "waits_for": waits, "replays": replays, "folded": folded})
        return
    for part in story:
        show_fields(part)
        typer.echo()
    if waits:
        typer.echo(f"waits for: {waits}")
    for replay in replays:
        typer.echo(f"replayed as {replay['id']} ({replay['state']})")
    for part in folded:
        typer.echo(f"{'it holds' if part['error_code'] == 'bundled' else 'it replaced'} {part['id']}")


def _seen(opened: Console, id_: UUID) -> Seen | None:
    """Where a message of the queue stands; None where it is not, or not any more."""
    found = opened.rows("check_message", id=id_)
    return Seen(**found[0]) if found else None


def _around(opened: Console, row: Seen) -> Around:
    hold = [] if row.ordering_key is None else opened.rows("read_key_hold", key=row.ordering_key)
    first = [] if row.head else opened.rows("read_key_head", key=row.ordering_key)
    return Around(
        paused={one["exchange"]: one for one in opened.rows("list_paused")},
        limited={one["exchange"]: one for one in opened.rows("list_limited")},
        parked=next(iter(hold), None),
        head=next((_seen(opened, one["id"]) for one in first if str(one["id"]) != row.id), None),
        workers=read_workers(opened),
    )
