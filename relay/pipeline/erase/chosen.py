"""Selects the archive's rows that an erasure is about, finds what they lead to, and erases them: pure functions of Arrow batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, NamedTuple, Self
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from relay.message import BUNDLED_IN, ERASED

_TEXTS = ("replay_of", "options", "result", "error_code", "error_detail")
DETAILS = pa.schema([("id", pa.string()), ("xid", pa.uint64()), ("seq", pa.int64()), *((name, pa.string()) for name in _TEXTS)])
"""The columns from which the code reads what chosen rows lead to, and whether they were erased."""
_INSTEAD = ("bundled", "superseded")
"""Codes of discarded messages whose error text contains only the id of the message that was sent instead. An erasure keeps this text.

A handler or receiver may choose such a code for a dead message, but cannot choose the result `discarded`.
"""


class ChosenRow(NamedTuple):
    """A row that was named by its id and place."""

    id: str
    xid: int
    seq: int


@dataclass(frozen=True)
class ChosenMessages:
    """The messages of an erasure: those with one of these ids or keys, replays, and single rows. Sent to Spark's tasks, so it is small.

    Every replay has the ordering key of its message, so a search by key also finds the replays.

    Args:
        ids: canonical texts of ids that were named, or that chosen messages lead to.
        keys: ordering keys that were named.
        places: rows that were named. Their replays are not chosen: a replay does not say which of several messages with its id was
            replayed.
    """

    ids: frozenset[str]
    keys: frozenset[str] = frozenset()
    places: frozenset[ChosenRow] = frozenset()

    @classmethod
    def of(cls, ids: Iterable[str | UUID], keys: Iterable[str]) -> Self:
        """Messages with these ids, or at the place of an ID@XID/SEQ, or with these keys."""
        named = [str(each).partition("@") for each in ids]
        places = [ChosenRow(_uuid(id_), *map(int, place.split("/"))) for id_, _, place in named if place]
        return cls(frozenset(_uuid(id_) for id_, _, place in named if not place), frozenset(keys), frozenset(places))

    def following(self, ids: Iterable[str]) -> Self:
        """The same messages, with further ids that they lead to. An id that was named with a place is not added."""
        return replace(self, ids=self.ids | (frozenset(ids) - self.placed))

    @cached_property
    def placed(self) -> frozenset[str]:
        """The ids that were named with a place."""
        return frozenset(row.id for row in self.places)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide whether a row is chosen."""
        columns = {"id": self.ids | self.placed, "replay_of": self.ids, "ordering_key": self.keys, "xid": self.places, "seq": self.places}
        return tuple(name for name, given in columns.items() if given)

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """A mask of the chosen rows, erased or not."""
        found = [self.with_ids(batch), _is_in(batch, "replay_of", self._ids)] if self.ids else []
        found += [self.with_keys(batch)] if self.keys else []
        found += [self._at_places(batch)] if self.places else []
        return reduce(pc.or_, found)

    def with_ids(self, batch: pa.RecordBatch) -> pa.Array:
        """A mask of the rows with one of the ids."""
        return _is_in(batch, "id", self._ids)

    def with_keys(self, batch: pa.RecordBatch) -> pa.Array:
        """A mask of the rows with one of the keys."""
        return _is_in(batch, "ordering_key", self._keys)

    def leads(self, rows: pa.RecordBatch) -> Iterator[str]:
        """The ids of replays among the chosen rows, and of the bundles in which chosen rows were sent."""
        yield from rows.column("id").filter(_is_in(rows, "replay_of", self._ids)).to_pylist()
        for detail in rows.column("error_detail").filter(_discarded(rows, "bundled")).to_pylist():
            if part := re.fullmatch(BUNDLED_IN, detail or ""):
                yield part[1]

    def erase(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the contents of chosen rows erased; all other rows and columns are as they were."""
        rows = pc.and_(self.mask(batch), with_contents(batch))
        return erased(batch, rows) if rows.true_count else batch

    def _at_places(self, batch: pa.RecordBatch) -> pa.Array:
        near = _is_in(batch, "id", pa.array(sorted(self.placed), pa.string()))
        if not near.true_count:
            return near
        columns = (batch.column(name).to_pylist() for name in ChosenRow._fields)
        return pa.array([row in self.places for row in zip(*columns, strict=True)], pa.bool_())

    @cached_property
    def _ids(self) -> pa.Array:
        return pa.array(sorted(self.ids), pa.string())

    @cached_property
    def _keys(self) -> pa.Array:
        return pa.array(sorted(self.keys), pa.string())


def with_contents(batch: pa.RecordBatch) -> pa.Array:
    """A mask of the rows that were not erased."""
    return pc.fill_null(pc.not_equal(pc.cast(batch.column("options"), pa.string()), ERASED), True)  # noqa: FBT003 - a value


def erased(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """The batch with these rows erased in the same way as PostgreSQL erases a row.

    A `content` that is null, because the original cannot be printed, stays null.
    """
    there = pc.and_(rows, pc.is_valid(batch.column("content")))
    without_link = pc.and_(rows, pc.invert(_discarded(batch, *_INSTEAD)))
    values = {
        "content": (there, "{}"),
        "options": (rows, ERASED),
        "body": (rows, None),
        "ordering_key": (rows, None),
        "error_detail": (without_link, None),
    }
    new = {
        name: pc.if_else(which, pa.scalar(value, batch.schema.field(name).type), batch.column(name))
        for name, (which, value) in values.items()
    }
    return pa.RecordBatch.from_arrays([new.get(name, batch.column(name)) for name in batch.schema.names], schema=batch.schema)


def _discarded(batch: pa.RecordBatch, *codes: str) -> Any:
    """A mask of the rows that were discarded with one of these codes."""
    return pc.and_(_is_in(batch, "result", pa.array(["discarded"])), _is_in(batch, "error_code", pa.array(codes)))


def _uuid(text: str) -> str:
    return str(UUID(text))


def _is_in(batch: pa.RecordBatch, name: str, values: pa.Array) -> Any:
    """A mask of the rows whose column has one of these values.

    The cast is needed because another program may have written the file with another width of offsets.
    """
    return pc.is_in(pc.cast(batch.column(name), pa.string()), value_set=values)
