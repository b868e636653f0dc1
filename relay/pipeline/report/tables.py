"""The tables of a report: captions, columns and cells as text; the template escapes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, NamedTuple

from relay.pipeline.report.model import Exchange, Failure, Figures, Latency, Partition, Quality, SlowKey, Unacknowledged
from relay.pipeline.report.text import NOTHING, milliseconds, number, plural, share, shown, when

Kind = Literal["text", "long", "number", "time", "id", "verdict"]
"""How a column is set."""
EXCHANGES = 25
VERIFIED_DAYS = 14
"""Newest verified partitions that are listed; what needs a person is listed up to `WORRYING`."""
WORRYING = 60
FEW = 4
"""Columns that a phone has room for."""
_DETAIL = 240


class Column(NamedTuple):
    """One column."""

    title: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """One table; `named` makes the first cell of a row its heading, `left_out` says what is not shown."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    named: bool = True
    left_out: str = ""

    @property
    def width(self) -> str:
        """How wide it is: where there is no room, many columns become cards, and narrow ones stand there three in a row."""
        kinds = {column.kind for column in self.columns[1:]}
        if len(self.columns) <= FEW and "verdict" not in kinds:
            return "few"
        return "many" if kinds & {"text", "long", "id"} else "many figures"

    def cells(self, row: tuple[str, ...]) -> Iterator[tuple[Column, str]]:
        """The cells of one row with their columns."""
        return zip(self.columns, row, strict=True)


def latency(total: Figures) -> Table:
    """Percentiles of the whole span."""
    measured = {"Wait": total.wait, "Publish": total.publish, "Confirm": total.confirm}
    rows = tuple((name, *_percentiles(latency)) for name, latency in measured.items())
    return Table("latencies", "Latency over the whole time", (Column("Part"), *_numbers("median", "p95", "p99")), rows)


def exchanges(found: Sequence[Exchange]) -> Table:
    """Counts and latencies by exchange, the busiest first."""
    ordered = sorted(found, key=lambda exchange: (-exchange.figures.counts.settled, exchange.name))
    columns = (
        Column("Exchange"),
        *_numbers("Published", "Dead", "Discarded", "Tries each", "On time", "Wait p95", "Confirm p95"),
    )
    left_out = f"{plural(len(ordered) - EXCHANGES, 'exchange')} with fewer messages left out." if len(ordered) > EXCHANGES else ""
    return Table("by-exchange", "Messages by exchange", columns, tuple(map(_exchange, ordered[:EXCHANGES])), left_out=left_out)


def _exchange(exchange: Exchange) -> tuple[str, ...]:
    counts, figures = exchange.figures.counts, exchange.figures
    return (
        shown(exchange.name),
        number(counts.published),
        number(counts.dead),
        number(counts.discarded),
        f"{counts.attempts / counts.settled:.2f}" if counts.settled else NOTHING,
        share(counts.within_target, counts.published),
        _percentiles(figures.wait)[1],
        _percentiles(figures.confirm)[1],
    )


def failures(found: Sequence[Failure]) -> Table:
    """Dead messages of the span by result and code, each with its latest example."""
    columns = (
        Column("Code", "long"), Column("Result"), Column("Messages", "number"), Column("Latest", "time"), Column("Exchange"),
        Column("Routing key"), Column("Its id", "id"), Column("What it says", "long"),
    )  # fmt: skip
    rows = tuple(
        (
            shown(one.code), one.result.replace("_", " "), number(one.messages), when(one.at), shown(one.exchange), shown(one.routing_key),
            one.id, shown(one.detail, _DETAIL),
        )
        for one in found
    )  # fmt: skip
    return Table("by-code", "Dead messages by code, with the latest of each", columns, rows)


def slow_keys(found: Sequence[SlowKey], kind: Literal["routing", "ordering"]) -> Table:
    """Keys of one kind with the longest ways."""
    columns = (Column(f"{kind.capitalize()} key", "long"), *_numbers("Longest", "Mean", "Messages"))
    rows = tuple(
        (shown(one.key), milliseconds(one.longest_ms), milliseconds(one.mean_ms), number(one.messages)) for one in found if one.kind == kind
    )
    return Table(f"slow-{kind}", f"{kind.capitalize()} keys by their slowest message", columns, rows)


def dead(found: Unacknowledged) -> Table:
    """The newest dead messages that wait for somebody."""
    columns = (
        Column("Id", "id"), Column("Since", "time"), Column("Result"), Column("Code"), Column("Exchange"), Column("Routing key"),
        Column("Tries", "number"), Column("What it says", "long"),
    )  # fmt: skip
    rows = tuple(
        (
            one.id, when(one.at), one.result.replace("_", " "), shown(one.code), shown(one.exchange), shown(one.routing_key),
            number(one.attempts), shown(one.detail, _DETAIL),
        )
        for one in found.newest
    )  # fmt: skip
    left_out = f"{plural(found.total - len(rows), 'older one')} left out; `relay dead list` shows all." if found.total > len(rows) else ""
    return Table("dead-letters", "Dead letters that nobody has acknowledged, the newest first", columns, rows, left_out=left_out)


def partitions(quality: Quality) -> Table:
    """What came out of comparing each partition: all that need a person, and the newest of those that are right."""
    worrying = [*quality.of("differs"), *quality.of("unverified")]
    verified = sorted(quality.of("verified"), key=lambda one: (one.day or date.max, one.name), reverse=True)
    kept = [*worrying[:WORRYING], *verified[:VERIFIED_DAYS]]
    rows = tuple((_partition(one), one.verdict, NOTHING if one.rows is None else number(one.rows), when(one.verified_at)) for one in kept)
    columns = (Column("Partition"), Column("Came out", "verdict"), Column("Rows", "number"), Column("Verified", "time"))
    missing = len(worrying) + len(verified) - len(kept)
    left_out = f"{plural(missing, 'more partition')} left out." if missing else ""
    return Table("verified", "Archive in PostgreSQL compared with the lake, row by row", columns, rows, left_out=left_out)


def _partition(one: Partition) -> str:
    """A day of the archive, or what its name ends with."""
    return one.day.isoformat() if one.day else shown(one.name.removeprefix("queue_message_").replace("_", " "))


def _numbers(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, "number") for title in titles)


def _percentiles(measured: Latency | None) -> tuple[str, str, str]:
    if measured is None:
        return (NOTHING, NOTHING, NOTHING)
    return (milliseconds(measured.p50), milliseconds(measured.p95), milliseconds(measured.p99))
