"""Divides partitions of the archive into ranges of about equally many rows, and finds the lake's files that may have rows of each range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.source.database import Database
from relay.pipeline.source.partitions import END, ArchivePartition, PartitionRange
from relay.pipeline.source.ranges import STEP, ExportBatch, RowRange, batch_of, cuts

ROWS = 250_000
"""About how many rows are compared at once."""
_PLANNED = 500_000
"""How many rows one planning statement reads: few, so that it holds a snapshot only briefly. A multiple of STEP."""

_PARTS_OF_SEQ = 1 << 31
"""Into how many parts `seq` divides a transaction, so that each part has one row.

The next row of the same part comes two billion messages later.
"""


@dataclass(frozen=True)
class ComparisonPlan:
    """How one version of the lake's table is compared with PostgreSQL: rows below the export's bound, and rows of a foreign dump."""

    database: Database
    files: Sequence[LoggedFile]
    below: int
    rows: int = ROWS
    slots: int = 1

    def ranges(self, partition: ArchivePartition, start: int = 0) -> list[PartitionRange]:
        """Ranges with all rows of a partition from a transaction on, each row once."""
        files = [file for file in self.files if partition.touches(file.day)]
        found = [PartitionRange(partition, cut, _within(files, cut)) for cut in self._cuts(partition, start)]
        beyond = _within(files, RowRange(self.below, END))
        return [*found, PartitionRange.of_foreign(partition, beyond)] if beyond or self._has_foreign else found

    def row(self, partition: ArchivePartition, transaction: int, seq: int) -> PartitionRange:
        """A range with one row only."""
        cut = RowRange(transaction, transaction + 1, seq % _PARTS_OF_SEQ, _PARTS_OF_SEQ)
        return PartitionRange(partition, cut, _within([file for file in self.files if partition.touches(file.day)], cut))

    @cached_property
    def _has_foreign(self) -> bool:
        """Whether PostgreSQL has rows of a foreign dump (another cluster's)."""
        (found,) = self.database.one("has_foreign")
        return bool(found)

    def _cuts(self, partition: ArchivePartition, start: int) -> Iterator[RowRange]:
        while start < self.below:
            batch = self._batch(partition, start)
            yield from cuts(batch, slots=self.slots, largest=self.rows)
            start = batch.end

    def _batch(self, partition: ArchivePartition, start: int) -> ExportBatch:
        values = {**partition.values(), "low": str(start), "high": str(self.below), "most": _PLANNED, "step": STEP}
        rows, before_last, marks = self.database.one("plan_ranges", values)
        batch = batch_of(start, self.below, (rows, before_last, marks), _PLANNED)
        if batch.rows <= _PLANNED:
            return batch
        (rows,) = self.database.one("count_transaction", {**partition.values(), "xid": str(marks[0])})
        return ExportBatch(batch.start, batch.end, rows, (marks[0],) * -(-rows // STEP))


def _within(files: Sequence[LoggedFile], cut: RowRange) -> tuple[str, ...]:
    """The files that may have rows of a cut, including files for which the log has no statistics."""
    return tuple(
        file.path for file in files if (file.newest is None or file.newest >= cut.low) and (file.oldest is None or file.oldest < cut.high)
    )
