"""Messages that scans have found and no claim has tried yet, by exchange; no I/O.

A position is a hint: the claim checks it again. The backlog may forget any message at any time, because the next round of the scrub
finds it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice

from relay.claims.rate_limits import RateLimits
from relay.claims.unconfirmed_exchanges import CROWD, UnconfirmedExchanges
from relay.message import Position
from relay.ports import ScanFinding

MAX_FOUND = 10_000
"""Most messages of one exchange that are remembered."""
MAX_IN_ALL = 50_000
"""Most messages of all exchanges together that are remembered; each exchange has room for at least one message."""
STRANGERS = 5
"""If some exchanges are known to accept messages, all other exchanges (the strangers) together have 1/STRANGERS of the room."""
MAX_EXCHANGES = 5_000
"""Most strangers whose messages are remembered: a login that may insert can invent names of exchanges."""


class Backlog:
    """Messages by their position; exchanges take turns.

    Args:
        limits: say how many messages of an exchange may be claimed now.
        most: most messages of one exchange that are remembered.
        in_all: most messages that are remembered.

    """

    def __init__(self, limits: RateLimits, most: int = MAX_FOUND, in_all: int = MAX_IN_ALL) -> None:
        self._limits = limits
        self._most = most
        self._in_all = in_all
        self._found: dict[str, dict[Position, ScanFinding]] = {}
        self._known: set[str] = set()
        """Remembered exchanges that are known to accept messages."""
        self.starved = False
        """Whether the last call of `next` left out messages of strangers, because strangers have enough messages in flight."""

    def put(self, finding: ScanFinding, *, known: bool = False) -> None:
        """Remember a message if there is room. `known`: its exchange is known to accept messages."""
        if known:
            self._known.add(finding.exchange)
        elif finding.exchange not in self._found and self._strange >= MAX_EXCHANGES:
            return
        mine = self._found.setdefault(finding.exchange, {})
        if len(mine) < self._room(finding.exchange):
            mine.setdefault(finding.position, finding)

    def next(
        self,
        most: int,
        paused: Collection[str],
        strangers: UnconfirmedExchanges | None = None,
        *,
        wanted: Callable[[ScanFinding], bool] = lambda _: True,
    ) -> list[ScanFinding]:
        """Messages to claim now, within the limits and the strangers' room; they are remembered until they are dropped."""
        chosen: list[ScanFinding] = []
        self.starved = False
        strangers = strangers if len(self._found) > CROWD else None
        left = strangers.room(most) if strangers else most
        for exchange in list(self._found):
            if len(chosen) >= most:
                break
            strange = strangers is not None and exchange in strangers
            self.starved = self.starved or (strange and left <= 0)
            if exchange in paused or (strange and left <= 0):
                continue
            room, allowance = min(most - len(chosen), left if strange else most), self._limits.allowance(exchange)
            self._found[exchange] = mine = self._found.pop(exchange)
            some = list(islice(filter(wanted, mine.values()), room if allowance is None else min(allowance, room)))
            chosen += some
            left -= len(some) if strange else 0
        return chosen

    def drop(self, findings: Iterable[ScanFinding]) -> None:
        """Forget these messages, because a claim has tried them."""
        for one in findings:
            mine = self._found.get(one.exchange, {})
            mine.pop(one.position, None)
            if not mine:
                self.forget([one.exchange])

    def forget(self, exchanges: Iterable[str]) -> None:
        """Forget the messages of these exchanges."""
        for exchange in exchanges:
            self._found.pop(exchange, None)
            self._known.discard(exchange)

    def clear(self) -> None:
        """Forget all messages."""
        self._found.clear()
        self._known.clear()

    def __len__(self) -> int:
        """How many messages are remembered."""
        return sum(map(len, self._found.values()))

    @property
    def crowded(self) -> list[str]:
        """Exchanges that have filled more than half of their room: a scan need not look for more of their messages."""
        return [exchange for exchange, found in self._found.items() if len(found) * 2 > self._room(exchange)]

    @property
    def _strange(self) -> int:
        return len(self._found) - len(self._known)

    def _room(self, exchange: str) -> int:
        strangers = self._in_all // STRANGERS if self._known else self._in_all
        part = (self._in_all - strangers) // len(self._known) if exchange in self._known else strangers // max(self._strange, 1)
        return max(1, min(self._most, part))

    @property
    def throttled(self) -> set[str]:
        """Limited exchanges with remembered messages."""
        return {name for name in self._found if name in self._limits.names}
