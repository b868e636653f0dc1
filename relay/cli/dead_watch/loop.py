"""The watch over dead messages: finds each once, passes it to the handlers, and acknowledges it or lets a rule replay it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from relay.cli.common.output import count
from relay.cli.common.support import complain
from relay.cli.dead_watch.actions import CannotHandle, Dead, RetryLater, pause
from relay.cli.dead_watch.cursor import place_of
from relay.cli.dead_watch.lines import DeadLines
from relay.cli.dead_watch.lock_waits import PAUSE, LockWaits
from relay.cli.dead_watch.plan import WatchPlan
from relay.cli.dead_watch.replayer import BY, Replayer
from relay.cli.dead_watch.turns import WaitingTry
from relay.errors import StoreError
from relay.postgres.operator_session import BusyError

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

REPORT_SECONDS: Final = 5.0
"""Seconds between two lines of progress."""


class DeadWatch:
    """Finds unacknowledged dead messages, each once, and passes them to the handlers one at a time.

    Args:
        plan: what the watch does.
        stopped: says whether a signal came.
    """

    def __init__(self, plan: WatchPlan, *, stopped: Callable[[], bool]) -> None:
        self._plan = plan
        self._stopped = stopped
        self._lines = DeadLines(plan.wanted, line_up=self._line_up)
        self._is_locked = False
        self._acks = LockWaits(self._acknowledge, what="is not acknowledged")
        self._reported = time.monotonic()
        self._replays = [
            Replayer(rule, earlier=plan.rules[:place], wanted=plan.wanted, ready=self._is_ready) for place, rule in enumerate(plan.rules)
        ]
        self._parts: list[Callable[[OperatorSession], None]] = [partial(self._acks.again, stopped=stopped)]
        if plan.handlers:
            self._parts += [partial(self._lines.read, stopped=stopped), self._tell]
        self._parts += [partial(each.round, stopped=stopped) for each in self._replays]
        self.handled = 0
        self.given_up = 0

    @property
    def failing(self) -> int:
        """The number of messages that were given up or wait for another try; at least 1 if a lock keeps the watch from reading."""
        return max(self.given_up + self._waiting + sum(each.refused for each in self._replays), self._is_locked)

    @property
    def is_busy(self) -> bool:
        """Whether the next round has work at once, apart from failed messages."""
        due = self._lines.has_unreported or any(each.until_due() <= 0 for each in self._replays)
        return due and not self._is_locked

    def round(self, opened: OperatorSession) -> None:
        """Acknowledge handled messages, poll for new ones, handle due ones, and replay; a lock stops only the step that meets it."""
        self._is_locked = False
        for part in self._parts:
            try:
                part(opened)
            except BusyError as error:
                self.meet_lock(error)

    def meet_lock(self, error: BusyError) -> None:
        """Report which lock keeps the watch from reading, but not each time; the watch tries again after a pause."""
        self._is_locked = True
        self._acks.say(str(error))

    def until_due(self, longest: float) -> float:
        """Seconds until a message is due for a try or a replay, at most `longest`."""
        if self.is_busy:
            return 0.0
        if self._is_locked:
            return min(longest, PAUSE)
        due = (self._lines.until_due(), self._acks.until_due(), *(each.until_due() for each in self._replays))
        return max(min(longest, *due), 0.0)

    def summary(self) -> str:
        """The outcome, in one line."""
        replayed, refused = (sum(getattr(each, name) for each in self._replays) for name in ("replayed", "refused"))
        parts = {"handled": self.handled, "replayed": replayed, "given up": self.given_up, "not replayed": refused}
        done = [f"{number} {what}" for what, number in parts.items() if number or what == "handled"]
        waits = self._waiting
        waiting = [f"{count(waits, 'waits', 'wait')} for another try"] if waits else []
        return "Dead messages: " + ", ".join([*done, *waiting]) + "."

    @property
    def _waiting(self) -> int:
        return self._lines.waiting + len(self._acks) + sum(len(each.locked) for each in self._replays)

    def _line_up(self, dead: Dead) -> WaitingTry:
        return WaitingTry(dead["exchange"], place_of(dead), self._plan.handlers, time.monotonic(), dead)

    def _tell(self, opened: OperatorSession) -> None:
        for one in self._lines.in_turn(opened, self._stopped):
            self._handle(opened, one)

    def _handle(self, opened: OperatorSession, one: WaitingTry) -> None:
        try:
            dead = self._read(opened, one)
        except StoreError:
            self._lines.put(one)
            raise
        except BusyError as error:
            self._lines.put(replace(one, dead=None, due=time.monotonic() + PAUSE))
            self._acks.say(f"A message is not reported yet, and is tried again: {error}")
            return
        if dead is None:
            return
        outcomes = [(each, each.handle(dead)) for each in one.rest]
        for _, outcome in outcomes:
            if isinstance(outcome, CannotHandle | RetryLater) and outcome.why:
                complain(outcome.why)
        gave_up = one.gave_up or any(isinstance(outcome, CannotHandle) for _, outcome in outcomes)
        left = [(each, outcome) for each, outcome in outcomes if isinstance(outcome, RetryLater)]
        tries = one.tries + any(outcome.counts for _, outcome in left)
        if left and tries < self._plan.tries:
            wait = max(outcome.after for _, outcome in left)
            if tries > one.tries:
                wait = max(wait, pause(one.tries))
            rest = [each for each, _ in left]
            self._lines.put(WaitingTry(one.exchange, one.place, rest, time.monotonic() + wait, tries=tries, gave_up=gave_up))
        elif left or gave_up:
            self._give_up(dead, tries if left else 0)
        else:
            self._finish(opened, dead)

    def _read(self, opened: OperatorSession, one: WaitingTry) -> Dead | None:
        """A message with the values for the handlers; None if it was acknowledged since its last attempt."""
        dead = one.dead or self._lines.reread(opened, one.place)
        return self._plan.look(opened, dead) if dead and self._plan.look else dead

    def _give_up(self, dead: Dead, tries: int) -> None:
        self.given_up += 1
        if tries:
            complain(f"Message {dead['id']} is given up after {count(tries, 'try', 'tries')}; it stays unacknowledged.")

    def _finish(self, opened: OperatorSession, dead: Dead) -> None:
        self.handled += 1
        if self._plan.ack and not any(each.matches(dead) for each in self._plan.rules):
            self._acks.do(opened, dead)
        if self._plan.acts and time.monotonic() - self._reported > REPORT_SECONDS:
            self._reported = time.monotonic()
            complain(f"{count(self.handled, 'dead message')} handled so far.")

    def _acknowledge(self, opened: OperatorSession, dead: Mapping[str, Any]) -> None:
        note = "handled by " + ", ".join(each.name for each in self._plan.handlers)
        opened.rows("answer_dead", **dead, by=BY, note=note)

    def _is_ready(self, dead: Mapping[str, Any]) -> bool:
        """Whether the handlers have finished with a message. An earlier replay would acknowledge the message, and hide it from them."""
        return not self._plan.handlers or self._lines.is_done(dead)
