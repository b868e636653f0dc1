"""The places of messages by id. Producers choose ids, so two messages may have the same id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from relay.errors import PipelineError
from relay.message import Position
from relay.pipeline.text import some

_ENOUGH = 2
"""How many places are kept for each id: two places already prove that several messages have the id."""


@dataclass
class IdPlaces:
    """Places of messages by id. A replay that has kept its message's id does not count as a message: its place is left out."""

    places: dict[str, set[Position]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with their `id`, `replay_of`, `xid` and `seq`."""
        columns = (batch.column(name).to_pylist() for name in ("id", "replay_of", "xid", "seq"))
        for id_, origin, xid, seq in zip(*columns, strict=True):
            found = self.places.setdefault(id_, set())
            if origin != id_ and len(found) < _ENOUGH:
                found.add(Position(xid, seq))

    def update(self, other: IdPlaces) -> None:
        """Add the places of another object."""
        for id_, places in other.places.items():
            self.places.setdefault(id_, set()).update(places)

    @property
    def shared(self) -> list[str]:
        """Ids that several messages have."""
        return sorted(id_ for id_, places in self.places.items() if len(places) > 1)


def refuse_shared(ids: Sequence[str], done: str, advice: str) -> None:
    """Raise PipelineError if `ids` has an id that several messages have: the job cannot know which of them is meant."""
    if ids:
        raise PipelineError(f"Several messages have the id {some(ids)}, and nothing was {done}: {advice}.")
