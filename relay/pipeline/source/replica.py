"""A standby from which rows are read instead of the primary. An export ends at the last transaction that the standby has."""

from __future__ import annotations

from dataclasses import dataclass

from relay.errors import PipelineError
from relay.pipeline.source import cluster as clusters
from relay.pipeline.source.cluster import Cluster
from relay.pipeline.source.database import Database


@dataclass(frozen=True)
class Replica:
    """The current state of a standby. It has all rows that transactions below `safe` have archived, and no such row will be added."""

    database: Database
    safe: int
    behind_bytes: int
    paused: bool

    def __str__(self) -> str:
        """How far the standby is behind the primary."""
        behind = f"{self.behind_bytes:,} bytes of log behind the primary" if self.behind_bytes else "level with the primary"
        return f"rows are read from the replica, which is {behind}" + (", and its replay is paused" if self.paused else "")


def read(database: Database, primary: Cluster) -> Replica | None:
    """The replica that the settings name; None if they name no replica.

    Raises:
        PipelineError: the replica is not a standby of this primary.
        UnreachableError: the replica or the primary does not answer.
    """
    if (replica := database.replica) is None:
        return None
    (position,) = database.one("read_log_position")
    found = clusters.read(replica)
    if not found.standby:
        raise PipelineError("RELAY_PIPELINE_REPLICA_URL names no standby: name one, or leave it out.")
    if _server(found) != _server(primary):
        raise PipelineError("RELAY_PIPELINE_REPLICA_URL names a standby of another server than RELAY_PIPELINE_DATABASE_URL: correct one.")
    behind, paused = replica.one("read_replay", {"position": position})
    return Replica(replica, found.safe, max(behind, 0), paused)


def _server(cluster: Cluster) -> tuple[str, int, str]:
    return cluster.system_identifier, cluster.timeline, cluster.database
