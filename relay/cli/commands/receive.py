"""`relay receive`: moves messages from RabbitMQ's queues into an inbox."""

from __future__ import annotations

import typer

from relay.cli.common.support import settings


def receive() -> None:
    """Move messages from the queues of RELAY_RECEIVE_QUEUES into the inbox of RELAY_SCHEMA, until SIGTERM or SIGINT."""
    from relay.app.inbox import run  # noqa: PLC0415 - see the module

    raise typer.Exit(run(settings()))
