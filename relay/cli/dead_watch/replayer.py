"""Replays the dead messages of a rule, some time after they died; the database counts the replays along their lineage."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from relay.cli.common.output import count
from relay.cli.common.support import complain
from relay.cli.dead_watch import turns
from relay.cli.dead_watch.actions import Dead
from relay.cli.dead_watch.cursor import place_of
from relay.cli.dead_watch.lines import DeadLines, Sort
from relay.cli.dead_watch.lock_waits import LockWaits
from relay.cli.dead_watch.replay_rules import Rule
from relay.cli.dead_watch.turns import WaitingTry
from relay.postgres.operator_session import BusyError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

BY: Final = "relay dead watch"
"""The actor in the audit, in addition to the login."""


class Replayer:
    """Carries out one rule.

    Args:
        rule: which messages are replayed, when and how often.
        earlier: rules that come first; this rule ignores messages that match one of them.
        wanted: the filter of the whole watch.
        ready: says whether the other handlers have finished with a message.
    """

    def __init__(
        self, rule: Rule, *, earlier: Sequence[Rule], wanted: Mapping[str, object], ready: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        self._rule = rule
        self._earlier = earlier
        self._ready = ready
        self._lines = DeadLines(wanted, line_up=self._line_up, sort=self._sort, clock=self._clock, unreported=turns.MAX_WAITING)
        self._ahead = 0.0
        self._next_due = float("inf")
        self.locked = LockWaits(self._replay, what="is not replayed")
        self.replayed = 0
        self.refused = 0

    def round(self, opened: OperatorSession, stopped: Callable[[], bool]) -> None:
        """Replay due messages by their exchanges' turns, for a limited time."""
        self.locked.again(opened, stopped)
        self._ahead = opened.now().timestamp() - time.monotonic()
        self._next_due = float("inf")
        self._lines.read(opened, stopped)
        for one in self._lines.in_turn(opened, stopped):
            if one.dead is not None:
                self.locked.do(opened, one.dead)

    def until_due(self) -> float:
        """Seconds until a message is due."""
        return min(self._next_due - self._clock(), self._lines.until_due(), self.locked.until_due())

    def _clock(self) -> float:
        """The database's time."""
        return time.monotonic() + self._ahead

    def _sort(self, dead: Dead) -> Sort:
        if not self._ready(dead):
            return Sort.LATER
        if not self._rule.matches(dead) or any(each.matches(dead) for each in self._earlier):
            return Sort.OTHERS
        if (due := self._due(dead)) <= self._clock():
            return Sort.MINE
        # The following messages died later, so none of them is due much earlier.
        self._next_due = min(self._next_due, due)
        return Sort.LAST

    def _line_up(self, dead: Dead) -> WaitingTry:
        named = {name: dead[name] for name in ("id", "xid", "seq")}
        # Due messages are replayed in the order in which they were read, which is the order in which they died.
        due = 0.0 if (due := self._due(dead)) <= self._clock() else due
        return WaitingTry(dead["exchange"], place_of(dead), (), due, named)

    def _due(self, dead: Dead) -> float:
        """When a message of this rule may be replayed, by the database's clock."""
        died = dead["archived_at"]
        # A time outside Python's calendar can only be written with triggers disabled.
        return died.timestamp() + self._rule.after.total_seconds() if isinstance(died, datetime) else 0.0

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
