"""Finds rows that the lake already has, when a range is read again: after a change of cluster or timeline, or after a restored dump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from relay.pipeline.lake.data_files import scanning
from relay.pipeline.lake.delta_log import LoggedFile, files
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.source.columns import TABLE

_IDENTITY = ["xid", "seq"]
_COLUMNS = [*_IDENTITY, "archived_xid", "archived_at"]
_FORMAT = ds.ParquetFileFormat()


@dataclass
class AlreadyExported:
    """Files of the lake's archive that may have rows of a batch.

    `differing` counts rows of the last batch that are different in the lake.
    """

    files: Sequence[LoggedFile]
    differing: int = 0
    _opened: dict[str, ds.Fragment] = field(default_factory=dict)
    """Files by path, with the footers that were read."""

    def without(self, place: LakeLocation, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch's rows whose identity (xid, seq) the lake does not have; files and row groups are skipped by their statistics.

        Raises:
            DamagedError: a file is missing or cannot be decoded.
            LakeError, UnreachableError: the lake cannot be read.
        """
        rows = pa.table({**{name: batch.column(name) for name in _COLUMNS}, "place": pa.array(range(batch.num_rows), pa.int64())})
        found = rows.join(self._in_lake(place, rows), keys=_IDENTITY, join_type="inner", right_suffix=" there")
        same = [pc.equal(found[name], found[f"{name} there"]) for name in _COLUMNS if name not in _IDENTITY]
        self.differing = found.num_rows - pc.sum(pc.and_(*same)).as_py() if found.num_rows else 0
        return batch.filter(pc.invert(pc.is_in(rows["place"], pc.unique(found["place"]))).combine_chunks())

    def _in_lake(self, place: LakeLocation, rows: pa.Table) -> pa.Table:
        xids = np.unique(rows["xid"].to_numpy())
        paths = [file.path for file in self.files if _may_hold(file, xids)]
        if not paths:
            return rows.select(_COLUMNS).slice(0, 0)
        with scanning(place, TABLE, paths):
            opened = [self._fragment(place, path) for path in paths]
            found = ds.FileSystemDataset(opened, opened[0].physical_schema, _FORMAT)
            return found.to_table(columns=_COLUMNS, filter=(pc.field("xid") >= int(xids[0])) & (pc.field("xid") <= int(xids[-1])))

    def _fragment(self, place: LakeLocation, path: str) -> ds.Fragment:
        """A file as a fragment, which keeps the file's footer after the first read."""
        if path not in self._opened:
            self._opened[path] = _FORMAT.make_fragment(f"{place.path(place.table(TABLE))}/{path}", place.filesystem())
        return self._opened[path]


def known_from(handle: DeltaTable, position: int) -> AlreadyExported | None:
    """The lake's files that may have rows whose `archived_xid` is at least `position`; None (the usual case) without such a file."""
    found = [file for file in files(handle) if file.newest is None or file.newest >= position]
    return AlreadyExported(found) if found else None


def _may_hold(file: LoggedFile, xids: np.ndarray) -> bool:
    """Whether a file may have rows of any of these transactions, which are in ascending order; True if the log does not say."""
    if file.first is None or file.last is None:
        return True
    return bool(np.searchsorted(xids, file.first) < np.searchsorted(xids, file.last, side="right"))
