"""`relay check`: finds messages that no relay will claim, and roles that also reach another outbox."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relay.cli.common.arguments import Json
from relay.cli.common.output import count, length, quoted, show_json, show_table
from relay.cli.common.support import REFUSED, USAGE, complain, console, visible
from relay.cli.common.workers import Relays, Workers, read_workers
from relay.cli.queue_check.recheck import MAX_IN_ALL, MAX_OF_GROUP
from relay.cli.queue_check.rows import why_left
from relay.cli.queue_check.scan import ScanResult, look_again, walk

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

A_FEW = 10.0
"""Seconds within which a relay claims at least the first of the messages that it has found."""
PATIENCE, PER_MESSAGE = 60.0, 1200.0 / 10_000_000
"""The longest wait for the relays' scans in seconds: a fixed part and a part for each message.

Both are twice the time that a busy server takes (docs/finding.md).
"""
COLUMNS = ("id", "position", "exchange", "ordering_key", "reason")


def check(
    *,
    queue: Annotated[bool, typer.Option("--queue", help="Check every message of the queue.")] = False,
    borders: Annotated[
        bool,
        typer.Option(
            "--borders",
            help="Look for logins and roles that also reach another outbox, and for roles of this outbox that a member has changed. Exit 1 "
            "if any is found. Logins that administer the outbox or the server are listed, but do not change the exit code.",
        ),
    ] = False,
    as_json: Json = False,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86_400,
            metavar="SECONDS",
            help="Seconds between the two scans of claimable messages; 0 for a single scan. If left out, the second scan begins 10 seconds "
            "after the moment at which all relays have scanned the whole queue. So no message is named only "
            "because a relay has not come to it yet.",
        ),
    ] = None,
) -> None:
    """List messages that no relay will find (--queue), or roles that reach another outbox (--borders); exit 1 if there are any."""
    if queue == borders:
        complain("Say what to check: `relay check --queue` or `relay check --borders`")
        raise typer.Exit(USAGE)
    with console() as opened:
        if borders:
            _check_borders(opened, as_json=as_json)
            return
        found, waited = check_queue(opened, wait)
        workers = read_workers(opened)
        _show(opened.schema, found, waited, workers, as_json=as_json)
    if found.lost_in_all:
        raise typer.Exit(REFUSED)


def _check_borders(opened: OperatorSession, *, as_json: bool) -> None:
    """List the roles that also reach another outbox, and the administrators of this outbox."""
    found = [row["sentence"] for row in opened.rows("list_crossings")]
    above = list(opened.rows("list_administrators"))
    if as_json:
        show_json({"schema": opened.schema, "crossings": found, "administrators": above})
    else:
        typer.echo("\n".join(map(visible, found)) or f"no login and no role of the outbox in schema {opened.schema} reaches another one")
        for row in above:
            typer.echo(visible(f"administrator: {quoted(row['login'])} ({row['how']})"))
    if found:
        raise typer.Exit(REFUSED)


def check_queue(opened: OperatorSession, wait: float | None) -> tuple[ScanResult, float]:
    """Scan the queue, and check the claimable messages again after a while; return the findings and the seconds between the two scans.

    Messages are checked a second time only if at least one relay is alive and reaches its broker all the time.
    """
    before = read_workers(opened).able
    with _progress() as say:
        found = walk(opened, lambda walked: say(f"{walked} messages walked"))
        if not (found.watch and before and wait != 0):
            return found, 0.0
        since = opened.now()
        seconds = _await_scans(opened, before, found.walked, say) if wait is None else 0.0
        if seconds is None:
            return found, 0.0
        rest = A_FEW if wait is None else wait
        say(f"{count(found.walked, 'message')} walked; what can be claimed is looked at again in {length(rest)}")
        time.sleep(rest)
        workers = read_workers(opened)
        if not before.keys() & workers.able.keys():
            return found, 0.0
        _recheck(opened, found, workers, before, since.astimezone(UTC))
    return found, seconds + rest


def _await_scans(opened: OperatorSession, before: Relays, messages: int, say: Callable[[str], None]) -> float | None:
    """Wait until each of these relays has scanned the whole queue; return the seconds.

    Returns None if one of them was too slow, or does not report its scans.
    """
    slept = 0.0
    while slept < PATIENCE + PER_MESSAGE * messages:
        able = read_workers(opened).able
        if before.keys() <= able.keys() and all(_scanned_ago(able[id_]) < slept for id_ in before):
            return slept
        say(f"{count(messages, 'message')} walked; the relays walk the queue too, {length(slept)} so far")
        time.sleep(1.0)
        slept += 1.0
    return None


def _scanned_ago(row: Mapping[str, Any]) -> float:
    """Seconds since this relay has scanned every message."""
    ago = row["state"].get("walked_ago")
    return inf if ago is None else row["silent_seconds"] + ago


def _recheck(opened: OperatorSession, found: ScanResult, workers: Workers, before: Relays, since: datetime) -> None:
    """List the watched messages that the relays of `before` did not touch although they were alive all the time."""
    there = [row for id_, row in workers.able.items() if id_ in before]
    silent = {exchange for row in there for exchange in row["state"].get("silent") or ()}
    now = look_again(opened, found.watch)
    for row in found.watch.passed_over(now, silent, lambda ids: {one["id"] for one in opened.rows("find_claimed", ids=list(ids))}):
        # A message that a living relay has claimed may be with the broker already; the relay keeps trying to settle it.
        settles = row.lock_ends_at is not None and row.session is not None and row.locked_by in workers.alive
        (found.settles if settles else found.lose)(row, why_left(row, since))


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows the command's progress to an operator; shows nothing if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda _words: None
        return
    from rich.console import Console as Terminal  # noqa: PLC0415 - see relay.cli.common.output

    with Terminal(stderr=True, markup=False, emoji=False, highlight=False).status("looking at the queue") as status:
        yield status.update


def _show(schema: str, found: ScanResult, waited: float, workers: Workers, *, as_json: bool) -> None:
    states = {state: found.states[state] for state in ("claimable", "locked", "waiting", "blocked", "paused")}
    if as_json:
        held = {"held": found.held, "held_keys": len(found.held_keys), "limited": found.limited}
        lost = {"lost": found.lost_in_all, "lost_messages": found.lost}
        settling = {"settling": len(found.settling), "settling_messages": found.settling}
        watched = {"watched_seconds": waited, "unwatched": found.watch.left_out(watched=waited > 0), "relays_alive": len(workers.alive)}
        show_json({"schema": schema, "walked": found.walked, **states, **held, **watched, **settling, **lost})
        return
    if workers.stopped:
        typer.echo(workers.stopped)
    show_table(found.lost, COLUMNS, nothing="no message is lost")
    for line in _lines(schema, found, waited):
        typer.echo(line)


def _lines(schema: str, found: ScanResult, waited: float) -> Iterator[str]:
    """The human-readable summary."""
    states, unwatched = found.states, found.watch.left_out(watched=waited > 0)
    at_least = "at least " if unwatched else ""
    if more := found.lost_in_all - len(found.lost):
        yield f"{at_least}{count(more, 'more lost message is', 'more lost messages are')} not listed"
    for reason, settling in Counter(row["reason"] for row in found.settling).items():
        yield f"{at_least}{count(settling, 'message waits', 'messages wait')} for the settle: {reason}"
    yield (
        f"{count(found.walked, 'message')} in schema {schema}: {states['claimable']} claimable, {states['locked']} locked, "
        f"{states['waiting']} waiting, {states['blocked']} blocked behind a key, {states['paused']} of paused exchanges, "
        f"{at_least if found.lost_in_all else ''}{found.lost_in_all} lost"
    )
    if found.held_keys:
        yield f"{count(len(found.held_keys), 'key')} held by an operator, with {count(found.held, 'message')}: `relay key list`"
    if found.limited:
        yield f"{count(found.limited, 'claimable message')} of limited exchanges: not watched"
    if found.watch and not waited:
        yield "what can be claimed was not watched: that takes relays that reach their broker and walk the queue, and no --wait 0"
    elif unwatched:
        bounds = f"the first {MAX_OF_GROUP} of each exchange and kind are, and {MAX_IN_ALL} in all"
        yield f"{count(unwatched, 'message was', 'messages were')} not watched: {bounds}"
