"""Messages over which a connection may have ended, remembered by their ids until many more were added. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relay.amqp.publishing.publish_batch import Slot, decide_all, relay_id
from relay.message import PublishResult, Verdict

MAX_IDS: Final = 10_000
"""Most ids that are remembered: more than the messages that one connection can write before the broker has processed them."""


class Offenders:
    """A collection of ids."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, id_: object) -> bool:
        return id_ in self._ids

    def blame(self, slots: Sequence[Slot], sentence: str) -> None:
        """Decide messages that the broker may have been processing when it closed the connection; if there is only one, it is the cause."""
        result = PublishResult(Verdict.UNKNOWN, "connection_lost", sentence, blame=True, alone=len(slots) == 1)
        decide_all(slots, result)
        self._ids |= dict.fromkeys(map(relay_id, slots))
        while len(self._ids) > MAX_IDS:
            del self._ids[next(iter(self._ids))]
