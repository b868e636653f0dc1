"""Which stream claims an exchange's messages: the main stream, its own stream, or a shared one. No I/O of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import reduce

from relay.claims.cursor import Cursor
from relay.claims.stream import Stream
from relay.ports import ClaimStore


class Branches:
    """The main stream, and the stream of each exchange that was split off from it.

    A claim may be under way while an exchange changes its stream. That claim moves the previous cursor, so the new stream scans again the
    messages that the claim has seen.

    Args:
        store: where messages are claimed.

    """

    def __init__(self, store: ClaimStore) -> None:
        self._store = store
        self.main = Stream(store)
        self._by_exchange: dict[str, Stream] = {}

    def __iter__(self) -> Iterator[str]:
        """Exchanges that were split off. The exchange whose stream made the latest claim comes last."""
        return iter(self._by_exchange)

    def __contains__(self, exchange: object) -> bool:
        """Whether an exchange was split off."""
        return exchange in self._by_exchange

    def __getitem__(self, exchange: str) -> Stream:
        """The stream of an exchange."""
        return self._by_exchange.get(exchange, self.main)

    @property
    def streams(self) -> set[Stream]:
        """All streams, including the main one."""
        return {self.main, *self._by_exchange.values()}

    def of(self, exchanges: Iterable[str]) -> list[Stream]:
        """The streams of exchanges, each once."""
        return list(dict.fromkeys(self[exchange] for exchange in exchanges))

    def exchanges(self, branch: Stream) -> list[str]:
        """The exchanges whose stream this is now; other exchanges in the stream's filter have moved to another stream."""
        return [exchange for exchange in branch.only or () if self[exchange] is branch]

    def split(self, exchange: str) -> None:
        """Give an exchange its own stream, which begins where the exchange's present stream has arrived."""
        stream = self[exchange]
        if stream.only == {exchange}:
            return
        if stream.only is not None:
            stream.only.remove(exchange)
        self._by_exchange[exchange] = Stream(self._store, [exchange], stream.cursor.fork())

    def share_one(self, streams: Collection[Stream]) -> None:
        """Let the exchanges of these streams share one stream."""
        exchanges = [exchange for stream in streams for exchange in stream.only or ()]
        if exchanges:
            cursor = reduce(Cursor.joined, (stream.cursor for stream in streams))
            self._by_exchange |= dict.fromkeys(exchanges, Stream(self._store, exchanges, cursor.fork()))

    def return_to_main(self, exchange: str) -> None:
        """Return an exchange to the main stream, after a claim that left no message of the exchange."""
        self.main.cursor = self.main.cursor.joined(self._by_exchange.pop(exchange).cursor)

    def put_last(self, branch: Stream) -> None:
        """Give every other stream its turn first."""
        for exchange in self.exchanges(branch):
            self._by_exchange[exchange] = self._by_exchange.pop(exchange)
