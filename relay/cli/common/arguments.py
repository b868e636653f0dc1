"""Arguments that several commands have."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple
from uuid import UUID

import typer

from relay.cli.common.help import ID
from relay.message import Position

Exchange = Annotated[str, typer.Argument(help="Name of the exchange; '' is the default exchange.")]
OrderingKey = Annotated[str, typer.Argument(metavar="KEY", help="The ordering key.")]
MessageId = Annotated[UUID, typer.Argument(metavar="ID", help="Id of the message.")]

HEX = "[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}"
"""The pattern of an id, with or without hyphens."""


class Archived(NamedTuple):
    """A message given by its id, and by its place if the id is not unique."""

    id: UUID
    xid: str | None = None
    seq: int | None = None

    @classmethod
    def of(cls, text: str) -> Archived:
        """Read ID or ID@XID/SEQ.

        Raises:
            typer.BadParameter: the text has another form.
        """
        found = re.fullmatch(rf"({HEX})(?:@(\d{{1,20}})/(\d{{1,18}}))?", text, re.ASCII | re.IGNORECASE)
        if not found:
            raise typer.BadParameter(f"ID must be {ID}, with @XID/SEQ if other messages have the same id.")
        id_, xid, seq = found.groups()
        return cls(UUID(id_), xid, int(seq) if seq else None)

    def __str__(self) -> str:
        """The text from which `of` reads this object."""
        return f"{self.id}@{self.xid}/{self.seq}" if self.xid else str(self.id)


def place(text: str) -> Position:
    """Read XID/SEQ, as the option --after has it.

    Raises:
        typer.BadParameter: the text has another form.
    """
    found = re.fullmatch(r"(\d{1,20})/(-?\d{1,18})", text, re.ASCII)
    if not found:
        raise typer.BadParameter("--after must be XID/SEQ, as this command prints it.")
    return Position(int(found[1]), int(found[2]))


MessageIds = Annotated[list[UUID], typer.Argument(metavar="ID...", help="Ids of messages.")]
_WHICH = "Ids of messages; add @XID/SEQ if several messages were archived under one id."
ArchivedMessages = Annotated[list[Archived], typer.Argument(metavar="ID...", parser=Archived.of, help=_WHICH)]
ErasedMessages = Annotated[list[Archived] | None, typer.Argument(metavar="[ID...]", parser=Archived.of, help=_WHICH)]
ErasedKeys = Annotated[
    list[str] | None,
    typer.Option("--ordering-key", metavar="KEY", help="All messages with this ordering key; may be given several times."),
]
ShownMessage = Annotated[
    Archived,
    typer.Argument(metavar="ID", parser=Archived.of, help="Id of the message; add @XID/SEQ if several messages have it."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
Reason = Annotated[str, typer.Option(help="The reason; stored with your login, and visible to others.")]
SameId = Annotated[bool, typer.Option("--same-id", help="Keep the id, for consumers that must ignore messages they have already received.")]
