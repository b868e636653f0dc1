"""Where messages with an id are: producers choose ids, and may choose another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from relay.errors import PipelineError
from relay.message import Position
from relay.pipeline.text import some

_ENOUGH = 2
"""How many places of an id are kept: these many say that several messages have it."""


@dataclass
class IdPlaces:
    """Places of messages by id. A replay that has kept the id of its message is no message of its own, and has no place."""

    places: dict[str, set[Position]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with their `id`, `replay_of`, `xid` and `seq`."""
        columns = (batch.column(name).to_pylist() for name in ("id", "replay_of", "xid", "seq"))
        for id_, origin, xid, seq in zip(*columns, strict=True):
            found = self.places.setdefault(id_, set())
            if origin != id_ and len(found) < _ENOUGH:
                found.add(Position(xid, seq))

    def update(self, other: IdPlaces) -> None:
        """Add what another one has."""
        for id_, places in other.places.items():
            self.places.setdefault(id_, set()).update(places)

    @property
    def shared(self) -> list[str]:
        """Ids that several messages have."""
        return sorted(id_ for id_, places in self.places.items() if len(places) > 1)


def refuse_shared(ids: Sequence[str], done: str, advice: str) -> None:
    """Refuse a job about messages that only have the id of the one that is meant."""
    if ids:
        raise PipelineError(f"Several messages have the id {some(ids)}, and nothing was {done}: {advice}.")
