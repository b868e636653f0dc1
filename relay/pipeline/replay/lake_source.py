"""The lake's side of a replay: finds a selection's messages without contents, then reads them piece by piece in the order of archiving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from relay.errors import LakeError
from relay.pipeline.id_places import IdPlaces
from relay.pipeline.lake.data_files import scanning
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.replay.selection import Selection

COLUMNS = ("xid", "seq", "id", "exchange", "routing_key", "content", "body", "options", "ordering_key", "expires_at")
PIECE = 10_000
"""The most messages that are read at once."""
PIECE_BYTES = 32 << 20
"""The most bytes of contents that are read at once; a larger message is read alone."""
_GENTLE = ds.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
"""Options with which Arrow does not keep contents of neighbouring rows in memory."""
_ROWS, _FEW = 8192, 512
"""The most rows that are decoded together: usually, and in a large row group, where several wide rows may be neighbours."""
Position = tuple[int, int]


class LakeSource:
    """The messages of a selection in one version of the lake, without those that a job has already enqueued.

    Args:
        place: root of the lake, named in errors.
        dataset: the version of the archive, from which messages are found and then read.
        found: `xid`, `seq`, `archived_at`, `size`, `exchange`, `result` of each message, in the order of archiving.
        done_before: how many messages were left out because the job has already replayed them.
        missing: ids that the selection names, but that no message of the selection has.
        shared: ids that the selection names, and that several messages have, not counting replays.
    """

    def __init__(
        self, place: LakeLocation, dataset: ds.Dataset, found: pa.Table, done_before: int, *, missing: list[str], shared: list[str]
    ) -> None:
        self._place = place
        self._dataset = dataset
        self._places = found
        self.found = found.num_rows
        self.done_before = done_before
        self.missing = missing
        self.shared = shared

    @classmethod
    def of(cls, lake: Lake, selection: Selection, *, done: Collection[Position], made: Collection[str], dry_run: bool) -> LakeSource:
        """Find a selection's messages, without those of `done` and those that the job has `made`; a dry run does not read their sizes.

        Raises:
            LakeError: there is no archive, or it cannot be read.
            UnreachableError: the object store does not answer.
        """
        dataset = lake.dataset("archive", days=selection.days(lake.days("archive")))
        columns = {name: pc.field(name) for name in ("xid", "seq", "id", "replay_of", "archived_at", "archived_xid", "exchange", "result")}
        columns["size"] = pc.scalar(0) if dry_run else _length("content") + _length("body") + _length("options")
        batches, done_before, places = [], 0, IdPlaces()
        with scanning(lake.place, "archive", dataset.files):
            for batch in _batches(dataset, columns, selection.expression()):
                if selection.ids:
                    places.add(batch)
                others = _others(batch, made)
                left = _without(others, done)
                done_before += others.num_rows - left.num_rows
                batches.append(left.drop_columns(["id", "replay_of"]))
        schema = pa.schema([field for field in dataset.scanner(columns=columns).projected_schema if field.name not in {"id", "replay_of"}])
        found = pa.Table.from_batches(batches, schema).sort_by([(name, "ascending") for name in _ORDER])
        missing = sorted({each.lower() for each in selection.ids} - places.places.keys())
        return cls(lake.place, dataset, found, done_before, missing=missing, shared=places.shared)

    def counts(self, most: int) -> Counter[tuple[str, str]]:
        """Messages by exchange and result among the first `most`."""
        grouped = self._places.slice(0, most).group_by(["exchange", "result"]).aggregate([([], "count_all")]).to_pylist()
        return Counter({(row["exchange"], row["result"]): row["count_all"] for row in grouped})

    def rows(self, wanted: int) -> Iterator[dict[str, Any]]:
        """All messages with their contents, in order; raises the same errors as `of`.

        If the caller uses only `wanted` messages, few more are read.
        """
        for piece in _pieces(self._places, wanted):
            yield from self._read(piece)

    def _read(self, piece: pa.Table) -> list[dict[str, Any]]:
        places = {position: number for number, position in enumerate(_positions(piece))}
        rows: dict[int, dict[str, Any]] = {}
        with scanning(self._place, "archive", self._dataset.files):
            for batch in _batches(self._dataset, {name: pc.field(name) for name in COLUMNS}, _around(piece)):
                mine = [number for number, position in enumerate(_positions(batch)) if position in places]
                for row in batch.take(pa.array(mine, pa.int64())).to_pylist():
                    rows[places[row["xid"], row["seq"]]] = row
        if len(rows) != len(places):
            raise LakeError("Messages went out of the lake while they were read: run this again.")
        return [rows[number] for number in sorted(rows)]


_ORDER = ("archived_at", "archived_xid", "xid", "seq")
"""The order of archiving, in which messages of a key keep their order. Times can be compared across clusters, transaction ids cannot."""


def _batches(dataset: ds.Dataset, columns: Mapping[str, pc.Expression], chosen: pc.Expression) -> Iterator[pa.RecordBatch]:
    """The chosen rows, one row group after another: a scan of several groups would read ahead many rows, and a row may have 128 MB.

    Within a group, the average size of a row decides how many rows are read together. If the group is larger than an exported group, the
    number is smaller.
    """
    for file in dataset.get_fragments(chosen):
        for fragment in file.split_by_row_group(chosen, dataset.schema):
            [group] = fragment.row_groups
            most = _ROWS if group.total_byte_size <= PIECE_BYTES else _FEW
            average = max(1, group.total_byte_size // max(1, group.num_rows))
            scanner = fragment.scanner(
                dataset.schema, columns=dict(columns), filter=chosen, batch_size=max(1, min(most, PIECE_BYTES // average)),
                batch_readahead=1, fragment_readahead=1, fragment_scan_options=_GENTLE,
            )  # fmt: skip
            yield from scanner.to_batches()


def _length(column: str) -> pc.Expression:
    return pc.coalesce(pc.binary_length(pc.field(column)), 0)


def _positions(batch: pa.RecordBatch | pa.Table) -> Iterator[Position]:
    return zip(batch["xid"].to_pylist(), batch["seq"].to_pylist(), strict=True)


def _others(batch: pa.RecordBatch, made: Collection[str]) -> pa.RecordBatch:
    """The messages that the job has not made.

    If replays keep ids, `made` also has the ids of the original messages; only a replay has a `replay_of`.
    """
    if not made:
        return batch
    pairs = zip(batch["id"].to_pylist(), batch["replay_of"].to_pylist(), strict=True)
    return batch.filter(pa.array([origin is None or id_ not in made for id_, origin in pairs], pa.bool_()))


def _without(batch: pa.RecordBatch, done: Collection[Position]) -> pa.RecordBatch:
    if not done:
        return batch
    return batch.filter(pa.array([position not in done for position in _positions(batch)], pa.bool_()))


def _pieces(places: pa.Table, first: int) -> Iterator[pa.Table]:
    """Pieces that fit into memory.

    The first piece has about as many rows as the caller wants. Each further piece may have twice as many rows as the last.
    """
    start, most = 0, max(1, min(first, PIECE))
    while start < places.num_rows:
        sizes = accumulate(places["size"].slice(start, most).to_pylist())
        piece = places.slice(start, max(1, sum(size <= PIECE_BYTES for size in sizes)))
        yield piece
        start, most = start + piece.num_rows, min(2 * most, PIECE)


def _around(piece: pa.Table) -> pc.Expression:
    """A filter that selects the files and row groups of a piece; a few other rows may also pass the filter."""
    between = None
    for name in ("archived_at", "xid", "seq"):
        ends = pc.min_max(piece[name])
        inside = (pc.field(name) >= ends["min"]) & (pc.field(name) <= ends["max"])
        between = inside if between is None else between & inside
    return between
