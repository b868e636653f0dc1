"""`relay erase`: the contents of archived messages leave PostgreSQL; what happened to the messages stays known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from relay.cli.common.arguments import Archived, ErasedKeys, ErasedMessages, Json
from relay.cli.common.output import count, show_json
from relay.cli.common.support import complain, console, not_found, refuse
from relay.message import BUNDLED_IN

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

MOST = 1000
"""How many rows with one id, and how many replays of a message, are looked at."""


@dataclass
class Meant:
    """Messages to erase: ids of archived ones by their places; how many are not archived yet; what is not known.

    `unknown` ids have no message here. `unsure` replays are of one of several messages with an id, and nothing says of which.
    """

    archived: dict[str, UUID] = field(default_factory=dict)
    waiting: int = 0
    unknown: int = 0
    unsure: int = 0

    def add(self, story: Iterable[dict[str, Any]], id_: UUID) -> None:
        """Take in all that `relay show` tells of an id or a place."""
        for part in story:
            if part["archived_at"]:
                self.archived[part["place"]] = id_
            else:
                self.waiting += 1


@dataclass(frozen=True)
class ArchiveErasure:
    """The result; its fields are those of the JSON. `waiting` messages are meant and not archived yet; the others are as in `Meant`."""

    messages: int
    waiting: int
    unknown: int
    unsure: int
    dry_run: bool


def erase(
    messages: ErasedMessages = None,
    *,
    ordering_keys: ErasedKeys = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the messages.")] = False,
    as_json: Json = False,
) -> None:
    """Erase contents, headers, ordering keys and error texts of archived messages, of their replays and of their bundles.

    Ids, exchanges, routing keys, times, results and codes stay. An erased message cannot be replayed; a dead one counts as acknowledged.
    The lake has copies: run `relay pipeline erase` with the same ids and keys afterwards. Run this again for messages that were not
    archived yet.
    """
    asked, keys = messages or [], list(dict.fromkeys(ordering_keys or ()))
    if not asked and not keys:
        raise typer.BadParameter("Say what to erase: ids of messages, --ordering-key, or both.")
    with console() as opened:
        erased, meant = _erase_all(opened, asked, keys, dry_run=dry_run)
        if keys:
            meant.waiting += opened.row("count_waiting_under", ordering_keys=keys)["messages"]
    if meant.unknown == len(asked) and not keys and not meant.archived and not meant.waiting:
        not_found(f"No message has the id {asked[0]}, neither in the queue nor in the archive.")
    _show(ArchiveErasure(erased, meant.waiting, meant.unknown, meant.unsure, dry_run), as_json=as_json)


def _erase_all(opened: OperatorSession, asked: Sequence[Archived], keys: list[str], *, dry_run: bool) -> tuple[int, Meant]:
    """Erase until no more messages are found: a replay that was made meanwhile has the contents under a new id."""
    meant = _meant(opened, asked)
    erased = _erase(opened, meant, keys, dry_run=dry_run)
    while not dry_run:
        before, meant = meant, _meant(opened, asked)
        if meant.archived.keys() <= before.archived.keys():
            break
        erased += _erase(opened, meant, [], dry_run=False)
    return erased, meant


def _meant(opened: OperatorSession, asked: Sequence[Archived]) -> Meant:
    """The messages that are asked for, the bundles that these were sent in, all their replays, and the replays of replays."""
    meant, todo, seen, named = Meant(), list(asked), set[str](), set(map(str, asked))
    while todo:
        message = todo.pop()
        if str(message) in seen:
            continue
        seen.add(str(message))
        story = _rows(opened, "show_message", message)
        if str(message) in named:
            _refuse_shared(message, story)
            meant.unknown += not story
        meant.add(story, message.id)
        todo += _bundles(story)
        todo += _replays(opened, message, meant, strict=message.xid is not None and str(message) in named)
    return meant


def _rows(opened: OperatorSession, name: str, message: Archived) -> list[dict[str, Any]]:
    found = opened.rows(name, **message._asdict(), most=MOST)
    if len(found) == MOST:
        refuse(f"The id {message.id} has {MOST:,} messages or replays, and nothing was erased: erase by their ordering key.")
    return found


def _refuse_shared(message: Archived, story: Iterable[dict[str, Any]]) -> None:
    """Refuse an id that several messages have: producers choose ids, and may choose another's."""
    if sum(part["replay_of"] != message.id for part in story) > 1:
        refuse(
            f"Several messages have the id {message.id}, and nothing was erased: `relay show {message.id}` shows their places, "
            "ID@XID/SEQ names one."
        )


def _replays(opened: OperatorSession, message: Archived, meant: Meant, *, strict: bool) -> Iterator[Archived]:
    """The replays of a message by their places; if the id is one of several messages', only those that audit or ledger call its own."""
    for replay in _rows(opened, "list_replays", message if strict else Archived(message.id)):
        if strict and replay["of_place"] != f"{message.xid}/{message.seq}":
            meant.unsure += 1
        else:
            yield Archived.of(f"{replay['id']}@{replay['place']}")


def _bundles(story: Iterable[dict[str, Any]]) -> Iterator[Archived]:
    """The bundles that hold the content too."""
    for part in story:
        if (part["state"], part["error_code"]) == ("discarded", "bundled") and (
            bundle := re.fullmatch(BUNDLED_IN, part["error_detail"] or "")
        ):
            yield Archived(UUID(bundle[1]))


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
    if done.unknown:
        complain(f"{count(done.unknown, 'id')} without a message here; the lake may have it.")
    if done.unsure:
        complain(
            f"{count(done.unsure, 'replay')} kept, of one of several messages with the id: erase those that are meant by their own ids."
        )
