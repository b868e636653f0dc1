"""Prepares the lake's table for an export: the table must exist, belong to this cluster, and have every column of the archive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Transaction
from deltalake.exceptions import DeltaError

from relay.errors import ConflictError, LakeError, PipelineError
from relay.pipeline.lake import added_columns
from relay.pipeline.lake import epoch as link
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_lake import schema_of as schema_of_table
from relay.pipeline.lake.epoch import EPOCH, LakeEpoch, offset_of
from relay.pipeline.lake.errors import sentence, sentences
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.cluster import Cluster
from relay.pipeline.source.columns import NOT_NULL, TABLE, ArchiveColumn, check_names, schema_of
from relay.pipeline.source.database import Database

MARGIN = 1_000_000
"""How many transactions are read again after a change of timeline; after any other change everything is read again."""


@dataclass(frozen=True)
class Prepared:
    """What an export needs to know of its table.

    `columns` are the archive's and `names` those of both sides. `begin` is where an adoption begins to read, instead of the table's offset.
    `adopted` names the differences that an adoption has found.
    """

    columns: Sequence[ArchiveColumn]
    names: frozenset[str]
    begin: int | None = None
    adopted: tuple[str, ...] = ()


def check_lake(handle: DeltaTable | None, cluster: Cluster, known: LakeEpoch, url: str) -> tuple[tuple[str, ...], PipelineError | None]:
    """How a lake differs from the one that this server exports to, and the error about it; `()` and None if there is no difference.

    Raises:
        LakeError: the relay did not make the table.
    """
    if handle is not None:
        properties = {name: str(value) for name, value in handle.metadata().configuration.items()}
        clusters.check_form(properties)
        if found := clusters.differences(properties, cluster) or clusters.gone_back(offset_of(handle), cluster):
            return tuple(found), clusters.refusal(found)
    why = link.contradiction(known, handle)
    return ((why,), link.refusal(why, known, url, handle)) if why else ((), None)


def refuse_foreign(lake: Lake, database: Database) -> None:
    """Refuse a lake that follows the archive of another cluster, database or schema.

    After a promotion the lake may still be read. A lake that no export made has no origin, and is not refused.

    Raises:
        PipelineError: the lake is another archive's.
        LakeError: the lake cannot be read.
        UnreachableError: PostgreSQL or the object store does not answer.
    """
    if (handle := lake.open(TABLE)) is None:
        return
    properties = {name: str(value) for name, value in handle.metadata().configuration.items()}
    differing = clusters.differences(properties, clusters.read(database))
    if found := {name: pair for name, pair in differing.items() if name != "timeline" and pair[0] != clusters.UNKNOWN}:
        raise clusters.refusal(found)


def linked(lake: Lake, database: Database) -> tuple[DeltaTable, LakeEpoch]:
    """The current table and PostgreSQL's link, which must match; a commit that was cut short is completed first.

    Raises:
        PipelineError: this server exports to another lake, or the lake follows another server; PostgreSQL records the error.
        LakeError: there is no table, or the relay did not make it.
    """
    handle, known = link.both(lake, database)
    _, error = check_lake(handle, clusters.read(database), known, lake.place.url)
    if error:
        raise link.distrust(database, error)
    return (handle, link.settle(database, handle, known)) if handle else (lake.opened(TABLE), known)


def prepare(
    lake: Lake,
    handle: DeltaTable | None,
    known: LakeEpoch,
    columns: Sequence[ArchiveColumn],
    cluster: Cluster,
    *,
    adopted: tuple[str, ...] = (),
) -> Prepared:
    """Create the table if it is missing. Otherwise check that it matches the archive, and add missing columns; a mismatch changes nothing.

    `handle` was loaded before the cluster was queried. `known` is what PostgreSQL knows of the lake. `adopted` names the differences
    between the lake and this server.

    Raises:
        LakeError: a column has another type.
        ConflictError: another export made the table at the same moment.
    """
    if handle is None:
        schema = schema_of(columns)
        lake.create(TABLE, schema, properties={**cluster.properties, **added_columns.properties(columns)})
        return Prepared(columns, frozenset(schema.names))
    _evolve(lake, handle, columns)
    added_columns.note(lake, TABLE, columns)
    names = frozenset([*schema_of_table(handle).names, *(column.name for column in columns)])
    return Prepared(columns, names, _begin(adopted, handle, known, cluster) if adopted else None, adopted)


def _begin(found: Iterable[str], handle: DeltaTable, known: LakeEpoch, cluster: Cluster) -> int:
    """The transaction from which an adoption reads again.

    Transaction ids of another cluster cannot be compared, so everything is read again. After a promotion only the last few transactions can
    differ.

    A restore to a point in time also begins a new timeline. More transactions than the margin may then be lost, and the lake's offset may
    lie above all existing ids. A copy of this server may have exported to the lake before the promotion, so only this server's own exports
    count.
    """
    offset = offset_of(handle)
    if set(found) != {"timeline"} or offset - cluster.next > MARGIN or known.lake != str(handle.metadata().id):
        return 0
    return max(0, min(offset, known.offset, cluster.next) - MARGIN)


def announce(lake: Lake, cluster: Cluster) -> None:
    """Mark the lake as following no server, until `take_over`.

    The lake's offset may come from either cluster, so neither may continue from this offset without a check.
    """
    with sentences(lake.place):
        lake.opened(TABLE).alter.set_table_properties(clusters.unfinished(cluster), raise_if_not_exists=False)


def tie(lake: Lake, database: Database, cluster: Cluster, prepared: Prepared) -> None:
    """Complete a commit that was cut short; then give the lake an epoch if PostgreSQL has none.

    Raises:
        ConflictError: another export was faster.
    """
    handle, known = link.both(lake, database)
    if handle is None or link.settle(database, handle, known).epoch is not None:
        return
    properties = clusters.unfinished(cluster) if prepared.adopted else cluster.properties
    commit = CommitProperties(app_transactions=[Transaction(EPOCH, link.begin(database, handle, None))])
    try:
        handle.alter.set_table_properties(properties, raise_if_not_exists=False, commit_properties=commit)
    except (DeltaError, OSError) as error:
        if lake.opened(TABLE).version() > handle.version():
            raise ConflictError("Another export was faster: the next run continues from there.") from error
        raise sentence(error, lake.place) from error


def take_over(lake: Lake, cluster: Cluster) -> None:
    """Make the lake follow this cluster and timeline from now on."""
    with sentences(lake.place):
        lake.opened(TABLE).alter.set_table_properties(cluster.properties, raise_if_not_exists=False)


def _evolve(lake: Lake, handle: DeltaTable, columns: Sequence[ArchiveColumn]) -> None:
    """Add new columns of the archive.

    Raises LakeError if a column has another type in the lake, or if two names differ only in case.
    """
    known = {field.name: field.type for field in schema_of_table(handle)}
    check_names(columns, known)
    wrong = [column.name for column in columns if known.get(column.name, column.field.type) != column.field.type]
    if wrong or not known.keys() >= NOT_NULL:
        what = f"column {wrong[0]} has another type" if wrong else f"it lacks one of {', '.join(sorted(NOT_NULL))}"
        raise LakeError(f"The lake's table {TABLE} is of another schema than the archive ({what}): name a new RELAY_LAKE_URL.")
    if missing := [column for column in columns if column.name not in known]:
        _add(lake, handle, missing)


def _add(lake: Lake, handle: DeltaTable, missing: Sequence[ArchiveColumn]) -> None:
    fields = [Field.from_arrow(pa.field(column.name, column.field.type)) for column in missing]
    try:
        handle.alter.add_columns(fields)
    except (DeltaError, OSError) as error:
        # Another export may have added them meanwhile.
        if not {column.name for column in missing} <= set(schema_of_table(lake.opened(TABLE)).names):
            raise sentence(error, lake.place) from error


def check_prepared(handle: DeltaTable, cluster: Cluster, prepared: Prepared) -> None:
    """Check before each batch that the table has not changed since it was prepared.

    A commit itself detects only changes that were made after its handle was loaded.

    Raises:
        ConflictError: another export has adopted the table, so its offset belongs to another server or was moved back. Or the table has a
            new column, which would be null in rows that are read without it.
    """
    wanted = clusters.unfinished(cluster) if prepared.adopted else cluster.properties
    if not wanted.items() <= {name: str(value) for name, value in handle.metadata().configuration.items()}.items():
        raise ConflictError("Another export has adopted the lake meanwhile: the next run continues from there, or says what to do.")
    if not set(schema_of_table(handle).names) <= prepared.names:
        raise ConflictError("Another export was faster, and added a column: the next run continues from there.")


def check_same(before: Cluster, now: Cluster) -> None:
    """Raise PipelineError if the server is no longer the one at the beginning, for example after a failover."""
    if (before.system_identifier, before.timeline, before.database) != (now.system_identifier, now.timeline, now.database):
        raise PipelineError(
            "PostgreSQL was replaced by another server during this export: nothing of this batch is in the lake; run it again."
        )
