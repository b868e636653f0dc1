"""Finds messages that wait, in claim order: those that meet what was asked, page by page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

import typer

from relay.cli.queue_check.contexts import WaitContexts
from relay.cli.queue_check.rows import QueueRow, WaitState, moment
from relay.cli.queue_check.scan import rows_after
from relay.cli.queue_check.wait_reasons import waits_for

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

_TOGETHER = 1000
"""Rows whose texts one statement reads."""
Texts = Mapping[str, Any]
"""A row of `describe_waiting.sql`."""


STATES: tuple[str, ...] = get_args(WaitState)


def _state(text: str) -> str:
    """The option --state.

    Raises:
        typer.BadParameter: there is no such state.
    """
    if text not in STATES:
        raise typer.BadParameter(f"--state must be one of {', '.join(STATES)}.")
    return text


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Conditions that a message must all meet; each field is an option (see relay.cli.common.help)."""

    state: Annotated[
        list[str] | None,
        typer.Option(parser=_state, metavar="STATE", help=f"Only in this state: {', '.join(STATES)}. May be given several times."),
    ] = None
    exchange: Annotated[str | None, typer.Option(help="Only of this exchange.")] = None
    routing_key: Annotated[str | None, typer.Option(help="Only with this routing key; * matches any characters.")] = None
    ordering_key: Annotated[str | None, typer.Option(help="Only with this ordering key.")] = None
    code: Annotated[str | None, typer.Option(help="Only if the last attempt failed with this code.")] = None

    def meets(self, row: QueueRow) -> bool:
        """Whether a message meets the conditions on its row."""
        return (
            (not self.state or row.wait_state in self.state)
            and self.exchange in {None, row.exchange}
            and self.ordering_key in {None, row.ordering_key}
        )

    def meets_texts(self, texts: Texts) -> bool:
        """Whether it meets the conditions on its texts. In a routing key a star is any run of characters."""
        pattern = None if self.routing_key is None else ".*".join(map(re.escape, self.routing_key.split("*")))
        right_key = pattern is None or re.fullmatch(pattern, texts["routing_key"], re.DOTALL) is not None
        return right_key and self.code in {None, (texts["last_error"] or "").partition(":")[0]}


class Listing(NamedTuple):
    """Messages as they are shown, and the place after which the next ones are; None if all were scanned."""

    messages: list[dict[str, Any]]
    next: str | None


def listed(opened: OperatorSession, wanted: Wanted, after: tuple[int, int], *, limit: int, scan: int) -> Listing:
    """The first messages after a place that meet what is wanted: at most `limit`, among the next `scan` rows of the queue."""
    contexts, found = WaitContexts(opened), list[dict[str, Any]]()
    rows, last, scanned = rows_after(opened, after), None, 0
    while some := list(islice(rows, min(_TOGETHER, scan - scanned))):
        scanned += len(some)
        for row, texts in _described(opened, filter(wanted.meets, some)):
            if wanted.meets_texts(texts):
                found.append(_shown(row, texts, contexts))
                if len(found) == limit:
                    return Listing(found, f"{row.xid}/{row.seq}")
        last = some[-1]
    return Listing(found, f"{last.xid}/{last.seq}" if last and scanned == scan else None)


def _described(opened: OperatorSession, rows: Iterable[QueueRow]) -> Iterator[tuple[QueueRow, Texts]]:
    """Rows with their texts; a message that was settled meanwhile is left out."""
    chosen = list(rows)
    if not chosen:
        return
    by_place = {(one["xid"], one["seq"]): one for one in opened.rows("describe_waiting", ids=[row.id for row in chosen])}
    for row in chosen:
        if (found := by_place.get((row.xid, row.seq))) is not None:
            yield row, found


def _shown(row: QueueRow, texts: Texts, contexts: WaitContexts) -> dict[str, Any]:
    return {
        "id": row.id,
        "place": f"{row.xid}/{row.seq}",
        "exchange": row.exchange,
        "routing_key": texts["routing_key"],
        "ordering_key": row.ordering_key,
        "state": row.wait_state,
        "attempts": row.attempts,
        "created_at": texts["created_at"],
        "available_at": None if row.available_at is None else moment(row.available_at),
        "expires_at": texts["expires_at"],
        "last_error": texts["last_error"],
        "waits_for": waits_for(row, contexts.of(row)),
    }
