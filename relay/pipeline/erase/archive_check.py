"""PostgreSQL's side of an erasure: what is erased in the lake must be erased in the archive first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from relay.errors import PipelineError
from relay.message import ERASED, SHOWN
from relay.pipeline.erase.chosen import ChosenMessages
from relay.pipeline.source.database import Database, TooLongError
from relay.pipeline.source.ranges import BEYOND, STEP, ExportBatch, batch_of
from relay.pipeline.text import many

_ROWS = 250_000
"""How many rows one statement searches for keys, which no index has; after a statement that took too long, a quarter of that."""
_IDS = 1_000
"""How many ids one statement looks up by an index."""


@dataclass
class ArchiveCheck:
    """What PostgreSQL's archive has of chosen messages; each statement's snapshot is short."""

    database: Database
    _replayed: set[str] = field(default_factory=set)
    """Ids whose replays are known."""

    def begin(self, chosen: ChosenMessages) -> ChosenMessages:
        """Search the whole archive; the chosen messages with the origins that it knows.

        Raises:
            PipelineError: the archive still has contents of some of them; or PostgreSQL refused a statement.
            UnreachableError: PostgreSQL does not answer.
        """
        keyed = self._with_keys(chosen.keys)
        found = chosen.with_origins(self.replays([*chosen.ids, *keyed])).with_origins(keyed)
        self.refuse(found, keyed)
        return found

    def replays(self, ids: Iterable[str]) -> frozenset[str]:
        """The ids of these messages' replays in the archive, of their replays, and so on; no replay that an earlier call found."""
        found, todo = set[str](), set(ids) - self._replayed
        while todo:
            self._replayed |= todo
            new = {id_ for some in _some(todo) for (id_,) in self.database.fetch("list_replays", {"origins": some})}
            found |= new
            todo = new - self._replayed
        return frozenset(found)

    def refuse(self, chosen: ChosenMessages, keyed: Sequence[str] = ()) -> None:
        """Refuse if the archive still has contents of chosen messages, `keyed` among them; errors as `begin`."""
        left = [*keyed, *self._unerased(chosen)]
        if left:
            more = f" and {len(left) - SHOWN:,} more" if len(left) > SHOWN else ""
            raise PipelineError(
                f"PostgreSQL still has the contents of {many(len(left), 'chosen message')}: run `relay erase` for them first, because"
                f" a verification would differ, and `export --again` could bring them back ({', '.join(left[:SHOWN])}{more})."
            )

    def _unerased(self, chosen: ChosenMessages) -> Iterator[str]:
        values = {"named": list(chosen.ids), "keys": list(chosen.keys), "erased": ERASED}
        for ids in _some(chosen.ids):
            yield from (id_ for (id_,) in self.database.fetch("list_unerased", {**values, "ids": ids, "origins": []}))
        for origins in _some(chosen.ids | chosen.origins):
            yield from (id_ for (id_,) in self.database.fetch("list_unerased", {**values, "ids": [], "origins": origins}))

    def _with_keys(self, keys: frozenset[str]) -> list[str]:
        """The ids of all messages with one of these keys, by ranges in the order of the index on transactions."""
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


def _some(ids: Iterable[str]) -> Iterator[list[str]]:
    """The ids in lists for one statement each."""
    rest = iter(ids)
    while some := list(islice(rest, _IDS)):
        yield some
