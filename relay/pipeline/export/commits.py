"""One commit to the lake's archive: Spark's tasks copy rows, and the commit carries an epoch that PostgreSQL expects."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from relay.pipeline.export import distribute
from relay.pipeline.export.distribute import CopiedRange
from relay.pipeline.lake import epoch as link
from relay.pipeline.lake.already_exported import known_from
from relay.pipeline.lake.delta_lake import Lake, schema_of
from relay.pipeline.lake.delta_log import LoggedFile
from relay.pipeline.lake.epoch import EPOCH, OFFSET, epoch_of, offset_of
from relay.pipeline.lake.parquet_writer import FULL, DataFile
from relay.pipeline.lake.range_writer import Reading
from relay.pipeline.lake.target_table import check_same
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.cluster import Cluster
from relay.pipeline.source.columns import TABLE, ArchiveColumn, fault, select_list
from relay.pipeline.source.database import Database
from relay.pipeline.source.ranges import RowRange, shares

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Count = Callable[[CopiedRange], object]


@dataclass(frozen=True)
class Copied:
    """The rows of one commit: all that `statement` returns for the ranges in `cuts`. `end` becomes the lake's offset.

    Args:
        statement: name of the statement that reads a cut; `values` are put into it.
        position: the lake may already have rows of this transaction and of later ones.
    """

    statement: str
    cuts: Sequence[RowRange]
    end: int
    position: int
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Commits:
    """Makes the commits of one job."""

    lake: Lake
    database: Database
    cluster: Cluster
    spark: Callable[[], SparkSession]
    columns: Sequence[ArchiveColumn]
    full: int = FULL

    def make(self, source: Database, handle: DeltaTable, copied: Copied, *, then: Count, always: bool = True) -> CopiedRange:
        """Copy rows from `source` and commit them through the handle by which the copy was planned.

        If there are no rows, it commits only with `always`.

        After the commit it calls `then`, which counts what was committed; a signal is deferred until `then` has returned.

        Raises:
            ConflictError: another export was faster.
            PipelineError: a task failed, or PostgreSQL was replaced by another server meanwhile. In both cases nothing was committed.
            UnreachableError, LakeError: as for `Lake.commit`.
        """
        written = distribute.copy(self.spark(), self._reading(source, handle, copied), self.database.connections)
        if not (written.files or always):
            return written
        self._commit(handle, copied.end, written.files, then=partial(then, written))
        return written

    def forget(self, handle: DeltaTable, files: Sequence[LoggedFile], *, then: Callable[[], object]) -> None:
        """Remove these files from the table by a commit; `then` and the errors are as for `make`."""
        self._commit(handle, offset_of(handle), (), files, then=then)

    def _commit(
        self,
        handle: DeltaTable,
        end: int,
        added: Sequence[DataFile],
        removed: Sequence[LoggedFile] = (),
        *,
        then: Callable[[], object],
    ) -> None:
        try:
            check_same(self.cluster, clusters.read(self.database))
            epoch = link.begin(self.database, handle, epoch_of(handle))
        except BaseException:
            self.lake.discard(TABLE, added)
            raise
        self.lake.commit(handle, TABLE, added, offsets=[(OFFSET, end), (EPOCH, epoch)], removed=removed, then=then)

    def _reading(self, source: Database, handle: DeltaTable, copied: Copied) -> Reading:
        select = source.statement(copied.statement).decode().replace("%%", "%")
        values = {"columns": select_list(self.columns).as_string(None), "fault": fault(self.columns).as_string(None), **copied.values}
        for name, text in values.items():
            select = select.replace(f"@{name}@", text)
        return Reading(
            conninfo=source.complete_conninfo("export"),
            check=self.database.statement("read_cluster").decode(),
            expected=(self.cluster.system_identifier, self.cluster.timeline, self.cluster.database, copied.end),
            select=select,
            place=self.lake.place,
            table=TABLE,
            schema=schema_of(handle),
            name=f"part-{uuid.uuid4()}",
            shares=shares(copied.cuts, distribute.slots(self.spark())),
            known=known_from(handle, copied.position),
            full=self.full,
        )
