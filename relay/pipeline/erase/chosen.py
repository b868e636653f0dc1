"""Which rows of the archive an erasure is about, and what becomes of them: pure functions of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Self
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from relay.message import ERASED

_NOTHING = ("body", "ordering_key")
"""Columns that are null in an erased row."""
_INSTEAD = ("bundled", "superseded")
"""Codes of messages whose error text names the message that was sent instead, and nothing else: it stays."""


@dataclass(frozen=True)
class ChosenMessages:
    """Messages with one of these ids or keys, and replays of messages with one of these ids or `origins`. Small, and travels to the tasks.

    An id may come twice. An origin is the id of one chosen message; another message with this id is not chosen by it.

    Args:
        ids: canonical texts of ids that were named.
        keys: ordering keys that were named.
        origins: ids of chosen messages, as far as they are known.
    """

    ids: frozenset[str]
    keys: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    @classmethod
    def of(cls, ids: Iterable[str | UUID], keys: Iterable[str]) -> Self:
        """Messages with these ids or keys, and their replays."""
        return cls(frozenset(str(UUID(str(each))) for each in ids), frozenset(keys))

    def with_origins(self, ids: Iterable[str]) -> Self:
        """The same messages, and replays of these ids."""
        return replace(self, origins=self.origins.union(ids))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that say whether a row is one of them."""
        return (*(["id"] if self.ids else []), *(["ordering_key"] if self.keys else []), "replay_of")

    def rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows are messages of these, erased or not."""
        return pc.or_(self.named(batch), _is_in(batch, "replay_of", self._parents))

    def named(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows are messages of these whatever is known of origins: by their own id or key, or as replay of a named id."""
        found = [_is_in(batch, "replay_of", self._ids)]
        found += [_is_in(batch, "id", self._ids)] if self.ids else []
        found += [_is_in(batch, "ordering_key", self._keys)] if self.keys else []
        return reduce(pc.or_, found)

    def unknown(self, ids: Iterable[str]) -> frozenset[str]:
        """Those ids of chosen messages whose replays are not chosen yet."""
        return frozenset(ids) - self.origins - self.ids

    @cached_property
    def _ids(self) -> pa.Array:
        return pa.array(sorted(self.ids), pa.string())

    @cached_property
    def _keys(self) -> pa.Array:
        return pa.array(sorted(self.keys), pa.string())

    @cached_property
    def _parents(self) -> pa.Array:
        return pa.array(sorted(self.ids | self.origins), pa.string())


@dataclass(frozen=True)
class Erasure:
    """Erases chosen rows of a batch. Small, and travels to the tasks.

    Args:
        chosen: the messages.
        only_found: leave out rows that are named. By their key, which an erasure takes away, another run finds their replays.
    """

    chosen: ChosenMessages
    only_found: bool = False

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the contents of chosen rows erased; all other rows and columns are as they were."""
        rows = pc.and_(self.chosen.rows(batch), with_contents(batch))
        if self.only_found:
            rows = pc.and_(rows, pc.invert(self.chosen.named(batch)))
        return erased(batch, rows) if rows.true_count else batch


def with_contents(batch: pa.RecordBatch) -> pa.Array:
    """Which rows were not erased."""
    return pc.fill_null(pc.not_equal(pc.cast(batch.column("options"), pa.string()), ERASED), True)  # noqa: FBT003 - a value


def erased(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """The batch with these rows as PostgreSQL has an erased row; a content that is null, as it cannot be printed, stays null."""
    there = pc.and_(rows, pc.is_valid(batch.column("content")))
    told = pc.and_(rows, pc.invert(_is_in(batch, "error_code", pa.array(_INSTEAD))))
    new = {
        "content": pc.if_else(there, pa.scalar("{}", batch.schema.field("content").type), batch.column("content")),
        "options": pc.if_else(rows, pa.scalar(ERASED, batch.schema.field("options").type), batch.column("options")),
        "error_detail": pc.if_else(told, pa.scalar(None, batch.schema.field("error_detail").type), batch.column("error_detail")),
        **{name: pc.if_else(rows, pa.scalar(None, batch.schema.field(name).type), batch.column(name)) for name in _NOTHING},
    }
    return pa.RecordBatch.from_arrays([new.get(name, batch.column(name)) for name in batch.schema.names], schema=batch.schema)


def _is_in(batch: pa.RecordBatch, name: str, values: pa.Array) -> Any:
    """Whether the column's value is one of these; another program may have written the file with another width of offsets."""
    return pc.is_in(pc.cast(batch.column(name), pa.string()), value_set=values)
