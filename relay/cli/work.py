"""`relay work`: messages of an inbox, handed to a function of the application's."""

from __future__ import annotations

from typing import Annotated

import typer

from relay.cli.support import settings


def work(
    handler: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="What handles a message; looked for in this folder too.")],
    *,
    transaction: Annotated[
        bool,
        typer.Option("--transaction", help="Hand over a connection too, and commit what the handler writes with the message's settle."),
    ] = False,
) -> None:
    """Hand the messages of an inbox to a handler, until SIGTERM or SIGINT; a second signal waits for no handler."""
    from relay.worker.handler import find  # noqa: PLC0415 - see relay.cli.main
    from relay.worker.process import run  # noqa: PLC0415 - see relay.cli.main

    raise typer.Exit(run(settings(), find(handler, transaction=transaction), transaction=transaction))
