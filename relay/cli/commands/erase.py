"""`relay erase`: the contents of archived messages leave PostgreSQL; what happened to the messages stays known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from relay.cli.common.arguments import Archived, ErasedMessages, Json
from relay.cli.common.output import count, show_json
from relay.cli.common.support import complain, console, not_found, refuse

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

STORIES = 1000
"""How many messages with one id, and how many replays of a message, are looked at."""


@dataclass
class Meant:
    """Messages to erase: ids of archived ones by their places, and how many are not archived yet."""

    archived: dict[str, UUID] = field(default_factory=dict)
    waiting: int = 0

    def add(self, story: Iterable[dict[str, Any]], id_: UUID) -> None:
        """Take in all that `relay show` tells of an id or a place."""
        for part in story:
            if part["archived_at"]:
                self.archived[part["place"]] = id_
            else:
                self.waiting += 1


@dataclass(frozen=True)
class ArchiveErasure:
    """The result; its fields are those of the JSON. `waiting` counts messages that are meant and not archived yet."""

    messages: int
    waiting: int
    dry_run: bool


def erase(
    messages: ErasedMessages = None,
    *,
    ordering_keys: Annotated[
        list[str] | None,
        typer.Option("--ordering-key", metavar="KEY", help="All messages with this ordering key; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the messages.")] = False,
    as_json: Json = False,
) -> None:
    """Erase contents, headers, ordering keys and error texts of archived messages, of their replays and of their bundles.

    Ids, exchanges, routing keys, times, results and codes stay. No erased message can be replayed; a dead one counts as acknowledged.
    The lake has copies: run `relay pipeline erase` with the same ids and keys afterwards. Run this again for messages that were not
    archived yet.
    """
    keys = list(dict.fromkeys(ordering_keys or ()))
    if not messages and not keys:
        raise typer.BadParameter("Say what to erase: ids of messages, --ordering-key, or both.")
    with console() as opened:
        meant = _meant(opened, messages or ())
        if keys:
            meant.waiting += opened.row("count_waiting_under", ordering_keys=keys)["messages"]
        _show(ArchiveErasure(_erase(opened, meant, keys, dry_run=dry_run), meant.waiting, dry_run), as_json=as_json)


def _meant(opened: OperatorSession, asked: Iterable[Archived]) -> Meant:
    """The messages that are asked for, the bundles that these were sent in, all their replays, and the replays of replays."""
    meant, todo, seen = Meant(), list(asked), set[str]()
    while todo:
        message = todo.pop()
        if str(message) not in seen:
            seen.add(str(message))
            meant.add(story := _story(opened, message), message.id)
            replays = opened.rows("list_replays", **message._asdict(), most=STORIES)
            todo += [Archived(id_) for id_ in (*(replay["id"] for replay in replays), *_bundles(story)) if id_ != message.id]
    return meant


def _story(opened: OperatorSession, message: Archived) -> list[dict[str, Any]]:
    """All that has the id, or is at the place. An id must be that of one message: producers choose ids, and may choose another's."""
    story = opened.rows("show_message", **message._asdict(), most=STORIES)
    if not story:
        not_found(f"No message has the id {message}, neither in the queue nor in the archive.")
    if sum(part["replay_of"] != message.id for part in story) > 1:
        refuse(
            f"Several messages have the id {message.id}, and nothing was erased: `relay show {message.id}` shows their places, "
            "ID@XID/SEQ names one."
        )
    return story


def _bundles(story: Iterable[dict[str, Any]]) -> Iterator[UUID]:
    """The bundles that hold the content too."""
    for part in story:
        if part["error_code"] == "bundled":
            yield UUID(part["error_detail"].removeprefix("sent within "))


def _erase(opened: OperatorSession, meant: Meant, keys: list[str], *, dry_run: bool) -> int:
    """Erase table by table, each in a transaction of its own; return how many messages."""
    if not meant.archived and not keys:
        return 0
    chosen = {"ids": list(meant.archived.values()), "places": list(meant.archived), "ordering_keys": keys}
    parts = [row["part"] for row in opened.rows("list_archive_parts")]
    return sum(opened.row("erase_part", part=part, **chosen, dry_run=dry_run)["messages"] for part in parts)


def _show(done: ArchiveErasure, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(done))
    else:
        typer.echo(f"{count(done.messages, 'message')} {'would be erased' if done.dry_run else 'erased'}")
    if done.waiting:
        complain(f"{count(done.waiting, 'message')} not archived yet and kept: run this again later.")
