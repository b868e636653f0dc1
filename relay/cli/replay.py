"""`relay replay`: enqueue what a filter selects of the archive again, page by page, at a rate."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relay.cli.output import count, show_json
from relay.cli.support import INTERRUPTED, complain, console, moment
from relay.cli.types import Json, SameId
from relay.message import Result

if TYPE_CHECKING:
    from relay.console import Console

PAGE = 500
"""Messages of one transaction; fewer at a low rate."""
PAGES_A_SECOND = 4
"""Into how many transactions a second's messages are split, so that a rate does not come in bursts."""
LONGEST_JOB = 255
Since = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Archived from this time on: 2031-01-31T12:00:00Z, or 90s, 15m, 2h, 7d ago."),
]
OnlyResult = Annotated[
    Result | None, typer.Option(metavar="RESULT", help="Only with this result: success, rejected, failed, lock_expired or discarded.")
]


def replay(  # noqa: PLR0913 - each is an option of the command
    *,
    since: Since = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Archived before this time; now if left out.")] = None,
    exchange: Annotated[str | None, typer.Option(help="Only of this exchange.")] = None,
    routing_key: Annotated[str | None, typer.Option(help="Only with this routing key; * stands for any characters.")] = None,
    result: OnlyResult = None,
    code: Annotated[str | None, typer.Option(help="Only with this error code.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.01, help="At most so many a second.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what was replayed before.")] = False,
    same_id: SameId = False,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="Keep a ledger of this name: the job enqueues each message once.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    as_json: Json = False,
) -> None:
    """Enqueue archived messages again, by time, exchange, key and result; successes too.

    Each page is a transaction of its own. A replay that was interrupted goes on when it is run again: what was replayed is left out.
    With --again that takes a --job: what is in its ledger, which a replay from the lake shares, is left out in any case.
    """
    if not (since or exchange is not None or routing_key is not None or result or code):
        raise typer.BadParameter("Say what to replay: at least one of --from, --exchange, --routing-key, --result, --code.")
    if job is not None and not 1 <= len(job.encode()) <= LONGEST_JOB:
        raise typer.BadParameter(f"--job must have 1 to {LONGEST_JOB} bytes.")
    with console() as opened:
        # The end is fixed at the start, or what is replayed now would be found again as it is archived.
        end = moment(opened.now, until, "--to") or moment(opened.now, "0s", "--to")
        wanted = {
            "archived_from": moment(opened.now, since, "--from"), "archived_to": end, "exchange": exchange, "routing_key": routing_key,
            "result": result.value if result else None, "error_code": code, "again": again, "dry_run": dry_run, "same_id": same_id,
            "job": job,
        }  # fmt: skip
        _replay(opened, wanted, limit=limit, rate=rate, as_json=as_json)


def _replay(opened: Console, wanted: dict[str, Any], *, limit: int | None, rate: float | None, as_json: bool) -> None:
    done = 0
    interrupted = False
    try:
        for page in _paced(_pages(opened, wanted, limit=limit, rate=rate), None if wanted["dry_run"] else rate):
            done += len(page)
            _progress(done)
    except KeyboardInterrupt:
        interrupted = True
    _progress(None)
    if as_json:
        show_json({"messages": done, "dry_run": wanted["dry_run"], "interrupted": interrupted})
    else:
        typer.echo(f"{count(done, 'message')} {'would be replayed' if wanted['dry_run'] else 'replayed'}")
    if interrupted:
        complain("The replay was interrupted; run it again for the rest.")
        raise typer.Exit(INTERRUPTED)


def _pages(opened: Console, wanted: dict[str, Any], *, limit: int | None, rate: float | None) -> Iterator[list[dict[str, Any]]]:
    size = PAGE if rate is None else max(1, int(min(PAGE, rate / PAGES_A_SECOND)))
    rest = limit
    place = {"archived_xid": "0", "xid": "0", "seq": 0}
    while rest is None or rest > 0:
        most = size if rest is None else min(size, rest)
        page = opened.rows("replay_page", **wanted, **place, most=most)
        if page:
            place = {name: page[-1][name] for name in place}
            yield page
        if len(page) < most:
            return
        rest = None if rest is None else rest - len(page)


def _paced(pages: Iterator[list[dict[str, Any]]], rate: float | None) -> Iterator[list[dict[str, Any]]]:
    """Hold the rate over the whole run: wait until all so far may have gone out."""
    began, done = time.monotonic(), 0
    for page in pages:
        yield page
        done += len(page)
        if rate:
            time.sleep(max(0.0, began + done / rate - time.monotonic()))


def _progress(done: int | None) -> None:
    """One line on a terminal that counts up; None ends it."""
    if sys.stderr.isatty():
        typer.echo("\r\033[K" if done is None else f"\r{count(done, 'message')}", err=True, nl=False)
