"""The numbers in the lake: the tables stats_window, stats_hour and stats_day. Each write replaces whole days."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from relay.errors import ConflictError, LakeError
from relay.pipeline.lake.data_files import scanning
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files_by_day
from relay.pipeline.lake.errors import sentence, sentences
from relay.pipeline.metrics import aggregate as stats
from relay.pipeline.metrics.file_choice import Base, DayTotals
from relay.pipeline.source.columns import DAY

APPLICATION = "outbox-relay/metrics"
"""Application id of a transaction in each table's log; its number is the version of the table `archive` that was last computed."""
SCHEMA = stats.SCHEMA.append(DAY)
_GRAINS = ("window", "hour", "day")
_FASTER = "Another run of the metrics was faster: the next one computes what is left."


def numbers_by_day(lake: Lake) -> dict[date, DayTotals]:
    """The totals of each day from the table of days; empty if one of the tables is missing. Raises the same errors as `Lake.open`."""
    *others, handle = (lake.open(_table(grain)) for grain in _GRAINS)
    if handle is None or None in others:
        return {}
    found = _scanned(lake, "day", handle, [*stats.RESULTS, DAY.name])
    counted = pa.table({DAY.name: found[DAY.name], "messages": stats.messages(found)}).group_by(DAY.name).aggregate([("messages", "sum")])
    written = {day: min(file.written for file in files if file.written) for day, files in files_by_day(handle).items()}
    pairs = zip(counted[DAY.name].to_pylist(), counted["messages_sum"].to_pylist(), strict=True)
    return {day: DayTotals(messages, written[day]) for day, messages in pairs}


def bases(lake: Lake, days: Iterable[date]) -> dict[date, Base]:
    """The windows of some days, and the files of the archive's version that was last computed; empty if that version no longer exists."""
    days = sorted(days)
    handle = lake.open(_table("window")) if days else None
    if handle is None or (version := handle.transaction_version(APPLICATION)) is None:
        return {}
    try:
        archive = lake.open("archive", version)
    except LakeError:  # the log was cleaned up, or the archive was replaced
        return {}
    files = {} if archive is None else files_by_day(archive)
    return {day: Base(_read(lake, "window", handle, [day]), files.get(day, [])) for day in days}


def read(lake: Lake, grain: str, days: Iterable[date]) -> pa.Table:
    """Numbers of some days, in the order of `stats.merge`; raises the same errors as `Lake.open`."""
    return _read(lake, grain, lake.opened(_table(grain)), days)


def replace(lake: Lake, grain: str, numbers: pa.Table, days: Iterable[date], *, archive_version: int, though_equal: bool = False) -> bool:
    """Replace the numbers of these days in one commit; return whether anything was written.

    With `though_equal`, equal numbers are written again, so that the log says when they were last computed.

    Raises:
        ConflictError: another run changed the table meanwhile, or counted a later version of the archive.
        LakeError, UnreachableError: the lake cannot be written.
    """
    days = sorted(days)
    named = ", ".join(f"'{day}'" for day in days)
    handle = lake.open(_table(grain)) or lake.create(_table(grain), SCHEMA)
    if archive_version < (handle.transaction_version(APPLICATION) or 0) <= _newest(lake):
        raise ConflictError(_FASTER)
    if not though_equal and _read(lake, grain, handle, days).equals(numbers):
        return False
    try:
        # The handle is the one whose numbers were compared, so any commit since then makes this commit fail.
        write_deltalake(
            handle,
            numbers.append_column(DAY, numbers["start"].cast(pa.timestamp("us")).cast(DAY.type)),
            mode="overwrite",
            predicate=f"{DAY.name} IN ({named})",
            commit_properties=CommitProperties(app_transactions=[Transaction(APPLICATION, archive_version)]),
        )
    except CommitFailedError as error:
        raise ConflictError(_FASTER) from error
    except (DeltaError, OSError) as error:
        raise sentence(error, lake.place) from error
    return True


def _newest(lake: Lake) -> int:
    """The archive's current version. A recreated archive counts from 0 again, so its version says nothing about earlier numbers."""
    archive = lake.open("archive")
    return 0 if archive is None else archive.version()


def _table(grain: str) -> str:
    return f"stats_{grain}"


def _read(lake: Lake, grain: str, handle: DeltaTable, days: Iterable[date]) -> pa.Table:
    found = _scanned(lake, grain, handle, stats.SCHEMA.names, days).cast(stats.SCHEMA)
    return found.take(pc.sort_indices(found, sort_keys=[(name, "ascending") for name in stats.KEY])).combine_chunks()


def _scanned(lake: Lake, grain: str, handle: DeltaTable, columns: list[str], days: Iterable[date] | None = None) -> pa.Table:
    """Columns of a table, of all days or only of `days`; DamagedError names a file that cannot be read."""
    with sentences(lake.place):
        chosen = handle.to_pyarrow_dataset(file_pruning_predicate=None if days is None else [(DAY.name, "in", sorted(days))])
    with scanning(lake.place, _table(grain), chosen.files):
        return chosen.to_table(columns=columns)
