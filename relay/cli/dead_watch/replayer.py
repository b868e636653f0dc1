"""Dead messages that a rule replays, some time after they died; the database counts the replays along their lineage."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from relay.cli.common.output import count
from relay.cli.common.support import complain
from relay.cli.dead_watch.cursor import PAGE, DeadCursor, place_of, read_floor
from relay.cli.dead_watch.lock_waits import LockWaits
from relay.cli.dead_watch.replay_rules import Rule
from relay.postgres.operator_session import BusyError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

BY: Final = "relay dead watch"
"""The actor in the audit, in addition to the login."""


class Replayer:
    """Carries out one rule.

    Args:
        rule: which messages are replayed, when and how often.
        earlier: rules that come first; a message that matches one of them is left to it.
        wanted: filter of the whole watch.
        ready: says whether the other handlers have finished with a message.

    """

    def __init__(
        self, rule: Rule, *, earlier: Sequence[Rule], wanted: Mapping[str, object], ready: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        self._rule = rule
        self._earlier = earlier
        self._walk = DeadCursor(wanted)
        self._ready = ready
        self._due = float("inf")
        self.locked = LockWaits(self._replay, what="is not replayed")
        self.replayed = 0
        self.refused = 0

    def round(self, opened: OperatorSession, stopped: Callable[[], bool]) -> None:
        """Replay due messages, for a limited time."""
        self.locked.again(opened, stopped)
        floor, now = read_floor(opened), opened.now()
        self._due = float("inf")
        last = self.replayed + self.refused + PAGE
        for dead in self._walk.unseen(opened):
            if stopped():
                return
            place = place_of(dead)
            if not self._ready(dead):
                floor = min(floor, place[0])
            elif (wait := self._wait(dead, now)) > 0 or self.replayed + self.refused >= last:
                # The following messages died later, so none of them is due much earlier.
                self._due = time.monotonic() + wait
                floor = min(floor, place[0])
                break
            else:
                self._walk.saw(dead)
                if self._is_mine_to_replay(dead) and not self.locked.do(opened, dead):
                    # The watch has other work; the next round continues here.
                    self._due = time.monotonic()
                    floor = min(floor, place[0])
                    break
        self._walk.rise(floor)

    def until_due(self) -> float:
        """Seconds until a message is due."""
        return min(self._due - time.monotonic(), self.locked.until_due())

    def _is_mine_to_replay(self, dead: Mapping[str, Any]) -> bool:
        return self._rule.matches(dict(dead)) and not any(each.matches(dict(dead)) for each in self._earlier)

    def _wait(self, dead: Mapping[str, Any], now: datetime) -> float:
        """Seconds, by the database's clock, until a message of this rule may go."""
        if not self._is_mine_to_replay(dead):
            return 0.0
        died = dead["archived_at"]
        # A time outside the calendar was written with triggers disabled.
        return (died - now + self._rule.after).total_seconds() if isinstance(died, datetime) else 0.0

    def _replay(self, opened: OperatorSession, dead: Mapping[str, Any]) -> None:
        """Replay a message, by its id, xid and seq."""
        try:
            made = opened.row("replay_dead", **dead, at_most=self._rule.at_most, by=BY)["id"]
            if made is not None:
                self.replayed += 1
                complain(f"Message {dead['id']} was replayed as {made}.")
            elif opened.row("read_unanswered", **dead)["unanswered"]:
                self.refused += 1
                times = count(self._rule.at_most, "time")
                complain(f"Message {dead['id']} was replayed {times} already, or its replay count is unknown; it stays unacknowledged.")
        except BusyError:
            raise
        except (RefusedError, NotFoundError) as error:
            self.refused += 1
            complain(f"Message {dead['id']} was not replayed and stays unacknowledged: {error}")
