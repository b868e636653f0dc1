"""Partitions of the archive on both sides: their sums and, where those differ, their rows; by SQL here, by Arrow there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from psycopg import IsolationLevel

from relay.pipeline.archive import INSTANT, Column
from relay.pipeline.checksum import MASK, Sum, Sums, add_up, digest_expression, digests
from relay.pipeline.database import Database
from relay.pipeline.lake import Lake
from relay.pipeline.lake_errors import sentences

DEAD = "queue_message_dead"
_DAILY, _REJECTED = ("success", "discarded"), ("rejected", "failed", "lock_expired")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH_BYTES, _BATCH_ROWS = 32 << 20, 8192
"""What is held of the lake at a time: contents and bodies may be of megabytes."""
_GENTLE = ds.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True, buffer_size=1 << 20)
"""Else Arrow holds whole files in memory."""

Digests = Counter[tuple[int, int, int]]
"""xid, seq and digest of rows."""


@dataclass(frozen=True)
class Partition:
    """A partition by its table's name, with the results and the times (UTC, both included; None is no bound) that belong to it."""

    name: str
    results: tuple[str, ...]
    since: datetime | None
    last: datetime | None

    @classmethod
    def of_day(cls, name: str, day: date) -> Partition:
        """One day of the archive."""
        since = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return cls(name, _DAILY, since, since + timedelta(days=1, microseconds=-1))

    @classmethod
    def of_dead(cls, since: int | None) -> Partition:
        """The dead messages that were archived at `since` or later, in microseconds since 1970; None for all of them."""
        return cls(DEAD, _REJECTED, None if since is None else _EPOCH + timedelta(microseconds=since), None)

    def touches(self, day: date) -> bool:
        """Whether rows of this UTC day may belong to it."""
        return (self.since is None or self.since.date() <= day) and (self.last is None or day <= self.last.date())

    def values(self) -> dict[str, object]:
        """Parameters of the statements on it. Without a bound infinite times are seen too, and found to differ."""
        return {"results": list(self.results), "since": self.since or "-infinity", "last": self.last or "infinity"}

    def condition(self) -> ds.Expression:
        """Its rows in the lake."""
        found = ds.field("result").isin(self.results)
        if self.since is not None:
            found &= ds.field("archived_at") >= pa.scalar(self.since, INSTANT)
        return found if self.last is None else found & (ds.field("archived_at") <= pa.scalar(self.last, INSTANT))


class Sides:
    """PostgreSQL and the lake, below one transaction: nothing that is archived later is seen on either side.

    Rows with ids of the future came with another cluster's dump. The export took all of them when it began, so they are seen.
    """

    def __init__(self, database: Database, lake: Lake, *, below: int, columns: Sequence[Column]) -> None:
        self._database = database
        self._lake = lake
        self._below = below
        self._columns = columns
        self._days = lake.days("archive")
        self._digest = digest_expression(columns).as_string(None).replace("%", "%%").encode()

    def sums(self, partition: Partition) -> tuple[Sums, Sums]:
        """Rows and checksums by bucket, here and there, both at work at once; errors as `Database.fetch` and `Lake.dataset`."""
        with self._snapshot() as following, ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self._rows, "sum_rows", partition)
            with self._cancelled():
                theirs = add_up(self._batches(partition, following), self._columns)
                return {bucket: Sum(rows, int(checksum)) for bucket, rows, checksum in asked.result()}, theirs

    def digests(self, partition: Partition, buckets: Sequence[int]) -> tuple[Digests, Digests]:
        """The rows of some buckets, here and there; errors as `sums`."""
        with self._snapshot() as following:
            found = self._rows("list_digests", partition, buckets=list(buckets))
        ours: Digests = Counter((xid, seq, digest) for xid, seq, digest in found)
        theirs: Digests = Counter()
        wanted = pa.array(buckets, pa.int64())
        for batch in self._batches(partition, following):
            chosen = batch.filter(pc.is_in(pc.bit_wise_and(batch.column("seq"), MASK), value_set=wanted))
            identities = (chosen.column(name).to_pylist() for name in ("xid", "seq"))
            theirs.update(zip(*identities, digests(chosen, self._columns), strict=True))
        return ours, theirs

    @contextmanager
    def _cancelled(self) -> Iterator[None]:
        """After an interrupt, or an error of the lake's, nobody waits for a statement whose answer nobody wants."""
        try:
            yield
        except BaseException:
            with self._database.connection() as connection:
                connection.cancel()
            raise

    @contextmanager
    def _snapshot(self) -> Iterator[int]:
        """A transaction whose statements all see the same; yields the id of the next transaction as it has it."""
        with self._database.connection() as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            try:
                with connection.transaction():
                    [(following,)] = connection.execute(self._database.statement("read_next")).fetchall()
                    yield int(following)
            finally:
                if not connection.closed:
                    connection.isolation_level = None

    def _rows(self, name: str, partition: Partition, **more: object) -> list[tuple[Any, ...]]:
        """A statement of this partition's, with the digest's expression in its place."""
        values = {**partition.values(), "below": str(self._below), "mask": MASK, **more}
        statement = self._database.statement(name).replace(b"@digest@", self._digest)
        with self._database.connection() as connection:
            return connection.execute(statement, values).fetchall()

    def _batches(self, partition: Partition, following: int) -> Iterator[pa.RecordBatch]:
        """The partition's rows in the lake, a bounded number of bytes at a time."""
        position = ds.field("archived_xid")
        dataset = self._lake.dataset("archive", days=[day for day in self._days if partition.touches(day)])
        chosen = partition.condition() & ((position < self._below) | (position >= following))
        with sentences(self._lake.place):
            for fragment in dataset.get_fragments():
                yield from fragment.to_batches(
                    schema=dataset.schema,
                    columns=[column.name for column in self._columns if column.name in dataset.schema.names],
                    filter=chosen,
                    batch_size=_batch_rows(fragment),
                    batch_readahead=0,
                    fragment_scan_options=_GENTLE,
                )


def _batch_rows(fragment: ds.ParquetFileFragment) -> int:
    """Rows of which a batch of this file is about as large as is held at a time."""
    groups = [fragment.metadata.row_group(number) for number in range(fragment.metadata.num_row_groups)]
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(widest, 1)))
