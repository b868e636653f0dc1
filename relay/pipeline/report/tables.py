"""The tables of a report: captions, columns and cells as text; the template escapes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, NamedTuple

from relay.pipeline.metrics.aggregate import OTHER
from relay.pipeline.report.model import (
    Counts,
    ExchangeFigures,
    Failure,
    Figures,
    Inventory,
    Latency,
    Numbers,
    Partition,
    Quality,
    SlowKey,
    Unacknowledged,
)
from relay.pipeline.report.text import NOTHING, change, milliseconds, number, percent, plural, points, share, shown, size, when

Kind = Literal["text", "long", "number", "time", "id", "verdict"]
"""How a column is formatted."""
EXCHANGES = 25
VERIFIED_DAYS = 14
"""How many verified partitions are listed, the newest first; up to `WORRYING` differing or unverified partitions are listed before them."""
WORRYING = 60
GROUPS = 25
KEYS = 15
SIZED_DAYS = 14
OTHER_KEYS = "all other keys"
FEW = 4
"""How many columns a phone has room for."""
_DETAIL = 240
_NEVER = Latency(0, 0, 0)
"""Used as earlier latencies if there were messages before, but no latency was measured."""


class Cell(NamedTuple):
    """A cell's text, and how its figure has changed."""

    text: str
    change: str


class Column(NamedTuple):
    """One column."""

    title: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True)
class HtmlTable:
    """One table. `named` makes the first cell of a row the row's heading; `left_out` says what is not shown."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    named: bool = True
    left_out: str = ""

    @property
    def width(self) -> str:
        """The CSS class for the table's width: on a phone the rows of a wide table become cards, and short figures share a line."""
        kinds = {column.kind for column in self.columns[1:]}
        if len(self.columns) <= FEW and "verdict" not in kinds:
            return "few"
        return "many" if kinds & {"text", "long", "id"} else "many figures"

    def cells(self, row: tuple[str | Cell, ...]) -> Iterator[tuple[Column, Cell]]:
        """The cells of one row with their columns."""
        return zip(self.columns, (Cell(cell, "") if isinstance(cell, str) else cell for cell in row), strict=True)


def latency(total: Figures, before: Figures | None) -> HtmlTable:
    """Latency percentiles of the whole span."""
    parts = ("wait", "publish", "confirm")
    rows = tuple(
        (part.capitalize(), *_percentiles(getattr(total, part), getattr(before, part) or _NEVER if before else None)) for part in parts
    )
    return HtmlTable("latencies", "Latency over the whole time", (Column("Part"), *_numbers("median", "p95", "p99")), rows)


def exchanges(found: Sequence[ExchangeFigures], before: Sequence[ExchangeFigures]) -> HtmlTable:
    """Counts and latencies by exchange, the busiest first."""
    ordered = sorted(found, key=lambda exchange: (-exchange.figures.counts.settled, exchange.name))
    known = {exchange.name: exchange.figures for exchange in before}
    columns = (
        Column("Exchange"),
        *_numbers("Published", "Dead", "Discarded", "Tries each", "On time", "Wait p95", "Confirm p95"),
    )
    left_out = f"{plural(len(ordered) - EXCHANGES, 'exchange')} with fewer messages left out." if len(ordered) > EXCHANGES else ""
    rows = tuple(_exchange(one, known.get(one.name, Figures(Counts())) if before else None) for one in ordered[:EXCHANGES])
    return HtmlTable("by-exchange", "Messages by exchange", columns, rows, left_out=left_out)


def _exchange(exchange: ExchangeFigures, before: Figures | None) -> tuple[str | Cell, ...]:
    now = exchange.figures
    counts, known = now.counts, before.counts if before else None
    return (
        shown(exchange.name),
        *(_changed(number, getattr(counts, name), getattr(known, name) if known else None) for name in ("published", "dead", "discarded")),
        _changed("{:.2f}".format, counts.tries_each, known.tries_each if known else None),
        Cell(share(counts.within_target, counts.published), points(counts.on_time, known.on_time) if known else ""),
        _percentiles(now.wait, before.wait or _NEVER if before else None)[1],
        _percentiles(now.confirm, before.confirm or _NEVER if before else None)[1],
    )


def dead_groups(numbers: Numbers, before: Numbers) -> HtmlTable:
    """Dead messages by exchange and code, as a share of what the exchange settled."""
    settled = {exchange.name: exchange.figures.counts.settled for exchange in numbers.exchanges}
    known = {(group.exchange, group.code): group.messages for group in before.dead}
    rows = tuple(
        (
            shown(one.exchange), shown(one.code), _changed(number, one.messages, _known(before, known, (one.exchange, one.code))),
            percent(one.messages, settled[one.exchange]),
        )
        for one in numbers.dead[:GROUPS]
    )  # fmt: skip
    left_out = f"{plural(len(numbers.dead) - GROUPS, 'more pair')} of exchange and code left out." if len(numbers.dead) > GROUPS else ""
    columns = (Column("Exchange"), Column("Code", "long"), *_numbers("Dead", "Share of exchange"))
    return HtmlTable("by-exchange-and-code", "Dead messages by exchange and code", columns, rows, left_out=left_out)


def failing_keys(numbers: Numbers, before: Numbers) -> HtmlTable:
    """Routing keys with the most dead messages."""
    known: dict[tuple[str, str | None], int] = {(one.exchange, one.key): one.dead for one in before.keys}
    rows = tuple(
        (
            OTHER_KEYS if one.key == OTHER else shown(one.key), shown(one.exchange),
            _changed(number, one.dead, _known(before, known, (one.exchange, one.key))), number(one.settled), percent(one.dead, one.settled),
        )
        for one in numbers.keys[:KEYS]
    )  # fmt: skip
    left_out = f"{plural(len(numbers.keys) - KEYS, 'more key')} with dead messages left out." if len(numbers.keys) > KEYS else ""
    columns = (Column("Routing key", "long"), Column("Exchange"), *_numbers("Dead", "Messages", "Share dead"))
    return HtmlTable("failing-keys", "Routing keys by dead messages", columns, rows, left_out=left_out)


def _known(before: Numbers, found: Mapping[tuple[str, str | None], int], key: tuple[str, str | None]) -> int | None:
    """The number of dead messages in the span before; None if nothing at all was counted in that span."""
    return found.get(key, 0) if before.exchanges else None


def day_sizes(inventory: Inventory) -> HtmlTable:
    """Rows and bytes of each day of the archive, in PostgreSQL and in the lake."""
    kept = inventory.days[:SIZED_DAYS]
    rows = tuple(
        (
            one.day.isoformat() if one.day else "dead messages", _count(one.rows), size(one.bytes), _count(one.lake_rows),
            _count(one.lake_files), size(one.lake_bytes),
        )
        for one in kept
    )  # fmt: skip
    columns = (Column("Day"), *_numbers("PostgreSQL rows", "PostgreSQL bytes", "Lake rows", "Lake files", "Lake bytes"))
    left_out = f"{plural(len(inventory.days) - len(kept), 'older day')} left out." if len(inventory.days) > len(kept) else ""
    return HtmlTable("sizes", "Size of the archive, the newest days", columns, rows, left_out=left_out)


def lake_tables(inventory: Inventory) -> HtmlTable:
    """The lake's tables."""
    rows = tuple((one.name, number(one.days), number(one.files), number(one.rows), size(one.bytes)) for one in inventory.tables)
    return HtmlTable("lake-tables", "Tables of the lake", (Column("Table"), *_numbers("Days", "Files", "Rows", "Bytes")), rows)


def failures(found: Sequence[Failure]) -> HtmlTable:
    """Dead messages of the span by result and code, each pair with its latest message as an example."""
    columns = (
        Column("Code", "long"), Column("Result"), Column("Messages", "number"), Column("Latest", "time"), Column("Exchange"),
        Column("Routing key"), Column("Command", "id"), Column("Detail", "long"),
    )  # fmt: skip
    rows = tuple(
        (
            shown(one.code), one.result.replace("_", " "), number(one.messages), when(one.at), shown(one.exchange), shown(one.routing_key),
            show_command(one.id), shown(one.detail, _DETAIL),
        )
        for one in found
    )  # fmt: skip
    return HtmlTable("by-code", "Dead messages by code, with the latest of each", columns, rows)


def slow_keys(found: Sequence[SlowKey], kind: Literal["routing", "ordering"]) -> HtmlTable:
    """Keys of one kind with the highest latencies."""
    columns = (Column(f"{kind.capitalize()} key", "long"), *_numbers("Longest", "Mean", "Messages"))
    rows = tuple(
        (shown(one.key), milliseconds(one.longest_ms), milliseconds(one.mean_ms), number(one.messages)) for one in found if one.kind == kind
    )
    return HtmlTable(f"slow-{kind}", f"{kind.capitalize()} keys by their slowest message", columns, rows)


def dead(found: Unacknowledged) -> HtmlTable:
    """The newest dead messages that wait to be acknowledged."""
    columns = (
        Column("Command", "id"), Column("Since", "time"), Column("Result"), Column("Code"), Column("Exchange"),
        Column("Routing key"), Column("Tries", "number"), Column("Detail", "long"),
    )  # fmt: skip
    rows = tuple(
        (
            show_command(one.id), when(one.at), one.result.replace("_", " "), shown(one.code), shown(one.exchange), shown(one.routing_key),
            number(one.attempts), shown(one.detail, _DETAIL),
        )
        for one in found.newest
    )  # fmt: skip
    left_out = f"{plural(found.total - len(rows), 'older one')} left out; `relay dead list` shows all." if found.total > len(rows) else ""
    return HtmlTable("dead-messages", "Dead messages that are not acknowledged, the newest first", columns, rows, left_out=left_out)


def partitions(quality: Quality) -> HtmlTable:
    """The result of comparing partitions with the lake: partitions that differ or are not verified, and the newest verified partitions."""
    worrying = [*quality.of("differs"), *quality.of("unverified")]
    verified = sorted(quality.of("verified"), key=lambda one: (one.day or date.max, one.name), reverse=True)
    kept = [*worrying[:WORRYING], *verified[:VERIFIED_DAYS]]
    rows = tuple((_partition(one), one.verdict, NOTHING if one.rows is None else number(one.rows), when(one.verified_at)) for one in kept)
    columns = (Column("Partition"), Column("Verdict", "verdict"), Column("Rows", "number"), Column("Verified", "time"))
    missing = len(worrying) + len(verified) - len(kept)
    left_out = f"{plural(missing, 'more partition')} left out." if missing else ""
    return HtmlTable("verified", "Archive in PostgreSQL compared with the lake, row by row", columns, rows, left_out=left_out)


def show_command(message: str) -> str:
    """The command that shows a message, to be copied into a shell."""
    return f"relay show {message}"


def _partition(one: Partition) -> str:
    """The partition's day, or the end of the partition's name."""
    return one.day.isoformat() if one.day else shown(one.name.removeprefix("queue_message_").replace("_", " "))


def _numbers(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, "number") for title in titles)


def _percentiles(measured: Latency | None, before: Latency | None) -> tuple[Cell, Cell, Cell]:
    p50, p95, p99 = (
        Cell(NOTHING, "")
        if measured is None
        else _changed(milliseconds, getattr(measured, which), getattr(before, which) if before else None)
        for which in ("p50", "p95", "p99")
    )
    return p50, p95, p99


def _changed(say: Callable[[float], str], now: float, before: float | None) -> Cell:
    """A figure with its change since the span before; without the change if nothing was counted in that span."""
    return Cell(say(now), "" if before is None else change(now, before))


def _count(value: int | None) -> str:
    return NOTHING if value is None else number(value)
