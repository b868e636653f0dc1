"""`relay pipeline erase`: contents of chosen messages leave the lake."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relay.cli.common.arguments import ErasedMessages, Json
from relay.cli.common.output import count
from relay.cli.common.pipeline_context import Master, finish, say, spark, workplace


def erase(
    messages: ErasedMessages = None,
    *,
    keys: Annotated[
        list[str] | None,
        typer.Option("--ordering-key", metavar="KEY", help="Messages with this ordering key; may be given several times."),
    ] = None,
    at_once: Annotated[
        bool,
        typer.Option("--at-once", help="Also delete the old files that have left the table; readers of older versions of the table fail."),
    ] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Erase the contents of messages in the lake, and prove it by a scan. Erase them in PostgreSQL first.

    Replays of a message, and the bundle that holds it, are erased too. With ID@XID/SEQ no replays are. Exit 5 if files
    of the table still have contents; old files outside it are only named.
    """
    if not (messages or keys):
        raise typer.BadParameter("Nothing says which messages to erase: give ids or --ordering-key.")
    with workplace() as place, spark("erase", master) as session:
        from relay.pipeline.erase import job  # noqa: PLC0415 - see relay.cli.main

        ids = list(map(str, messages or ()))
        done = job.run(lake=place.lake, database=place.database, say=say, ids=ids, keys=keys or (), spark=session, at_once=at_once)
        finish(done, as_json=as_json, words=_erased)


def _erased(done: Any) -> str:
    if done.failure or done.left:
        return f"{count(done.messages, 'message')} erased"
    return f"{count(done.messages, 'message')} erased; none of {count(done.scanned, 'file')} has contents of such messages"
