"""`relay replay`: enqueues the archived messages that a filter selects again, page by page, at a limited rate."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relay.cli.common.archive_filters import Filter, Sending
from relay.cli.common.arguments import Json
from relay.cli.common.output import count, show_json
from relay.cli.common.support import INTERRUPTED, REFUSED, complain, console
from relay.message import LONGEST_JOB, SHOWN

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

PAGE = 500
"""Messages of one transaction; fewer at a low rate."""
PAGES_A_SECOND = 4
"""A rate is spread over this many transactions a second, so that messages do not come in bursts."""
PROGRESS_SECONDS = 5.0
"""Seconds between two lines of progress if there is no terminal."""
_BEGIN: dict[str, Any] = {"archived_xid": "0", "xid": "0", "seq": 0}
"""Where the first page begins."""
Page = Sequence[dict[str, Any]]


@dataclass
class Done:
    """The result of a replay; its fields are those of the JSON."""

    messages: int = 0
    refused: int = 0
    refusals: list[dict[str, str]] = field(default_factory=list)
    dry_run: bool = False
    interrupted: bool = False

    @property
    def words(self) -> str:
        """The result as one line."""
        refused = f", {self.refused} refused" if self.refused else ""
        return f"{count(self.messages, 'message')} {'would be replayed' if self.dry_run else 'replayed'}{refused}"

    @property
    def exit_code(self) -> int:
        """1 if a message was refused, so that a script can detect it; else 0."""
        return INTERRUPTED if self.interrupted else REFUSED if self.refused else 0

    def add(self, page: Page) -> None:
        """Count a page, and list the refused messages."""
        refused = [row for row in page if row["refused"] is not None]
        shown = [{"id": str(row["id"]), "reason": row["refused"]} for row in refused[: SHOWN - len(self.refusals)]]
        self.messages += len(page) - len(refused)
        self.refused += len(refused)
        self.refusals += shown
        if shown:
            _progress(None)
        for each in shown:
            complain(f"Message {each['id']} was refused: {each['reason']}")


def replay(
    *,
    wanted: Filter,
    again: Annotated[bool, typer.Option("--again", help="Also replay messages that were replayed before, and replays themselves.")] = False,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="Keep a ledger of this name: the job enqueues each message once.")] = None,
    sending: Sending,
    as_json: Json = False,
) -> None:
    """Enqueue archived messages again, selected by time, exchange, routing key, result and code; successes too.

    Each page is a transaction of its own. An interrupted replay continues when it is run again: messages that were already replayed are
    left out. Replays that were sent are left out too, unless --result or --code matches them but not their originals. A dead replay is
    treated like any other message. With --again, only a --job can be continued: messages in its ledger are always left out. A replay from
    the lake with the same job name shares the ledger. If the queue refuses a message, the command names it, enqueues the others, and exits
    with code 1; the next run tries it again.
    """
    if not (wanted.since or wanted.exchange is not None or wanted.routing_key is not None or wanted.result or wanted.code):
        raise typer.BadParameter("Say what to replay: at least one of --from, --exchange, --routing-key, --result, --code.")
    if job is not None and not 1 <= len(job.encode()) <= LONGEST_JOB:
        raise typer.BadParameter(f"--job must have 1 to {LONGEST_JOB} bytes.")
    with console() as opened:
        # The upper time limit is fixed now. Otherwise the replay would later find its own messages in the archive.
        since, until = wanted.between(opened.now, closed=True)
        asked = {
            "archived_from": since, "archived_to": until, "exchange": wanted.exchange, "routing_key": wanted.routing_key,
            "result": wanted.result_name, "error_code": wanted.code, "again": again, "dry_run": sending.dry_run,
            "same_id": sending.same_id, "job": job,
        }  # fmt: skip
        _replay(opened, asked, sending, as_json=as_json)


def _replay(opened: OperatorSession, asked: dict[str, Any], sending: Sending, *, as_json: bool) -> None:
    done, last_report = Done(dry_run=sending.dry_run), time.monotonic()
    try:
        for page in _at_rate(_pages(opened, asked, sending), None if sending.dry_run else sending.rate):
            done.add(page)
            _progress(done.messages)
            last_report = _report_progress(done.messages, last_report)
    except KeyboardInterrupt:
        done.interrupted = True
    _progress(None)
    if as_json:
        show_json(asdict(done))
    else:
        typer.echo(done.words)
    if done.interrupted:
        complain("The replay was interrupted; run it again for the rest.")
    elif not done.messages and not done.refused:
        complain(_why_none(opened, asked))
    if done.exit_code:
        raise typer.Exit(done.exit_code)


def _why_none(opened: OperatorSession, asked: dict[str, Any]) -> str:
    """Why no message was found: no message matches the filter, or all matching messages were replayed before."""
    if not opened.rows("replay_page", **{**asked, "again": True, "job": None, "dry_run": True}, **_BEGIN, most=1):
        return "Nothing matches: the archive has no such message; correct the filter, or ask the lake with `relay pipeline replay`"
    return f"All that matches was replayed before, or is a replay{'' if asked['job'] else '; --again takes it once more'}."


def _pages(opened: OperatorSession, asked: dict[str, Any], sending: Sending) -> Iterator[Page]:
    """Replay page after page. Refused messages do not count towards the limit; otherwise they would use it up in each run."""
    size = PAGE if sending.rate is None else max(1, int(min(PAGE, sending.rate / PAGES_A_SECOND)))
    rest = sending.limit
    place = _BEGIN
    while rest is None or rest > 0:
        most = size if rest is None else min(size, rest)
        page = opened.rows("replay_page", **asked, **place, most=most)
        if page:
            place = {name: page[-1][name] for name in place}
            yield page
        if len(page) < most:
            return
        rest = None if rest is None else rest - _enqueued(page)


def _enqueued(page: Page) -> int:
    return sum(row["refused"] is None for row in page)


def _at_rate(pages: Iterator[Page], rate: float | None) -> Iterator[Page]:
    """Keep the average rate: wait after each page until the rate allows the messages that were enqueued so far."""
    began, done = time.monotonic(), 0
    for page in pages:
        yield page
        done += _enqueued(page)
        if rate:
            time.sleep(max(0.0, began + done / rate - time.monotonic()))


def _progress(done: int | None) -> None:
    """On a terminal, show a line with a rising count; None ends the line."""
    if sys.stderr.isatty():
        typer.echo("\r\033[K" if done is None else f"\r{count(done, 'message')}", err=True, nl=False)


def _report_progress(done: int, last_report: float) -> float:
    """Print a line every few seconds if there is no terminal; the argument and the result are times of the last report."""
    if sys.stderr.isatty() or time.monotonic() - last_report < PROGRESS_SECONDS:
        return last_report
    complain(f"{count(done, 'message')} so far.")
    return time.monotonic()
