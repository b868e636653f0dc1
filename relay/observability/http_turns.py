"""Connections that wait to be served: clients take turns, so one that opens very many delays itself and few others. No I/O."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from typing import Generic, TypeVar

_NETWORK = 64
"""Leading bits of an IPv6 address that are one client: a host may choose the others at will (RFC 4291, 2.5.1)."""
Connection = TypeVar("Connection")


class Turns(Generic[Connection]):
    """Waiting connections by client.

    Args:
        most: how many may wait; a further one takes the place of the oldest one of the client that has most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: OrderedDict[str, deque[Connection]] = OrderedDict()
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self._number)

    def add(self, address: str, connection: Connection) -> Connection | None:
        """Let a connection wait; the one that has lost its place must be closed."""
        self._waiting.setdefault(_client(address), deque()).append(connection)
        self._number += 1
        if self._number <= self._most:
            return None
        return self._take(max(self._waiting, key=lambda client: len(self._waiting[client])))

    def next(self) -> Connection | None:
        """The oldest connection of the client whose turn it is."""
        if not self._waiting:
            return None
        client = next(iter(self._waiting))
        self._waiting.move_to_end(client)
        return self._take(client)

    def _take(self, client: str) -> Connection:
        mine = self._waiting[client]
        taken = mine.popleft()
        self._number -= 1
        if not mine:
            del self._waiting[client]
        return taken


def _client(address: str) -> str:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, _NETWORK), strict=False))
    return address
