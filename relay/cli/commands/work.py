"""`relay work`: hands messages of an inbox to a function of the application."""

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
        typer.Option(
            "--transaction",
            help="Pass a connection to the handler too; the handler's writes on it commit together with the message's settle.",
        ),
    ] = False,
    ids: Annotated[
        list[UUID] | None,
        typer.Option(
            "--id", metavar="ID", help="Handle this message and exit; may be given several times. Exit code 1 if a message was not handled."
        ),
    ] = None,
) -> None:
    """Hand the messages of an inbox to a handler, until SIGTERM or SIGINT; after a second signal, handlers are not waited for."""
    from relay.worker.app import run, run_named  # noqa: PLC0415 - see relay.cli.main
    from relay.worker.handler import find  # noqa: PLC0415 - see relay.cli.main

    if ids:
        unhandled = run_named(settings(), find(handler, transaction=transaction), [str(each) for each in ids], transaction=transaction)
        for sentence in unhandled:
            complain(sentence)
        raise typer.Exit(REFUSED if unhandled else 0)
    raise typer.Exit(run(settings(), find(handler, transaction=transaction), transaction=transaction))
