"""Messages that an application's trigger refuses: read from a statement's list, and reported once a minute."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from relay.events import MessageRefused, Sink
from relay.message import Position
from relay.postgres.errors import broken, veiled

TOLD_AGAIN = 60.0
"""Seconds after which a message that is still refused is reported again; the message is tried every few seconds."""
MAX_TOLD = 1000
"""Most messages that are reported in that time; a trigger may refuse any number of messages."""
SKIPPED = "A trigger of queue_message skips the UPDATE without an error."


class Refusal(NamedTuple):
    """A message that could not be claimed, released or archived."""

    xid: int
    seq: int
    id: str
    exchange: str
    state: str
    """The SQLSTATE; empty if a trigger skipped the row."""
    words: str | None

    @property
    def sentence(self) -> str:
        """The reason, without the values of rows."""
        if not self.state:
            return SKIPPED
        words, advice = veiled(self.words or "", self.state), broken(self.state)
        return f"{advice} ({words})." if advice else words


class Refusals:
    """Reports refused messages; claims and the release of expired locks share one instance.

    Args:
        emit: sink of events.
        clock: monotonic seconds.

    """

    def __init__(self, *, emit: Sink, clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._told: OrderedDict[str, float] = OrderedDict()

    def report(self, listed: str | None) -> list[Position]:
        """Report the messages of a statement's JSON list; return their positions."""
        refused = [Refusal._make(one) for one in json.loads(listed)] if listed else []
        for one in refused:
            self._tell(one)
        return [Position(one.xid, one.seq) for one in refused]

    def _tell(self, refused: Refusal) -> None:
        now = self._clock()
        while self._told and next(iter(self._told.values())) <= now - TOLD_AGAIN:
            self._told.popitem(last=False)
        if refused.id in self._told or len(self._told) >= MAX_TOLD:
            return
        self._emit(MessageRefused(refused.id, refused.exchange, refused.sentence))
        self._told[refused.id] = now
