"""Looks through a file below the archive's folder, current or not, for messages that are to be erased; runs here or in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from relay.errors import DamagedError
from relay.pipeline.erase.chosen import ChosenMessages, with_contents
from relay.pipeline.lake.data_files import sizes
from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.lake.errors import sentences
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.lake.parquet_file import OpenedFile, opened_file
from relay.pipeline.source.columns import TABLE

_BUFFER = 1 << 20
"""How many bytes of a file are read at a time."""
_ROWS, _FEW = 32_768, 512
"""How many rows are decoded together: of short columns, and of options, which may have many kilobytes."""
_LOG = "_delta_log/"


class FolderFile(NamedTuple):
    """A file below the table's folder; `logged` is None if it is no part of the table's version."""

    path: str
    logged: LoggedFile | None


class FileScan(NamedTuple):
    """What a file has: chosen messages with contents, how many of these are named, and ids of chosen messages that were not known.

    `readable` is whether the file could be read; of a file of the table's version it always is.
    """

    rows: int = 0
    named: int = 0
    origins: frozenset[str] = frozenset()
    readable: bool = True


def files_below(check: FooterCheck, current: Mapping[str, LoggedFile]) -> list[FolderFile]:
    """The version's files, and every other Parquet file below the table's folder; errors as `sizes`."""
    others = (path for path in sizes(check.place, TABLE) if path not in current and _is_data(path))
    return [*(FolderFile(path, file) for path, file in sorted(current.items())), *(FolderFile(path, None) for path in sorted(others))]


def _is_data(path: str) -> bool:
    """Whether a file may hold rows; a library may give a file that it has not finished another ending."""
    return not path.startswith(_LOG) and ".parquet" in path and not path.endswith(".crc")


@dataclass(frozen=True)
class Scanner:
    """Scans files. Small, and travels to the tasks."""

    check: FooterCheck
    chosen: ChosenMessages

    def __call__(self, file: FolderFile) -> FileScan:
        """Read the file, with the checksums of its pages.

        Raises:
            DamagedError: the file is one of the table's version, and missing or damaged.
            LakeError: this process cannot read the file.
            UnreachableError: the object store does not answer.
        """
        place = self.check.place
        full = f"{place.path(place.table(TABLE))}/{file.path}"
        try:
            with opened_file(place, full, buffer_size=_BUFFER, checksums=True) as opened:
                if file.logged is not None:
                    self.check.of(file.logged)(opened)
                return self._scan(opened)
        except DamagedError:
            if file.logged is not None:
                raise
            with sentences(place):
                gone = place.filesystem().get_file_info(full).type == fs.FileType.NotFound
            return FileScan(readable=gone)

    def _scan(self, file: OpenedFile) -> FileScan:
        rows, named, ids = 0, 0, set[str]()
        for batch, chosen, by_name in self._chosen(file):
            left = pc.and_(chosen, with_contents(batch))
            rows, named = rows + left.true_count, named + pc.and_(left, by_name).true_count
            ids.update(batch.column("id").filter(chosen).to_pylist())
        return FileScan(rows, named, self.chosen.unknown(ids))

    def _chosen(self, file: OpenedFile) -> Iterator[tuple[pa.RecordBatch, pa.Array, pa.Array]]:
        """Rows with their ids and options, which of them are chosen, and which are named; a group without such a row is left out."""
        for number in range(file.metadata.num_row_groups):
            deciding = list(map(self._decided, file.batches(_ROWS, groups=[number], columns=self.chosen.columns)))
            masks = [pa.chunked_array(mask, pa.bool_()).combine_chunks() for mask in zip(*deciding, strict=True)]
            if not masks or not masks[0].true_count:
                continue
            start = 0
            for batch in file.batches(_FEW, groups=[number], columns=["id", "options"]):
                yield (batch, *(mask.slice(start, batch.num_rows) for mask in masks))
                start += batch.num_rows

    def _decided(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        return self.chosen.rows(batch), self.chosen.named(batch)
