"""A walk over unacknowledged dead messages in the order in which they died: each once, also those that commit late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from relay.console import Console

PAGE: Final = 500
"""Dead messages of one look; also how many may wait for another try before no more are read."""

Place = tuple[int, int, int]
"""Archiving transaction, transaction, number: the order in which messages became dead."""


class Walk:
    """Remembers how far it came: a floor below which all is seen, and what was seen above it.

    Args:
        wanted: filter, as `watch_dead.sql` takes it.

    """

    def __init__(self, wanted: Mapping[str, object]) -> None:
        self._wanted = wanted
        self._floor = 0
        self._seen: set[Place] = set()

    def unseen(self, opened: Console) -> Iterator[dict[str, Any]]:
        """What is there and was not seen, page by page."""
        place: Place = (self._floor, 0, 0)
        while True:
            asked = {"archived_xid": str(place[0]), "xid": str(place[1]), "seq": place[2], "most": PAGE}
            page = opened.rows("watch_dead", **self._wanted, **asked)
            for dead in page:
                place = place_of(dead)
                if place not in self._seen:
                    yield dead
            if len(page) < PAGE:
                return

    def saw(self, place: Place) -> None:
        """Never give this one again."""
        self._seen.add(place)

    def knows(self, place: Place) -> bool:
        """Whether it was seen."""
        return place[0] < self._floor or place in self._seen

    def rise(self, floor: int) -> None:
        """All below is seen."""
        if floor > self._floor:
            self._floor = floor
            self._seen = {place for place in self._seen if place[0] >= floor}


def place_of(dead: Mapping[str, Any]) -> Place:
    """Where a dead message stands."""
    return int(dead["archived_xid"]), int(dead["xid"]), dead["seq"]


def read_floor(opened: Console) -> int:
    """What becomes visible after this look stands at or above it."""
    return int(opened.row("read_floor")["floor"])
