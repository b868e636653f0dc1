"""Rows that the lake has already, when a range is read again: after a change of cluster or timeline, or over rows of a restored dump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from relay.pipeline.lake.data_files import scanning
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.source.columns import TABLE

_IDENTITY = ["xid", "seq"]
_COLUMNS = [*_IDENTITY, "archived_xid", "archived_at"]


@dataclass
class AlreadyExported:
    """Files of the archive that may hold rows of a batch; `differing` counts those rows of the last look that are not the same."""

    paths: Sequence[str]
    differing: int = 0

    def without(self, place: LakeLocation, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose identity (xid, seq) the lake does not have; files and row groups are left out by their statistics.

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
        bounds = pc.min_max(rows["xid"])
        between = (pc.field("xid") >= bounds["min"]) & (pc.field("xid") <= bounds["max"])
        root = place.path(place.table(TABLE))
        with scanning(place, TABLE, self.paths):
            found = ds.dataset([f"{root}/{path}" for path in self.paths], filesystem=place.filesystem(), format="parquet")
            return found.to_table(columns=_COLUMNS, filter=between)


def known_from(handle: DeltaTable, position: int) -> AlreadyExported | None:
    """The lake's files with rows whose `archived_xid` is not below `position`; None, as in every usual export, without any."""
    paths = [file.path for file in files(handle) if file.newest is None or file.newest >= position]
    return AlreadyExported(paths) if paths else None
