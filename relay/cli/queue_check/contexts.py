"""Reads what decides why messages wait: pauses, limits, relays, and for each ordering key its hold and its first message."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from relay.cli.common.workers import Workers, read_workers
from relay.cli.queue_check.rows import QueueRow
from relay.cli.queue_check.wait_reasons import WaitContext

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession


class WaitContexts:
    """The contexts of several messages; each fact is read once.

    Args:
        opened: the connection, which stays open.
    """

    def __init__(self, opened: OperatorSession) -> None:
        self._opened = opened
        self._keys: dict[str, tuple[Mapping[str, Any] | None, QueueRow | None]] = {}

    def of(self, row: QueueRow) -> WaitContext:
        """What decides why this message waits."""
        parked, head = (None, None) if row.ordering_key is None else self._of_key(row.ordering_key)
        other = head if head is not None and not row.head and head.id != row.id else None
        return WaitContext(paused=self._paused, limited=self._limited, parked=parked, head=other, workers=self._workers)

    @cached_property
    def _paused(self) -> Mapping[str, Mapping[str, Any]]:
        return {one["exchange"]: one for one in self._opened.rows("list_paused")}

    @cached_property
    def _limited(self) -> Mapping[str, Mapping[str, Any]]:
        return {one["exchange"]: one for one in self._opened.rows("list_limited")}

    @cached_property
    def _workers(self) -> Workers:
        return read_workers(self._opened)

    def _of_key(self, key: str) -> tuple[Mapping[str, Any] | None, QueueRow | None]:
        if key not in self._keys:
            hold = next(iter(self._opened.rows("read_key_hold", key=key)), None)
            first = next(iter(self._opened.rows("read_key_head", key=key)), None)
            self._keys[key] = hold, None if first is None else read_row(self._opened, first["id"])
        return self._keys[key]


def read_row(opened: OperatorSession, id_: object) -> QueueRow | None:
    """The state of a message in the queue, by its id; None if it is not there."""
    found = opened.rows("check_message", id=id_)
    return QueueRow(**found[0]) if found else None
