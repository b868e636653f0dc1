"""Searches a file below the archive's folder for messages that are to be erased. Runs in this process or in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from relay.errors import DamagedError
from relay.pipeline.erase.chosen import DETAILS, ChosenMessages, with_contents
from relay.pipeline.id_places import IdPlaces
from relay.pipeline.lake.data_files import sizes
from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.lake.errors import sentences
from relay.pipeline.lake.footers import FooterCheck
from relay.pipeline.lake.parquet_reader import OpenedFile, opened_file
from relay.pipeline.source.columns import TABLE

_BUFFER = 1 << 20
"""How many bytes of a file are read at a time."""
_ROWS, _FEW = 32_768, 512
"""The number of rows that are decoded together: of short columns, and of details. The details of one row may have many kilobytes."""
_LOG = "_delta_log/"


class FolderFile(NamedTuple):
    """A file below the table's folder; `logged` is None if it is no part of the table's version."""

    path: str
    logged: LoggedFile | None


@dataclass(frozen=True)
class FileScan:
    """What a file has of chosen messages.

    `rows` counts chosen messages with contents. `leads` has the ids that chosen messages lead to. `places` has the places of messages with
    a chosen id.

    `readable` is whether the file could be read; it is always true for a file of the table's version.
    """

    rows: int = 0
    leads: frozenset[str] = frozenset()
    places: IdPlaces = field(default_factory=IdPlaces)
    readable: bool = True


def files_below(check: FooterCheck, current: Mapping[str, LoggedFile]) -> list[FolderFile]:
    """The version's files, and every other Parquet file below the table's folder; raises the same errors as `sizes`."""
    others = (path for path in sizes(check.place, TABLE) if path not in current and _is_data(path))
    return [*(FolderFile(path, file) for path, file in sorted(current.items())), *(FolderFile(path, None) for path in sorted(others))]


def _is_data(path: str) -> bool:
    """Whether a file may have rows. A library may add an ending to the name of an unfinished file, so `.parquet` need not be its end."""
    return not path.startswith(_LOG) and ".parquet" in path and not path.endswith(".crc")


@dataclass(frozen=True)
class Scanner:
    """Scans files. This small object is sent to Spark's tasks."""

    check: FooterCheck
    chosen: ChosenMessages

    def __call__(self, file: FolderFile) -> FileScan:
        """Read the file, and check the checksums of its pages.

        Raises:
            DamagedError: the file belongs to the table's version, and is missing or damaged.
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
        left, leads, places = 0, set[str](), IdPlaces()
        for rows in self._chosen(file):
            left += with_contents(rows).true_count
            leads.update(self.chosen.leads(rows))
            places.add(rows.filter(self.chosen.with_ids(rows)))
        return FileScan(left, frozenset(leads), places)

    def _chosen(self, file: OpenedFile) -> Iterator[pa.RecordBatch]:
        """The details of chosen rows. The details of a row group are read only if the group has a chosen row."""
        for number in range(file.metadata.num_row_groups):
            deciding = map(self.chosen.mask, file.batches(_ROWS, groups=[number], columns=self.chosen.columns))
            mask = pa.chunked_array(deciding, pa.bool_()).combine_chunks()
            if not mask.true_count:
                continue
            start = 0
            for batch in file.batches(_FEW, groups=[number], columns=DETAILS.names):
                yield batch.select(DETAILS.names).cast(DETAILS).filter(mask.slice(start, batch.num_rows))
                start += batch.num_rows
