"""Identifies the PostgreSQL server that filled a lake: transaction ids are meaningless in another cluster or on another timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay.errors import LakeError, PipelineError
from relay.pipeline.source.columns import FORMAT, OLDER_FORMATS
from relay.pipeline.source.database import Database

_PREFIX = "outbox_relay."
_ADOPT = "if the lake is to follow this server's archive from now on, run `relay pipeline export --adopt`, otherwise correct"
_UNFINISHED = " (not yet adopted whole)"
UNKNOWN = "none"
"""The origin of a lake that no export made."""
_NAMES = {"system_identifier": "cluster", "database": "database", "schema": "schema", "timeline": "timeline"}


@dataclass(frozen=True)
class Cluster:
    """The identity of a server's archive: cluster, timeline, database and schema.

    All transactions below `safe` can be exported; `next` is the next transaction's id.
    """

    system_identifier: str
    timeline: int
    database: str
    schema: str
    safe: int
    next: int
    standby: bool

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the lake's table that say where its rows come from."""
        named = {name: str(getattr(self, name)) for name in _NAMES}
        return {f"{_PREFIX}{name}": value for name, value in {**named, "format": FORMAT}.items()}


def unfinished(cluster: Cluster) -> dict[str, str]:
    """The table's properties during an adoption. They match no cluster; an adoption that finds them reads from transaction 0."""
    return {**cluster.properties, f"{_PREFIX}system_identifier": f"{cluster.system_identifier}{_UNFINISHED}"}


def read(database: Database) -> Cluster:
    """The current state of the cluster; raises the same errors as `Database.fetch`."""
    system, timeline, name, safe, following, standby = database.one("read_cluster")
    return Cluster(system, timeline, name, database.schema, safe, following, standby)


def primary(database: Database) -> Cluster:
    """The server, which must be a primary: raises PipelineError for a standby, which cannot record the export's progress."""
    if (cluster := read(database)).standby:
        raise PipelineError("RELAY_PIPELINE_DATABASE_URL names a standby: name the primary, and the standby in RELAY_PIPELINE_REPLICA_URL.")
    return cluster


def check_form(properties: Mapping[str, str]) -> None:
    """Raise LakeError if the relay did not create the table, or if this version does not know the table's form."""
    if (form := properties.get(f"{_PREFIX}format")) not in {FORMAT, *OLDER_FORMATS}:
        what = "was not made by `relay pipeline export`" if form is None else f"is of form {form}, this version knows {FORMAT}"
        raise LakeError(f"The lake's table archive {what}: correct RELAY_LAKE_URL, or use the version that made it.")


def refuses_older(properties: Mapping[str, str]) -> bool:
    """Whether versions that know only older forms refuse the lake. They do so after the first export by this version."""
    return properties.get(f"{_PREFIX}format") == FORMAT


def differences(properties: Mapping[str, str], cluster: Cluster) -> dict[str, tuple[str, str]]:
    """The properties in which lake and server disagree about the origin of the rows: name → (lake's value, server's value)."""
    pairs = {name: (properties.get(f"{_PREFIX}{name}", UNKNOWN), cluster.properties[f"{_PREFIX}{name}"]) for name in _NAMES}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def gone_back(position: int, cluster: Cluster) -> dict[str, tuple[str, str]]:
    """A difference like those of `differences` if the lake is ahead of the server: a backup or a copy of the server's disk was restored."""
    return {"position": (str(position), str(cluster.next))} if position > cluster.next else {}


def refusal(found: Mapping[str, tuple[str, str]]) -> PipelineError:
    """The error about another cluster, timeline, database, schema or position."""
    if _is_unfinished(found):
        return _cut_short(found)
    name, (lake, server) = next(iter(found.items()))
    if name == "timeline":
        what = f"PostgreSQL is on timeline {server} and the lake on {lake}, so a standby was promoted or a backup restored"
        return PipelineError(f"{what}: {_ADOPT} RELAY_PIPELINE_DATABASE_URL.")
    if name == "position":
        what = f"The lake is at transaction {lake} and PostgreSQL only at {server}, so a backup or a copy of its disk was restored"
        return PipelineError(f"{what}: {_ADOPT} RELAY_LAKE_URL or RELAY_PIPELINE_DATABASE_URL.")
    what = f"The lake holds the archive of {_NAMES[name]} {lake}, and this is {_NAMES[name]} {server}"
    return PipelineError(f"{what}: {_ADOPT} RELAY_LAKE_URL or RELAY_PIPELINE_DATABASE_URL.")


def _is_unfinished(found: Mapping[str, tuple[str, str]]) -> bool:
    return found.get("system_identifier", ("", ""))[0].endswith(_UNFINISHED)


def _cut_short(found: Mapping[str, tuple[str, str]]) -> PipelineError:
    """The error about an unfinished adoption; it names the archive that began the adoption, this one or another."""
    pairs = {name: (lake.removesuffix(_UNFINISHED), server) for name, (lake, server) in found.items()}
    other = [f"{_NAMES[name]} {lake} (this is {server})" for name, (lake, server) in pairs.items() if lake != server]
    if not other:
        return PipelineError("An adoption of the lake by this archive was cut short: run `relay pipeline export --adopt` again.")
    what = f"An adoption of the lake by the archive of {', '.join(other)} was cut short"
    return PipelineError(f"{what}: run it again there; {_ADOPT} RELAY_LAKE_URL or RELAY_PIPELINE_DATABASE_URL.")
