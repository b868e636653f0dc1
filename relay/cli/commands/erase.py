"""`relay erase`: erases the contents of archived messages in PostgreSQL, and keeps what happened to the messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
"""How many messages with one id are read, to find out whether several messages have the id."""


@dataclass(frozen=True)
class ArchiveErasure:
    """The result; its fields are those of the JSON.

    `waiting` counts messages that are to be erased but not archived yet; the other fields are as in `_Erasure`.
    """

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

    Ids, exchanges, routing keys, times, results and codes stay. An erased message cannot be replayed; an erased dead message counts as
    acknowledged. An id means the message that has this id when the command begins. The lake has copies: run `relay pipeline erase` with the
    same ids and keys afterwards. Run the command again later for messages that were not archived yet.
    """
    asked, keys = messages or [], list(dict.fromkeys(ordering_keys or ()))
    if not asked and not keys:
        raise typer.BadParameter("Say what to erase: ids of messages, --ordering-key, or both.")
    with console() as opened:
        done = _Erasure(opened, dry_run=dry_run)
        with done.accounted():
            done.carry_out(asked, keys)
            waiting = len(done.waiting) + (opened.row("count_waiting_under", ordering_keys=keys)["messages"] if keys else 0)
    if done.unknown == len(set(asked)) and not keys:
        not_found(f"No message has the id {asked[0]}, neither in the queue nor in the archive.")
    _show(ArchiveErasure(done.erased, waiting, done.unknown, len(done.unsure), dry_run), as_json=as_json)


@dataclass
class _Erasure:
    """Finds and erases messages by their places.

    It erases the named messages, the bundles in which they were sent, their replays, and replays of replays.

    `archived` has the archived messages, place → id; `waiting` messages are not archived yet; `unknown` counts ids that had no message at
    the beginning. `unsure` replays belong to one of several messages with the same id, and it is not recorded to which.
    """

    opened: OperatorSession
    dry_run: bool
    erased: int = 0
    archived: dict[str, UUID] = field(default_factory=dict)
    waiting: set[Archived] = field(default_factory=set)
    unknown: int = 0
    unsure: set[Archived] = field(default_factory=set)
    _sole: dict[UUID, bool] = field(default_factory=dict)
    """Whether only one message had the id when this was first checked; False for an id that was named only with a place."""

    def carry_out(self, asked: Sequence[Archived], keys: list[str]) -> None:
        """Erase until no more messages are found: a replay that was made meanwhile has the same contents under a new id."""
        ids_first = sorted(dict.fromkeys(asked), key=lambda message: message.xid is not None)
        named = [place for message in ids_first for place in self._named(message)]
        while self._look(named) or keys:
            self._erase(keys)
            keys = []
            if self.dry_run:
                break

    @contextlib.contextmanager
    def accounted(self) -> Iterator[None]:
        """Report how many messages are erased if an error or a signal ends the command early."""
        try:
            yield
        except BaseException:
            if self.erased and not self.dry_run:
                complain(f"{count(self.erased, 'message')} erased before this error: run this again for the others.")
            raise

    def _named(self, message: Archived) -> Iterator[Archived]:
        """The places that are named.

        An id means its only message, and the replays of this message that have kept the id.

        A message that later gets the same id is another message. An id that several messages have is refused; producers choose ids, so this
        may happen.
        """
        story = self._story(message)
        self.unknown += not story
        if message.xid is None:
            if not self._is_sole(message.id):
                refuse(
                    f"Several messages have the id {message.id}, and nothing was erased: `relay show {message.id}` shows their places, "
                    "ID@XID/SEQ names one."
                )
        else:
            self._sole.setdefault(message.id, False)
        yield from (_at(message.id, part) for part in story)

    def _look(self, named: Iterable[Archived]) -> bool:
        """Follow the named messages to their bundles and replays; return whether more archived messages were found."""
        before, waited, todo, seen = len(self.archived), self.waiting, list(named), set[Archived]()
        self.waiting, self.unsure = set(), set()
        while todo:
            message = todo.pop()
            if message in seen:
                continue
            seen.add(message)
            story = self._story(message)
            if any(part["archived_at"] for part in story):
                self.archived[f"{message.xid}/{message.seq}"] = message.id
            elif story or message in waited:
                self.waiting.add(message)
            todo += self._bundles(message)
            todo += self._replays(message)
        self.unsure -= seen
        return len(self.archived) > before

    def _story(self, message: Archived) -> list[dict[str, Any]]:
        return self.opened.rows("show_message", **message._asdict(), most=MOST)

    def _is_sole(self, id_: UUID) -> bool:
        if id_ not in self._sole:
            story = self._story(Archived(id_))
            self._sole[id_] = len(story) < MOST and sum(part["replay_of"] != id_ for part in story) <= 1
        return self._sole[id_]

    def _replays(self, message: Archived) -> Iterator[Archived]:
        """The replays of a message; if several messages have its id, only the replays that the audit links to this message."""
        for row in self.opened.rows("list_replays_at", **message._asdict()):
            replay = _at(row["id"], row)
            if row["noted"] or self._is_sole(message.id):
                yield replay
            elif replay != message:
                self.unsure.add(replay)

    def _bundles(self, part: Archived) -> Iterator[Archived]:
        """The bundles that also contain the message's content."""
        for row in self.opened.rows("list_bundles", **part._asdict(), sent_within=f"^{BUNDLED_IN}$"):
            yield _at(row["id"], row)

    def _erase(self, keys: list[str]) -> None:
        """Erase table by table, each in a transaction of its own."""
        chosen = {"ids": list(self.archived.values()), "places": list(self.archived), "ordering_keys": keys}
        for row in self.opened.rows("list_archive_parts"):
            self.erased += self.opened.row("erase_part", part=row["part"], **chosen, dry_run=self.dry_run)["messages"]


def _at(id_: UUID, row: Mapping[str, Any]) -> Archived:
    xid, seq = row["place"].split("/")
    return Archived(id_, xid, int(seq))


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
