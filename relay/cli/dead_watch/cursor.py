"""Scans unacknowledged dead messages in the order in which they died: each once, including messages of late commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

PAGE: Final = 500
"""Dead messages that one statement reads."""

Place = tuple[int, int, int]
"""Archiving transaction, transaction and number of a message; sorts messages in the order in which they died."""


class DeadCursor:
    """The position of the scan: a floor below which every message was seen, and the messages above it that were seen.

    Args:
        wanted: the filter, as parameters of `watch_dead.sql`.
    """

    def __init__(self, wanted: Mapping[str, object]) -> None:
        self._wanted = wanted
        self._floor = 0
        self._seen: dict[Place, str] = {}

    def unseen(self, opened: OperatorSession) -> Iterator[dict[str, Any]]:
        """Dead messages that were not seen yet, page by page."""
        yield from self._unseen(opened, None, (self._floor, 0, 0), PAGE)

    def unseen_of(self, opened: OperatorSession, exchange: str, after: Place, most: int) -> Iterator[dict[str, Any]]:
        """The unseen messages of an exchange after a place, in pages of at most `most`, so that the search ends early."""
        yield from self._unseen(opened, exchange, after, min(PAGE, most))

    def _unseen(self, opened: OperatorSession, exchange: str | None, place: Place, most: int) -> Iterator[dict[str, Any]]:
        while True:
            page = self._page(opened, place, most, exchange)
            for dead in page:
                place = place_of(dead)
                if place not in self._seen:
                    yield dead
            if len(page) < most:
                return

    def read(self, opened: OperatorSession, place: Place) -> dict[str, Any] | None:
        """The message at a place; None if it is acknowledged."""
        return next((dead for dead in self._page(opened, before(place), 1, None) if place_of(dead) == place), None)

    def saw(self, dead: Mapping[str, Any]) -> None:
        """Note that this message was seen: `unseen` does not return it again."""
        self._seen[place_of(dead)] = dead["exchange"]

    def knows(self, place: Place) -> bool:
        """Whether the message at a place was seen."""
        return self.is_below(place) or place in self._seen

    def is_below(self, place: Place) -> bool:
        """Whether a place is below the floor."""
        return place[0] < self._floor

    def rise(self, floor: int, but: Callable[[str, Place], bool] = lambda *_: False) -> None:
        """Note that every message below the floor was seen, except those that must be read again."""
        if floor > self._floor:
            self._floor = floor
            self._seen = {place: exchange for place, exchange in self._seen.items() if place[0] >= floor or but(exchange, place)}

    def _page(self, opened: OperatorSession, after: Place, most: int, exchange: str | None) -> list[dict[str, Any]]:
        wanted = self._wanted if exchange is None else {**self._wanted, "exchange": exchange}
        return opened.rows("watch_dead", **wanted, archived_xid=str(after[0]), xid=str(after[1]), seq=after[2], most=most)


def place_of(dead: Mapping[str, Any]) -> Place:
    """The position of a dead message."""
    return int(dead["archived_xid"]), int(dead["xid"]), dead["seq"]


def before(place: Place) -> Place:
    """The place directly before a message."""
    return (*place[:2], place[2] - 1)


def read_floor(opened: OperatorSession) -> int:
    """Read the floor: messages that become visible later are at or above this position."""
    return int(opened.row("read_floor")["floor"])
