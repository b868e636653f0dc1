"""`relay check`: whether everything that waits will be found, and what no relay will find."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relay.cli.check_rows import why_left
from relay.cli.check_walk import Found, look_again, walk
from relay.cli.output import count, length, show_json, show_table
from relay.cli.support import REFUSED, USAGE, complain, console
from relay.cli.types import Json

if TYPE_CHECKING:
    from relay.console import Console

A_FEW, PER_MESSAGE = 10.0, 60.0 / 10_000_000
"""Seconds in which a relay finds what can be claimed: at any rate, and for each message of the queue (docs/finding.md)."""
COLUMNS = ("id", "position", "exchange", "ordering_key", "reason")
Relays = dict[int, Mapping[str, Any]]


def check(
    *,
    queue: Annotated[bool, typer.Option("--queue", help="Look at every message of the queue.")] = False,
    as_json: Json = False,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86_400,
            metavar="SECONDS",
            help="Between the two looks at what can be claimed; 0 for one look. By default 10, and 6 more for each million messages.",
        ),
    ] = None,
) -> None:
    """Name each message that no relay will find, with the reason; exit 1 if there is one."""
    if not queue:
        complain("Say what to check: `relay check --queue`")
        raise typer.Exit(USAGE)
    with console() as opened:
        found, waited = check_queue(opened, wait)
        _show(opened.schema, found, waited, as_json=as_json)
    if found.lost_in_all:
        raise typer.Exit(REFUSED)


def check_queue(opened: Console, wait: float | None) -> tuple[Found, float]:
    """Walk the queue, and look again after a while at what can be claimed; return what was found, and how long it was watched.

    It is watched only if a relay is alive all the time that reaches its broker.
    """
    before = _able(opened)
    with _progress() as say:
        found = walk(opened, lambda walked: say(f"{walked} messages walked"))
        seconds = A_FEW + PER_MESSAGE * found.walked if wait is None else wait
        if not (found.watch and before and seconds):
            return found, 0.0
        since = opened.now()
        say(f"{count(found.walked, 'message')} walked; what can be claimed is looked at again in {length(seconds)}")
        time.sleep(seconds)
        there = {id_: row for id_, row in _able(opened).items() if id_ in before}
        if not there:
            return found, 0.0
        _look_again(opened, found, there, since.astimezone(UTC))
    return found, seconds


def _look_again(opened: Console, found: Found, relays: Relays, since: datetime) -> None:
    """Name the watched messages that these relays, alive all the time, did not touch."""
    silent = {exchange for row in relays.values() for exchange in row["state"].get("silent") or ()}
    now = look_again(opened, found.watch)
    for row in found.watch.passed_over(now, silent, lambda ids: {one["id"] for one in opened.rows("find_claimed", ids=list(ids))}):
        found.lose(row, why_left(row, since))


def _able(opened: Console) -> Relays:
    """Relays that live and reach their broker, by id."""
    return {row["id"]: row for row in opened.rows("read_relays") if row["alive"] and row["state"].get("broker", "up") == "up"}


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows people how far it is; nothing where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _words: None
        return
    from rich.console import Console as Terminal  # noqa: PLC0415 - see relay.cli.output

    with Terminal(stderr=True, markup=False, emoji=False, highlight=False).status("looking at the queue") as status:
        yield status.update


def _show(schema: str, found: Found, waited: float, *, as_json: bool) -> None:
    states = {state: found.states[state] for state in ("claimable", "locked", "waiting", "blocked", "paused")}
    if as_json:
        held = {"held": found.held, "held_keys": len(found.held_keys), "limited": found.limited}
        lost = {"lost": found.lost_in_all, "lost_messages": found.lost}
        show_json({"schema": schema, "walked": found.walked, **states, **held, "watched_seconds": waited, **lost})
        return
    show_table(found.lost, COLUMNS, nothing="no message is lost")
    for line in _lines(schema, found, waited):
        typer.echo(line)


def _lines(schema: str, found: Found, waited: float) -> Iterator[str]:
    """The summary for people."""
    states = found.states
    if more := found.lost_in_all - len(found.lost):
        yield f"{count(more, 'more lost message is', 'more lost messages are')} not listed"
    yield (
        f"{count(found.walked, 'message')} in schema {schema}: {states['claimable']} claimable, {states['locked']} locked, "
        f"{states['waiting']} waiting, {states['blocked']} blocked behind a key, {states['paused']} of paused exchanges, "
        f"{found.lost_in_all} lost"
    )
    if found.held_keys:
        yield f"{count(len(found.held_keys), 'key')} held by an operator, with {count(found.held, 'message')}: `relay key list`"
    if found.limited:
        yield f"{count(found.limited, 'claimable message')} of limited exchanges: not watched"
    if found.watch and not waited:
        yield "what can be claimed was not watched: that takes a relay that reaches its broker, and a --wait of more than 0"
