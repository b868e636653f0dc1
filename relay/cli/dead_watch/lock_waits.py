"""Messages that cannot be acknowledged or replayed because of another session's lock.

Each is tried at once, and later in turn with the others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from relay.cli.common.support import complain
from relay.errors import StoreError
from relay.postgres.operator_session import BusyError

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

PAUSE: Final = 5.0
"""Seconds after a failure at a lock until the waiting messages are tried again."""
MAX_WAITING: Final = 10_000
"""The most messages in one line; further messages that meet a lock are left to the next watch."""
ROUND: Final = 1.0
"""Seconds after which a round of waiting messages ends, so that new dead messages are handled."""
REPORT_SECONDS: Final = 60.0
"""Seconds between two reports about locks."""

Act = Callable[["OperatorSession", Mapping[str, Any]], None]


class LockWaits:
    """Runs an action on messages. A message that meets a lock waits in a line, and delays no other message.

    Args:
        act: the action; it gets a message's id, xid and seq.
        what: the text for reports on what is not done yet, such as "is not acknowledged".
    """

    def __init__(self, act: Act, *, what: str) -> None:
        self._act = act
        self._what = what
        self._line: deque[Mapping[str, Any]] = deque()
        self._due = 0.0
        self._reported = float("-inf")
        self.left = 0
        """The number of messages for which the line had no room."""

    def __len__(self) -> int:
        """The number of messages that wait in the line or were left out."""
        return len(self._line) + self.left

    def do(self, opened: OperatorSession, dead: Mapping[str, Any]) -> bool:
        """Act on a message; return False if it must wait for a lock.

        After a lost connection the message is tried again on the next connection.

        Raises:
            StoreError: the connection to PostgreSQL was lost.
            RefusedError: the action is refused for another reason than a lock.
        """
        place = {name: dead[name] for name in ("id", "xid", "seq")}
        try:
            self._act(opened, place)
        except BusyError as error:
            self._wait(place, error)
            return False
        except StoreError:
            self._line.append(place)
            raise
        return True

    def again(self, opened: OperatorSession, stopped: Callable[[], bool]) -> None:
        """Try the waiting messages in turn, until one meets a lock again, a signal came, or the round is over.

        Raises the same errors as `do`.
        """
        end = time.monotonic() + ROUND
        while self._line and self.until_due() <= 0 and not stopped() and time.monotonic() < end:
            if not self.do(opened, self._line.popleft()):
                self._due = time.monotonic() + PAUSE

    def until_due(self) -> float:
        """Seconds until a message is tried again."""
        return self._due - time.monotonic() if self._line else float("inf")

    def _wait(self, place: Mapping[str, Any], error: BusyError) -> None:
        # A message that meets a lock meanwhile does not postpone the next try of the others.
        if not self._line:
            self._due = time.monotonic() + PAUSE
        if len(self._line) < MAX_WAITING:
            self._line.append(place)
        else:
            self.left += 1
        self.say(f"Message {place['id']} {self._what} yet, and is tried again: {error}")

    def say(self, sentence: str) -> None:
        """Report a lock, at most once in REPORT_SECONDS."""
        now = time.monotonic()
        if now >= self._reported + REPORT_SECONDS:
            self._reported = now
            complain(sentence)
