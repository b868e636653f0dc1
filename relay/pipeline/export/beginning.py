"""Ensures, before the first batch of an export, that the lake belongs to this server or is adopted by it."""

from __future__ import annotations

from deltalake import DeltaTable

from relay.errors import PipelineError
from relay.pipeline.lake import epoch
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.epoch import LakeEpoch, offset_of
from relay.pipeline.lake.target_table import Prepared, announce, check_lake, tie
from relay.pipeline.source.cluster import Cluster
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database


def adopted(
    lake: Lake, database: Database, handle: DeltaTable | None, known: LakeEpoch, cluster: Cluster, *, adopt: bool, new_lake: bool
) -> tuple[str, ...]:
    """Names of the differences between this server and the lake that it adopts.

    Raises PipelineError if the lake differs and `adopt` is not set.
    """
    if new_lake:
        if handle is not None and offset_of(handle):
            raise epoch.refusal("there", known, lake.place.url, handle)
        return ()
    found, error = check_lake(handle, cluster, known, lake.place.url)
    if error and not (adopt and handle):
        raise epoch.distrust(database, error)
    return found


def tie_both(lake: Lake, database: Database, cluster: Cluster, prepared: Prepared, *, new_lake: bool) -> None:
    """Record in the lake and in PostgreSQL that they belong together; during an adoption the lake follows no server."""
    if prepared.adopted:
        announce(lake, cluster)
    if prepared.adopted or new_lake:
        epoch.follow(database, lake.opened(TABLE))
    tie(lake, database, cluster, prepared)


def is_to_be_registered(database: Database) -> bool:
    """Whether the export is not registered yet.

    The check comes first, so that the export stops at a missing permission before it changes anything.
    """
    registered, allowed = database.one("may_register", {"schema": database.schema})
    if not (registered or allowed):
        raise PipelineError(
            "The pipeline's login may not register an export: let an operator run `relay config set export_registered true`."
        )
    return not registered
