"""The command `relay demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    *,
    messages: Annotated[int, typer.Option(help="About how many valid messages to send, at least 600.")] = 2400,
    ledger: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the ledger in this folder: the records of shop, consumer and archive.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Play nothing; only check the ledger that --ledger has kept in this folder.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the servers running after the summary, until Ctrl-C.")] = False,
) -> None:
    """Play the whole product on private servers: a shop, two relays (one is killed) and a consumer; exit 1 if the sums are wrong."""
    from relay import demo as play  # noqa: PLC0415 - heavy for --help

    raise typer.Exit(play.check(check) if check else play.main(messages=messages, folder=ledger, keep=keep))
