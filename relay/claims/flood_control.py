"""How much of the window a flooding exchange may use while other exchanges have messages; no I/O.

An exchange floods when a claim is full and more than half of the claim's messages are of that exchange. The exchange is then called a
flood and gets its own stream. While there is anything else to send, a flood has a small part of the window. So other exchanges find room
at once, and few messages of the flood are ahead of their messages at the broker.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection

from relay.message import Batch

PART = 8
"""While other exchanges have messages, all floods together take at most 1/PART of the window, in messages and in bytes."""
PORTION = 4
"""One claim locks at most 1/PORTION of what the flood may have in flight. So the first settles already make room for the next claim."""
REMEMBERED = 5.0
"""For this many seconds after the last message of other exchanges, floods stay small."""
MAX_FLOODS = 8
"""Most floods with their own streams: each stream costs a claim in every round. A further flood is not split off, so it delays others."""


class FloodControl:
    """Says which exchange floods, and how many of its messages may be claimed now.

    Args:
        window: messages that may be in flight.
        in_flight: messages of an exchange that are in flight now.
        window_bytes: bytes of payload that may be in flight; with 0, only the number of messages limits floods.
        size_in_flight: bytes of an exchange that are in flight now.
        clock: monotonic seconds.

    """

    def __init__(
        self,
        *,
        window: int,
        in_flight: Callable[[str], int],
        window_bytes: int = 0,
        size_in_flight: Callable[[str], int] = lambda _: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._window = window
        self._in_flight = in_flight
        self._window_bytes = window_bytes
        self._size_in_flight = size_in_flight
        self._clock = clock
        self._seen: OrderedDict[str, float] = OrderedDict()
        """For the exchanges claimed last: the time of the last claim. One more is kept than there are floods, so one is no flood."""
        self._sizes: dict[str, int] = {}
        """For each exchange in `_seen`, the average bytes of its messages in the last claim."""
        self._most = MAX_FLOODS + 1

    def flooding(self, batch: Batch, part: int = 2) -> str | None:
        """For a full claim: the exchange that has more than 1/`part` of its messages. None if no exchange has."""
        exchange, (messages, _) = max(batch.exchanges.items(), key=lambda one: one[1].messages)
        return exchange if messages * part > len(batch.claims) else None

    def took(self, batch: Batch) -> None:
        """Note the exchanges and sizes of claimed messages."""
        now = self._clock()
        for exchange, amount in batch.exchanges.items():
            self._seen[exchange] = now
            self._seen.move_to_end(exchange)
            self._sizes[exchange] = amount.size // amount.messages
        while len(self._seen) > self._most:
            forgotten, _ = self._seen.popitem(last=False)
            del self._sizes[forgotten]

    def crowded(self, floods: Collection[str]) -> bool:
        """Whether exchanges other than the floods had messages lately.

        `floods` may be longer than MAX_FLOODS, because many paused or limited exchanges may resume at once.
        """
        self._most = max(MAX_FLOODS, len(floods)) + 1
        since = self._clock() - REMEMBERED
        return any(at > since and exchange not in floods for exchange, at in self._seen.items())

    def room(self, flood: Collection[str], others: Collection[Collection[str]], room: int, *, ignored: Collection[str] = ()) -> int:
        """How many messages of a flood may be claimed now, given `room`; 0 means to wait for a settle.

        Args:
            flood: the flood's exchanges.
            others: the exchanges of each other flood.
            room: messages for which there is room.
            ignored: exchanges whose messages do not keep a flood small.

        """
        if not self.crowded({*flood, *ignored}.union(*others)):
            return room
        floods = len(others) + 1
        most = max(self._window // PART // floods, 1)
        portion = self._fitting(flood, max(most // PORTION, 1), floods)
        return min(portion, room) if most - sum(map(self._in_flight, flood)) >= portion else 0

    def _fitting(self, flood: Collection[str], portion: int, floods: int) -> int:
        """How many messages of a flood fit into its share of bytes if they are as large as those of its last claim; at least one.

        If they do not fit next to the flood's messages in flight, the number is above the window, so the caller claims no message.
        """
        most, size = self._window_bytes // PART // floods, max(self._sizes.get(exchange, 0) for exchange in flood)
        if not (self._window_bytes and size):
            return portion
        portion = min(portion, max(most // PORTION // size, 1))
        in_flight = sum(map(self._size_in_flight, flood))
        return portion if not in_flight or in_flight + portion * size <= most else self._window + 1
