"""Rewrites files of the archive's table in batches of rows, in this process or in Spark's tasks, and replaces them by the new files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from relay.errors import LakeError
from relay.pipeline.lake.data_files import batches_of, delete_written
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_writer import DataFile, DayWriter
from relay.pipeline.lake.range_writer import complete
from relay.pipeline.source.columns import TABLE
from relay.pipeline.spark.items import Carrier
from relay.pipeline.text import many

AT_ONCE = 64
"""How many files one commit adds: a job that is killed loses the work on at most this many."""
_GROUP = 16 << 20
"""Bytes of rows in memory that become one row group, as in an exported file: a reader has one group in memory at a time."""

Change = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Changes contents of rows before they are written; it may not remove, add or reorder rows. It is sent to Spark's tasks."""


@dataclass(frozen=True)
class Rewriter:
    """Merges some files of one day into one file. Small and picklable.

    Args:
        place: root of the lake.
        table: name of the table, whose schema is `schema`.
        name: the beginning of the new files' names, unique for each job.
        change: changes the rows; None leaves them unchanged.
    """

    place: LakeLocation
    table: str
    schema: pa.Schema
    name: str
    change: Change | None = None

    def __call__(self, files: Sequence[LoggedFile]) -> DataFile:
        """Write the rows of all these files to one file, which no reader sees before it is committed.

        Raises:
            DamagedError: a file is missing, damaged, or not the one that the table's log describes; the new file is deleted.
            LakeError: this process cannot reach a file.
            UnreachableError: the object store does not answer.
        """
        # Spark may run a task twice at once, so each run writes a file of its own.
        writer = DayWriter(self.place, self.table, self.schema, f"{self.name}-{uuid.uuid4()}")
        try:
            for batch in _grouped(self._rows(files)):
                writer.write(batch)
            return _checked(files, writer.close())
        except BaseException:
            writer.abort()
            raise

    def _rows(self, files: Sequence[LoggedFile]) -> Iterator[pa.RecordBatch]:
        for file in files:
            for batch in batches_of(self.place, self.table, file.path, FooterCheck(self.place, self.schema).of(file)):
                rows = complete(batch, self.schema)
                yield rows if self.change is None else self.change(rows)


def rewrite(
    lake: Lake, carrier: Carrier, groups: Sequence[Sequence[LoggedFile]], *, change: Change | None = None, then: Callable[[], object]
) -> None:
    """Write one file for each group of files, and replace all groups in one commit; `then` is called after the commit.

    Raises:
        ConflictError: another job rewrote one of these files; nothing was changed.
        DamagedError, LakeError, UnreachableError: as for `Rewriter`; nothing was changed.
        PipelineError: Spark failed; nothing was changed.
    """
    writer = Rewriter(lake.place, TABLE, schema_of(lake.opened(TABLE)), f"part-{uuid.uuid4()}", change)
    try:
        written = list(carrier.each(writer, groups))
    except BaseException:
        delete_written(lake.place, TABLE, writer.name)
        raise
    lake.replace(TABLE, written, [file for group in groups for file in group], same_rows=change is None, then=then)


def _checked(files: Sequence[LoggedFile], written: Sequence[DataFile]) -> DataFile:
    """The new file.

    Raises LakeError if it has more or fewer rows than the table's log names for the files that it replaces.
    """
    expected, found = sum(file.rows for file in files), sum(file.rows for file in written)
    if len(written) != 1 or expected != found:
        raise LakeError(
            f"Files of the day {files[0].day} have {many(found, 'row')} of {expected:,}: `relay pipeline verify` names what differs."
        )
    return written[0]


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches, each of the size of a row group."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.nbytes for one in held) >= _GROUP:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)
