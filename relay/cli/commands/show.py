"""`relay show`: the history of one message, and the reason why it waits."""

from __future__ import annotations

import typer

from relay.cli.common.arguments import Json, ShownMessage
from relay.cli.common.output import show_fields, show_json, words
from relay.cli.common.support import console, not_found
from relay.cli.queue_check.story import cut_at, read_story


def show(message: ShownMessage, *, as_json: Json = False) -> None:
    """Show a message's history in keys, queue and archive: state, attempts, reason for waiting, replays, bundled and replaced messages.

    If several messages have the id, all are shown, each with its place; ID@XID/SEQ shows only the message at that place.
    """
    with console() as opened:
        found = read_story(opened, message)
    if not found["story"]:
        not_found(f"No message has the id {message}, neither in the queue nor in the archive.")
    if as_json:
        show_json(found)
        return
    story, replays = found["story"], found["replays"]
    several = sum(part["replay_of"] != message.id for part in story) > 1
    if several:
        typer.echo(f"Several messages have this id. `relay show {message.id}@{story[0]['place']}` shows the one at that place.\n")
    if cut := cut_at(found):
        typer.echo(f"Only the newest {cut:,} are shown. ID@XID/SEQ shows an older one.\n")
    for part in story:
        show_fields(part)
        typer.echo()
    if found["waits_for"]:
        typer.echo(f"waits for: {found['waits_for']}")
    for replay in replays:
        whose = f"the one at {replay['of_place']} was " if several and replay["of_place"] else ""
        typer.echo(f"{whose}replayed as {replay['id']} ({replay['state']})")
    for erasure in found["erasures"]:
        which = f"the one at {erasure['place']} was " if several else ""
        typer.echo(f"{which}erased {words(erasure['erased_at'])} by {erasure['erased_by']}")
    for part in found["folded"]:
        typer.echo(f"{'it holds' if part['error_code'] == 'bundled' else 'it replaced'} {part['id']}")
