"""The numbers in the lake: tables stats_window, stats_hour and stats_day, each replaced by whole days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from relay.errors import ConflictError
from relay.pipeline import stats
from relay.pipeline.archive import DAY
from relay.pipeline.lake import Lake
from relay.pipeline.lake_errors import sentence, sentences
from relay.pipeline.lake_log import files

APPLICATION = "outbox-relay/metrics"
"""Its transaction in each table's log: the version of the table `archive` that was last computed."""
SCHEMA = stats.SCHEMA.append(DAY)
_FASTER = "Another run of the metrics was faster: the next one computes what is left."


def rows_by_day(archive: DeltaTable) -> dict[date, int]:
    """How many rows each day of the archive has, from the log alone."""
    rows: Counter[date] = Counter()
    for file in files(archive):
        if file.day is not None:
            rows[file.day] += file.rows
    return dict(rows)


def messages_by_day(lake: Lake) -> dict[date, int]:
    """How many messages the numbers of each day count; none where nothing was computed yet. Errors as `Lake.open`."""
    if lake.open(_table("day")) is None:
        return {}
    found = lake.dataset(_table("day")).to_table(columns=[*stats.RESULTS, DAY.name])
    counted = pa.table({DAY.name: found[DAY.name], "messages": stats.messages(found)}).group_by(DAY.name).aggregate([("messages", "sum")])
    return dict(zip(counted[DAY.name].to_pylist(), counted["messages_sum"].to_pylist(), strict=True))


def read(lake: Lake, grain: str, days: Iterable[date]) -> pa.Table:
    """Numbers of some days, in the order of `stats.merge`; errors as `Lake.open`."""
    return _read(lake.opened(_table(grain)), days)


def replace(lake: Lake, grain: str, numbers: pa.Table, days: Iterable[date], *, archive_version: int) -> bool:
    """Make the numbers those of the days, in one commit; whether there was something to change.

    Raises:
        ConflictError: another run changed the table meanwhile, or counted a later version of the archive.
        LakeError, UnreachableError: the lake cannot be written.
    """
    days = sorted(days)
    named = ", ".join(f"'{day}'" for day in days)
    handle = lake.open(_table(grain)) or lake.create(_table(grain), SCHEMA)
    if archive_version < (handle.transaction_version(APPLICATION) or 0) <= _newest(lake):
        raise ConflictError(_FASTER)
    with sentences(lake.place):
        if _read(handle, days).equals(numbers):
            return False
    try:
        # The handle is the one that was compared: whoever committed since then makes this one fail.
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
    """Version of the archive now; one that was made anew counts from 0 again, and says nothing of numbers from before."""
    archive = lake.open("archive")
    return 0 if archive is None else archive.version()


def _table(grain: str) -> str:
    return f"stats_{grain}"


def _read(handle: DeltaTable, days: Iterable[date]) -> pa.Table:
    chosen = handle.to_pyarrow_dataset(file_pruning_predicate=[(DAY.name, "in", sorted(days))])
    found = chosen.to_table(columns=stats.SCHEMA.names).cast(stats.SCHEMA)
    return found.take(pc.sort_indices(found, sort_keys=[(name, "ascending") for name in stats.KEY])).combine_chunks()
