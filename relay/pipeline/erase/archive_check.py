"""PostgreSQL's side of an erasure: checks that the contents were erased in the archive before they are erased in the lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from relay.errors import PipelineError
from relay.message import ERASED, Position
from relay.pipeline.erase.chosen import DETAILS, ChosenMessages, with_contents
from relay.pipeline.id_places import IdPlaces, refuse_shared
from relay.pipeline.source.database import Database, TooLongError
from relay.pipeline.source.ranges import BEYOND, STEP, ExportBatch, batch_of
from relay.pipeline.text import many, some

_ROWS = 250_000
"""The number of rows that one statement searches for ordering keys, because no index has them.

After a statement that took too long, the number is divided by four.
"""
_IDS = 1_000
"""How many ids one statement looks up by an index."""
_SCHEMA = DETAILS.append(pa.field("ordering_key", pa.string()))
"""The columns of `list_chosen`."""


@dataclass
class ArchiveCheck:
    """Finds the chosen messages in PostgreSQL's archive, by statements that hold a snapshot only briefly."""

    database: Database
    places: IdPlaces = field(default_factory=IdPlaces)
    _asked: set[str] = field(default_factory=set)
    _keyed: list[str] = field(default_factory=list)
    """Ids of messages with one of the keys. These messages were not erased, because an erased message has no key."""
    _left: dict[Position, str] = field(default_factory=dict)
    """Ids of other chosen messages with contents."""

    def begin(self, chosen: ChosenMessages) -> ChosenMessages:
        """Search the whole archive for the keys and ids; return the chosen messages with those that they lead to in the archive.

        Raises:
            PipelineError: the archive still has contents of some of them, several messages have one of the ids, or PostgreSQL refused.
            UnreachableError: PostgreSQL does not answer.
        """
        self._keyed += self._with_keys(chosen.keys)
        found = self.follow(chosen)
        self.refuse()
        return found

    def follow(self, chosen: ChosenMessages) -> ChosenMessages:
        """Look up the chosen ids that were not looked up before; return the chosen messages with those that they lead to in the archive.

        The errors of PostgreSQL are those of `begin`.
        """
        while todo := (chosen.ids | chosen.placed) - self._asked:
            self._asked |= todo
            for ids in _lists(todo):
                chosen = chosen.following(self._look_up(ids, chosen))
        return chosen

    def refuse(self, in_lake: IdPlaces | None = None) -> None:
        """Raise PipelineError if several messages have one of the ids, or if the archive still has contents.

        `in_lake` has the places of messages in the lake, which count as well.
        """
        self.places.update(in_lake or IdPlaces())
        if shared := self.places.shared:
            refuse_shared(shared, "erased", f"`relay show {shared[0]}` shows their places, ID@XID/SEQ names one")
        left = [*self._keyed, *self._left.values()]
        if left:
            raise PipelineError(
                f"PostgreSQL still has the contents of {many(len(left), 'chosen message')}: run `relay erase` for them first, because"
                f" a verification would differ, and an export would bring those that the lake lacks ({some(left)})."
            )

    def _look_up(self, ids: list[str], chosen: ChosenMessages) -> Iterator[str]:
        """The ids that chosen rows lead to, among the rows with one of these ids and the replays of such messages."""
        found = [
            {**dict(zip(_SCHEMA.names, row, strict=True)), "xid": int(row[1])}
            for row in self.database.fetch("list_chosen", {"ids": ids, "erased": ERASED})
        ]
        batch = pa.RecordBatch.from_pylist(found, _SCHEMA)
        rows = batch.filter(chosen.mask(batch))
        self.places.add(rows.filter(chosen.with_ids(rows)))
        left = rows.filter(pc.and_(with_contents(rows), pc.invert(chosen.with_keys(rows))))
        self._left.update({Position(row["xid"], row["seq"]): row["id"] for row in left.to_pylist()})
        return chosen.leads(rows)

    def _with_keys(self, keys: frozenset[str]) -> list[str]:
        """The ids of all messages with one of these keys, searched range by range, in the order of the index on transactions."""
        found, start, rows = list[str](), 0, _ROWS
        while keys and start < BEYOND:
            batch = self._batch(start, rows)
            values = {"low": str(batch.start), "high": str(batch.end), "keys": list(keys)}
            try:
                found += [id_ for (id_,) in self.database.fetch("list_keyed", values)]
            except TooLongError:
                if rows == STEP:
                    raise
                rows = max(STEP, rows // 4 // STEP * STEP)
            else:
                start = batch.end
        return found

    def _batch(self, start: int, rows: int) -> ExportBatch:
        values = {"start": str(start), "safe": str(BEYOND), "most": rows, "step": STEP}
        counted, before_last, marks = self.database.one("plan_batch", values)
        return batch_of(start, BEYOND, (counted, before_last, marks), rows)


def _lists(ids: Iterable[str]) -> Iterator[list[str]]:
    """The ids in lists for one statement each."""
    rest = iter(ids)
    while ids_ := list(islice(rest, _IDS)):
        yield ids_
