"""Rewrites files of a day as one, some rows at a time; runs in this process or inside Spark's tasks."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from relay.errors import LakeError
from relay.pipeline.compact.packing import Pack
from relay.pipeline.lake.data_files import DataFile, DayWriter, batches_of
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.range_writer import complete
from relay.pipeline.text import many

_GROUP = 16 << 20
"""Bytes of rows in memory that become one row group, as in an exported file: readers hold a group at a time."""


@dataclass(frozen=True)
class Merge:
    """Makes one file of a pack. Small and picklable.

    Args:
        place: root of the lake.
        table: name of the table, whose schema is `schema`.
        name: beginning of the new files' names, different for every job there ever is.
    """

    place: LakeLocation
    table: str
    schema: pa.Schema
    name: str

    def __call__(self, pack: Pack) -> DataFile:
        """Write the rows of all files of the pack to one file, which no reader sees before it is committed.

        Raises:
            DamagedError: a file is missing, damaged or another one than the table names; the new file is removed.
            LakeError: this process cannot reach a file.
            UnreachableError: the object store does not answer.
        """
        # Spark may run a task twice at once, so each run writes a file of its own.
        writer = DayWriter(self.place, self.table, self.schema, f"{self.name}-{uuid.uuid4()}")
        try:
            for batch in _grouped(self._rows(pack)):
                writer.write(batch)
            return _checked(pack, writer.close())
        except BaseException:
            writer.abort()
            raise

    def _rows(self, pack: Pack) -> Iterator[pa.RecordBatch]:
        for file in pack.files:
            for batch in batches_of(self.place, self.table, file.path, FooterCheck(self.place, self.schema).of(file)):
                yield complete(batch, self.schema)


def _checked(pack: Pack, written: Sequence[DataFile]) -> DataFile:
    """The new file; LakeError if it does not have as many rows as the table's log names for the files that it replaces."""
    if [pack.rows] != [file.rows for file in written]:
        rows = sum(file.rows for file in written)
        raise LakeError(
            f"Files of the day {pack.day} have {many(rows, 'row')} of {pack.rows:,}: `relay pipeline verify` names what differs."
        )
    return written[0]


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a row group each."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.nbytes for one in held) >= _GROUP:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)
