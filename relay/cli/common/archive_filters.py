"""Options that several commands share: filters for archived messages, and how the selected messages are sent again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated

import typer

from relay.cli.common.arguments import SameId
from relay.cli.common.support import LENGTH, moment
from relay.message import Result

FROM = typer.Option("--from", metavar="TIME", help="Archived from this time on: 2031-01-31T12:00:00Z, or 90s, 15m, 2h, 7d ago.")
Until = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Archived before this time; by default now.")]


@dataclass(frozen=True, kw_only=True)
class Span:
    """A range of archiving times; each field is an option (see relay.cli.common.help)."""

    since: Annotated[str | None, FROM] = None
    until: Until = None

    @property
    def has_length(self) -> bool:
        """Whether --from or --to is a length of time, which means another time at each run of the command."""
        return any(LENGTH.fullmatch(text) for text in (self.since, self.until) if text)

    def between(self, now: Callable[[], datetime], *, closed: bool = False) -> tuple[datetime | None, datetime | None]:
        """See `between`."""
        return between(now, self.since, self.until, closed=closed)


@dataclass(frozen=True, kw_only=True)
class Filter(Span):
    """A filter for archived messages to send again; a message must match every option that is given."""

    exchange: Annotated[str | None, typer.Option(help="Only messages of this exchange.")] = None
    routing_key: Annotated[str | None, typer.Option(help="Only messages with this routing key; * matches any characters.")] = None
    result: Annotated[
        Result | None,
        typer.Option(metavar="RESULT", help="Only messages with this result: success, rejected, failed, lock_expired or discarded."),
    ] = None
    code: Annotated[str | None, typer.Option(help="Only messages with this error code.")] = None

    @property
    def result_name(self) -> str | None:
        """The result in the archive's spelling."""
        return self.result.value if self.result else None


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How many messages are sent again, how fast, and under which id."""

    limit: Annotated[int | None, typer.Option(min=1, help="Send at most this many messages.")] = None
    rate: Annotated[float | None, typer.Option(min=0.01, help="Send at most this many messages a second.")] = None
    same_id: SameId = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the messages; enqueue nothing.")] = False


def between(
    now: Callable[[], datetime], since: str | None, until: str | None, *, closed: bool = False
) -> tuple[datetime | None, datetime | None]:
    """The times of --from and --to. The database's clock is read at most once; with `closed`, a missing --to means now.

    Raises:
        typer.BadParameter: one of them is not a time, or the range between them is empty.
    """
    clock = cache(now)
    begin, end = moment(clock, since, "--from"), moment(clock, until, "--to")
    if end is None and closed:
        end = clock()
    if begin is not None and end is not None and begin >= end:
        raise typer.BadParameter(f"Nothing matches: --from must be before {'--to' if until else 'now'}.")
    return begin, end
