"""`relay work`: messages of an inbox, handed to a function of the application's."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from relay.cli.common.support import REFUSED, complain, settings


def work(
    handler: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="The handler; the current folder is searched too.")],
    *,
    transaction: Annotated[
        bool,
        typer.Option("--transaction", help="Hand over a connection too; what the handler writes on it commits with the message's settle."),
    ] = False,
    ids: Annotated[
        list[UUID] | None,
        typer.Option(
            "--id", metavar="ID", help="Handle this message and exit; may be given several times. Exit code 1 if one was not handled."
        ),
    ] = None,
) -> None:
    """Hand the messages of an inbox to a handler, until SIGTERM or SIGINT; a second signal waits for no handler."""
    from relay.worker.app import run, run_named  # noqa: PLC0415 - see relay.cli.main
    from relay.worker.handler import find  # noqa: PLC0415 - see relay.cli.main

    if ids:
        unhandled = run_named(settings(), find(handler, transaction=transaction), [str(each) for each in ids], transaction=transaction)
        for sentence in unhandled:
            complain(sentence)
        raise typer.Exit(REFUSED if unhandled else 0)
    raise typer.Exit(run(settings(), find(handler, transaction=transaction), transaction=transaction))
