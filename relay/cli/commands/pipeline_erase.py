"""`relay pipeline erase`: erases the contents of chosen messages in the lake."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relay.cli.common.arguments import ErasedKeys, ErasedMessages, Json
from relay.cli.common.output import count
from relay.cli.common.pipeline_context import Master, finish, say, spark, workplace


def erase(
    messages: ErasedMessages = None,
    *,
    ordering_keys: ErasedKeys = None,
    at_once: Annotated[
        bool,
        typer.Option(
            "--at-once",
            help="Also delete the old files that were removed from the table; readers of older versions of the table then fail.",
        ),
    ] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Erase the contents of messages in the lake, and prove the erasure by a scan. Run `relay erase` for PostgreSQL first.

    Replays of a message, and the bundle that contains it, are erased too. With ID@XID/SEQ no replays are erased. Exit 5 if files of the
    table still have contents; old files outside the table are only reported.
    """
    if not (messages or ordering_keys):
        raise typer.BadParameter("Nothing says which messages to erase: give ids or --ordering-key.")
    with workplace() as place, spark("erase", master) as session:
        from relay.pipeline.erase import job  # noqa: PLC0415 - see relay.cli.main

        chosen: dict[str, Any] = {"ids": list(map(str, messages or ())), "keys": ordering_keys or ()}
        done = job.run(lake=place.lake, database=place.database, say=say, **chosen, spark=session, at_once=at_once)
        finish(done, as_json=as_json, words=_erased)


def _erased(done: Any) -> str:
    if done.failure or done.left:
        return f"{count(done.messages, 'message')} erased"
    return f"{count(done.messages, 'message')} erased; none of {count(done.scanned, 'file')} has contents of such messages"
