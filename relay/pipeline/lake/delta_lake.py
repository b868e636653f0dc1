"""The lake: Delta tables below one root, read and written without a JVM. One commit contains both data and offset."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from relay.errors import ConflictError, LakeError, UnreachableError
from relay.pipeline.lake.data_files import check_footers, delete_files, sizes
from relay.pipeline.lake.delta_log import LoggedFile, files, paths
from relay.pipeline.lake.errors import sentence, sentences
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.lake.parquet_writer import DataFile, DayWriter, statistics_properties
from relay.pipeline.signals import deferred
from relay.pipeline.source.columns import DAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READER_VERSION = 1
"""The only version of Delta's reader protocol that every reader of this lake knows, Spark's plain Parquet reader among them."""
REPLACED = {"outbox_relay.replaced": "true"}
"""The log's note on a commit that replaces files by others with the same rows."""
CHANGED = {"outbox_relay.changed": "true"}
"""The log's note on a commit that replaces files by others in which some rows have other contents."""
Offset = tuple[str, int]
"""An application's id and the position that the application has reached, committed with the data."""


class Lake:
    """Tables below `url`; `options` are deltalake's storage options and are never shown.

    Raises:
        LakeError: the URL names an unknown kind of store, or a path below which no table can be stored.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self.place = LakeLocation.of(url, options or {})
        self.place.check_tables()

    def __repr__(self) -> str:
        return f"Lake({self.place.url!r})"

    def open(self, table: str, version: int | None = None) -> DeltaTable | None:
        """A handle of the table's current version, or of `version`; None if there is no table yet.

        Raises:
            LakeError: the table needs a reader version that is not known here, or its log no longer has the version.
            UnreachableError: the object store does not answer.
        """
        with sentences(self.place):
            try:
                handle = DeltaTable(self.place.table(table), version, storage_options=dict(self.place.options))
            except TableNotFoundError:
                return None
        if (needed := handle.protocol().min_reader_version) != READER_VERSION:
            raise LakeError(
                f"The table {table} of {self.place.url} needs reader version {needed}, this one knows {READER_VERSION}: upgrade."
            )
        return handle

    def opened(self, table: str) -> DeltaTable:
        """The same as `open`, but raises LakeError if there is no such table."""
        if (handle := self.open(table)) is None:
            raise LakeError(f"The lake {self.place.url} has no table {table} yet: run `relay pipeline export`, then `metrics`.")
        return handle

    def create(self, table: str, schema: pa.Schema, *, properties: Mapping[str, str] | None = None) -> DeltaTable:
        """Create an empty table, partitioned by `day` if the schema has this column; raises LakeError, UnreachableError, ConflictError."""
        try:
            return DeltaTable.create(
                self.place.table(table),
                Schema.from_arrow(schema),
                partition_by=[DAY.name] if DAY.name in schema.names else None,
                configuration={**statistics_properties(schema), **(properties or {})},
                storage_options=dict(self.place.options),
                raise_if_key_not_exists=False,
            )
        except Exception as error:
            if self.open(table) is not None:
                raise ConflictError(f"Another job made the table {table} at the same moment: run this again.") from error
            raise sentence(error, self.place) from error

    def append(self, handle: DeltaTable, table: str, rows: Iterable[pa.RecordBatch], *, offsets: Sequence[Offset] = ()) -> list[DataFile]:
        """Write rows from this process and commit them through the handle; raises the same errors as `commit`."""
        writer = DayWriter(self.place, table, schema_of(handle), f"part-{uuid.uuid4()}")
        try:
            for batch in rows:
                writer.write(batch)
            files = writer.close()
        except BaseException:
            writer.abort()
            raise
        self.commit(handle, table, files, offsets=offsets)
        return files

    def commit(
        self,
        handle: DeltaTable,
        table: str,
        files: Sequence[DataFile],
        *,
        offsets: Sequence[Offset] = (),
        removed: Sequence[LoggedFile] = (),
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Add written files to the table and remove others from it, in one commit through the handle by which the commit was planned.

        The same commit contains the offsets. Files that cannot be committed are deleted. `then` is called after the commit; a signal waits
        for it.

        Raises:
            ConflictError: another job committed an offset of the same application, or changed the table, since the handle was loaded.
            LakeError: a file is not what it should be, or the commit was refused.
            UnreachableError: the object store does not answer.
        """
        self._check(handle, table, files)
        actions: list[AddAction | RemoveAction] = [*(file.action() for file in files), *(file.removal() for file in removed)]
        with deferred():
            try:
                _write(handle, actions, offsets, alone=bool(removed))
            except Exception as error:  # noqa: BLE001 - the library has many; the table's state decides what each means
                self._refused(handle, table, files, offsets, error)
            then()

    def repeat(self, handle: DeltaTable, table: str, offset: Offset) -> None:
        """Commit an offset that the table already has. Another job that has planned a commit for this application must then begin again.

        Raises:
            ConflictError: another job committed an offset of the application since the handle was loaded; run this job again.
            LakeError: the commit was refused.
            UnreachableError: the object store does not answer.
        """
        try:
            _write(handle, (), [offset], alone=False, metadata=CHANGED)
        except Exception as error:
            if self.opened(table).version() > handle.version():
                raise ConflictError("Another job wrote to the lake meanwhile: run this again.") from error
            raise sentence(error, self.place) from error

    def replace(
        self,
        table: str,
        files: Sequence[DataFile],
        removed: Sequence[LoggedFile],
        *,
        same_rows: bool = True,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Replace files by written ones, whatever other jobs commit meanwhile; `then` is as for `commit`.

        With `same_rows` the log says that no data changed. Delta allows this only if each row is unchanged.

        Raises:
            ConflictError: one of the replaced files is no longer part of the table; nothing was changed.
            LakeError: a file is not what it should be, or the commit was refused.
            UnreachableError: the object store does not answer.
        """
        self._check(self.opened(table), table, files)
        with deferred():
            self._replace(table, files, removed, same_rows=same_rows)
            then()

    def _replace(self, table: str, files: Sequence[DataFile], removed: Sequence[LoggedFile], *, same_rows: bool) -> None:
        """Repeat the commit until the files are in the table; raises the same errors as `replace`."""
        actions: list[AddAction | RemoveAction] = [file.action(data_change=not same_rows) for file in files]
        actions += [file.removal(data_change=not same_rows) for file in removed]
        while True:
            handle = self.opened(table)
            there = set(paths(handle))
            if files[0].path in there:
                return  # the answer to an earlier try was lost
            if not {file.path for file in removed} <= there:
                delete_files(self.place, table, files)
                raise ConflictError("Another job rewrote the same files: nothing of this batch is in the lake; run it again.")
            try:
                _write(handle, actions, (), alone=True, metadata=REPLACED if same_rows else CHANGED)
            except Exception as error:
                # The files stay: a commit whose answer came too late may appear in the log a moment after this check.
                if self.opened(table).version() == handle.version():
                    raise sentence(error, self.place) from error

    def _check(self, handle: DeltaTable, table: str, files: Sequence[DataFile]) -> None:
        """Check written files; if one of them is wrong, delete all and raise LakeError."""
        try:
            check_footers(self.place, table, schema_of(handle), files)
        except BaseException:
            delete_files(self.place, table, files)
            raise

    def discard(self, table: str, files: Sequence[DataFile]) -> None:
        """Delete files that are not to be committed."""
        delete_files(self.place, table, files)

    def _refused(self, handle: DeltaTable, table: str, files: Sequence[DataFile], offsets: Sequence[Offset], error: Exception) -> None:
        """Return if a failed commit is in the table after all, because only its answer was lost; else raise the error."""
        now, told = self.opened(table), sentence(error, self.place)
        if _is_in(now, files, offsets):
            return
        faster = now.version() > handle.version()
        # If the object store did not answer, the files stay: the commit may appear in the log a moment after this check.
        if faster or not isinstance(told, UnreachableError):
            delete_files(self.place, table, files)
        if faster:
            raise ConflictError(
                "Another export was faster: nothing of this batch is in the lake; the next run continues from there."
            ) from error
        raise told from error

    def dataset(self, table: str, *, days: Iterable[date] | None = None) -> ds.Dataset:
        """The table, or only some `days`, for readers of Arrow (DuckDB, polars, pandas); raises LakeError if there is no table."""
        handle = self.opened(table)
        with sentences(self.place):
            return handle.to_pyarrow_dataset(file_pruning_predicate=None if days is None else [(DAY.name, "in", sorted(days))])

    def dataframe(
        self, spark: SparkSession, table: str, *, days: Iterable[date] | None = None, columns: Sequence[str] | None = None
    ) -> DataFrame:
        """The table in Spark; with `days` or `columns` only these are read. Raises LakeError if there is no table."""
        from relay.pipeline.lake.spark_reader import dataframe  # noqa: PLC0415 - Spark only where it is used

        handle = self.opened(table)
        root = self.place.path(self.place.table(table))
        schema = schema_of(handle)
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        return dataframe(spark, self.place, wanted, root, paths(handle, days))

    def check_files(self, table: str) -> list[str]:
        """Check that each file of the table exists with its committed size; return the files' paths, relative to the table.

        Raises:
            LakeError: the table does not exist, or a file of the table is missing or of another size.
            UnreachableError: the object store does not answer.
        """
        committed = {file.path: file.size for file in files(self.opened(table))}
        found = sizes(self.place, table)
        if wrong := sorted(path for path, size in committed.items() if found.get(path) != size):
            raise LakeError(
                f"Of {len(committed)} files of the table {table} in {self.place.url} {len(wrong)} are missing or of another size than they"
                f" were written with, {wrong[0]} among them: put them back from a copy."
            )
        return list(committed)

    def removed_files(self, table: str) -> frozenset[str]:
        """The paths of files that commits have removed from the table and its log still names; raises LakeError if there is no table."""
        handle = self.opened(table)
        with sentences(self.place):
            return frozenset(handle.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False))

    def days(self, table: str) -> list[date]:
        """The days that have files, oldest first; an empty list if there is no table."""
        if (handle := self.open(table)) is None:
            return []
        return sorted({date.fromisoformat(each[DAY.name]) for each in handle.partitions()})


def _write(
    handle: DeltaTable,
    actions: Sequence[AddAction | RemoveAction],
    offsets: Sequence[Offset],
    *,
    alone: bool,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Commit. With `alone`, the commit succeeds only if it becomes the next version after the handle's.

    The library itself does not refuse a commit that removes files which another commit has already removed.
    """
    handle.create_write_transaction(
        list(actions),
        "append",
        handle.schema(),
        [DAY.name] if handle.metadata().partition_columns else None,
        commit_properties=CommitProperties(
            custom_metadata=dict(metadata or {}),
            app_transactions=[Transaction(*offset) for offset in offsets] or None,
            max_commit_retries=0 if alone else None,
        ),
    )


def _is_in(handle: DeltaTable, files: Sequence[DataFile], offsets: Sequence[Offset]) -> bool:
    """Whether a commit is in the table, judged by its files. A commit without files is judged by its offsets: its epoch is unique."""
    if files:
        return {file.path for file in files} <= set(paths(handle))
    return bool(offsets) and all(handle.transaction_version(name) == version for name, version in offsets)


def schema_of(handle: DeltaTable) -> pa.Schema:
    """The table's schema in Arrow's own types."""
    return pa.schema(handle.schema().to_arrow())
