"""`relay list`: messages that wait in the queue, in claim order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from relay.cli.common.arguments import Json, place
from relay.cli.common.output import count, named, show_json, show_table
from relay.cli.common.support import complain, console
from relay.cli.queue_check.listing import Listing, Wanted, listed
from relay.cli.queue_check.scan import FIRST
from relay.message import Position

COLUMNS = ["id", "exchange", "routing_key", "ordering_key", "state", "attempts", "last_error", "waits_for"]


@dataclass(frozen=True, kw_only=True)
class ListPage:
    """Which part of the queue; each field is an option."""

    after: Annotated[Position | None, typer.Option(parser=place, metavar="XID/SEQ", help="Continue after this place.")] = None
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most this many messages.")] = 100
    scan: Annotated[int, typer.Option(min=1, help="Scan at most this many messages of the queue; 100,000 take a few seconds.")] = 100_000


def list_waiting(*, wanted: Wanted, page: ListPage, as_json: Json = False) -> None:
    """List messages of the queue in claim order, with their state and what each waits for. Archived messages are not listed."""
    with console() as opened:
        found = listed(opened, wanted, page.after or FIRST, limit=page.limit, scan=page.scan)
    if as_json:
        show_json(found._asdict())
        return
    _show(found)


def _show(found: Listing) -> None:
    rows = [{**row, **{name: None if row[name] is None else named(row[name]) for name in COLUMNS[1:4]}} for row in found.messages]
    show_table(rows, COLUMNS, nothing="no such message waits" if found.next is None else "no such message among those that were scanned")
    if found.next is not None:
        complain(f"{count(len(rows), 'message')} listed; there may be more: continue with --after {found.next}")
