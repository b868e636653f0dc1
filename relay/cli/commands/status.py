"""`relay status`: the queue, the throughput, the relays, and problems that need an operator."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from relay.cli.common.arguments import Json
from relay.cli.common.output import show_json, show_json_line, terminal
from relay.cli.common.support import console
from relay.cli.queue_status.figures import read_status
from relay.cli.queue_status.picture import picture

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession


def status(
    *,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show updates until Ctrl-C; with --json each update is one line.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Also show relays whose last heartbeat is older than the lock time plus 5 minutes.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two updates of --watch.")] = 2.0,
) -> None:
    """Show the queue, the throughput, the relays, and problems that need an operator."""
    with console() as opened:
        if watch:
            _watch(opened, interval, every=every, as_json=as_json)
        elif as_json:
            show_json(read_status(opened, every=every))
        else:
            terminal().print(picture(read_status(opened, every=every)))


def _watch(opened: OperatorSession, interval: float, *, every: bool, as_json: bool) -> None:
    from rich.live import Live  # noqa: PLC0415 - see relay.cli.common.output

    if as_json:
        while True:
            show_json_line(read_status(opened, every=every))
            time.sleep(interval)
    with Live(picture(read_status(opened, every=every)), console=terminal(), auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(interval)
            live.update(picture(read_status(opened, every=every)), refresh=True)
