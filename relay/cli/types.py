"""Arguments that several commands take."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

Exchange = Annotated[str, typer.Argument(help="Name of the exchange; '' is the default exchange.")]
OrderingKey = Annotated[str, typer.Argument(metavar="KEY", help="The ordering key.")]
MessageId = Annotated[UUID, typer.Argument(metavar="ID", help="Id of the message.")]
MessageIds = Annotated[list[UUID], typer.Argument(metavar="ID...", help="Ids of messages.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
Reason = Annotated[str, typer.Option(help="Why; kept with your login and shown to everybody who asks.")]
SameId = Annotated[bool, typer.Option("--same-id", help="Keep the id, for consumers that drop what they had.")]
