"""Partitions of the archive, and the ranges in which they are compared: each defines its rows in PostgreSQL and in the lake."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.source.columns import INSTANT
from relay.pipeline.source.ranges import BEYOND, RowRange

DEAD = "queue_message_dead"
END = 1 << 64
"""A number above every possible transaction id; no lake has ids of the upper half."""
_DAILY, _REJECTED = ("success", "discarded"), ("rejected", "failed", "lock_expired")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ArchivePartition:
    """A partition: its table's name, and the results and times of its rows (UTC, both bounds included; None is no bound)."""

    name: str
    results: tuple[str, ...]
    since: datetime | None
    last: datetime | None

    @classmethod
    def of_day(cls, name: str, day: date) -> Self:
        """One day of the archive."""
        since = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return cls(name, _DAILY, since, since + timedelta(days=1, microseconds=-1))

    @classmethod
    def of_dead(cls, since: int | None) -> Self:
        """The dead messages that were archived at `since` or later, in microseconds since 1970; None for all of them."""
        return cls(DEAD, _REJECTED, None if since is None else _EPOCH + timedelta(microseconds=since), None)

    @property
    def dead(self) -> Self:
        """The dead messages of the same time."""
        return replace(self, name=DEAD, results=_REJECTED)

    def touches(self, day: date | None) -> bool:
        """Whether rows of this UTC day may belong to the partition."""
        if day is None:
            return True
        return (self.since is None or self.since.date() <= day) and (self.last is None or day <= self.last.date())

    def values(self) -> dict[str, object]:
        """Parameters of the statements on the partition.

        Without a bound, rows with infinite times are found too, and differ from the lake.
        """
        return {"results": list(self.results), "since": self.since or "-infinity", "last": self.last or "infinity"}


@dataclass(frozen=True)
class PartitionRange:
    """Rows of a partition that are compared together, and the lake's files that may have them, as paths relative to the table.

    Rows whose transaction ids lie in the future came with another cluster's dump; the first export copied all of them. `foreign` selects
    only these rows.
    """

    partition: ArchivePartition
    cut: RowRange
    files: tuple[str, ...] = ()
    foreign: bool = False

    @classmethod
    def of_foreign(cls, partition: ArchivePartition, files: tuple[str, ...]) -> Self:
        """The rows of a partition that came with another cluster's dump."""
        return cls(partition, RowRange(0, END), files, foreign=True)

    def values(self) -> dict[str, object]:
        """Parameters of the statements on the range."""
        cut = self.cut
        high = None if cut.high == END else str(cut.high)
        bounds = {"low": str(cut.low), "high": high, "part": cut.part, "parts": cut.parts, "foreign": self.foreign}
        return {**self.partition.values(), **bounds}

    def divided(self, parts: int) -> list[Self]:
        """The same rows in parts by `seq`."""
        cut = self.cut
        return [replace(self, cut=replace(cut, part=cut.part + cut.parts * one, parts=cut.parts * parts)) for one in range(parts)]

    def halves(self, first: int, last: int, middle: int) -> list[Self]:
        """The same rows in two ranges, divided near transaction `middle`, or by `seq` if all rows belong to one transaction."""
        if first == last:
            return self.divided(2)
        border = max(middle, first + 1)
        return [replace(self, cut=replace(self.cut, high=border)), replace(self, cut=replace(self.cut, low=border))]

    def beyond(self, transaction: int) -> Self:
        """The same rows, without those of transactions below `transaction`."""
        return replace(self, cut=replace(self.cut, low=max(self.cut.low, transaction)))

    def chosen(self, batch: pa.RecordBatch) -> pa.Array:
        """A mask of the rows of a lake's batch that are in the range."""
        position = np.asarray(batch.column("archived_xid"))
        found = (position >= min(self.cut.low, BEYOND)) & (position < min(self.cut.high, BEYOND))
        if self.cut.parts > 1:
            found &= np.mod(np.asarray(batch.column("seq")), self.cut.parts) == self.cut.part
        mask = pc.and_(pa.array(found), pc.is_in(batch.column("result"), value_set=pa.array(self.partition.results)))
        if self.partition.since is not None:
            mask = pc.and_(mask, pc.greater_equal(batch.column("archived_at"), pa.scalar(self.partition.since, INSTANT)))
        if self.partition.last is not None:
            mask = pc.and_(mask, pc.less_equal(batch.column("archived_at"), pa.scalar(self.partition.last, INSTANT)))
        return mask
