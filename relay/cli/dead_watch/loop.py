"""The watch over dead messages: is notified by `dead_message`, and also polls, because a notification is only a hint."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from relay.cli.common.output import count
from relay.cli.common.support import REFUSED, complain, session
from relay.cli.dead_watch.actions import CannotHandle, Dead, Handler, RetryLater, pause
from relay.cli.dead_watch.cursor import DeadCursor, Place, place_of, read_floor
from relay.cli.dead_watch.plan import WatchPlan
from relay.cli.dead_watch.replayer import BY, Replayer
from relay.cli.dead_watch.turns import ExchangeTurns, WaitingTry
from relay.errors import StoreError

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

CHANNEL: Final = "dead_message"
SLICE: Final = 0.25
"""Seconds after which a signal is noticed at the latest."""
LOOK_EVERY: Final = 1.0
"""Seconds of handling after which the watch polls for new messages; longer if a poll takes longer."""
REPORT_SECONDS: Final = 5.0
"""Seconds between two lines of progress."""


class DeadWatch:
    """Finds unacknowledged dead messages, each once, and has them handled one at a time.

    Args:
        plan: what is done.
        stopped: says whether a signal came.

    """

    def __init__(self, plan: WatchPlan, *, stopped: Callable[[], bool]) -> None:
        self._plan = plan
        self._stopped = stopped
        self._walk = DeadCursor(plan.wanted)
        self._turns = ExchangeTurns()
        self._is_cut = False
        self._unanswered: list[Dead] = []
        self._reported = time.monotonic()
        self._replays = [
            Replayer(rule, earlier=plan.rules[:place], wanted=plan.wanted, ready=self._is_ready) for place, rule in enumerate(plan.rules)
        ]
        self.handled = 0
        self.given_up = 0

    @property
    def failing(self) -> int:
        """Messages that were given up, or wait for another try."""
        return self.given_up + self._turns.waiting + sum(each.refused for each in self._replays)

    @property
    def is_busy(self) -> bool:
        """Whether the next round has work at once, apart from failed messages."""
        unread = self._is_cut and not self._turns.is_full
        return unread or self._turns.has_untold or any(each.until_due() <= 0 for each in self._replays)

    def round(self, opened: OperatorSession) -> None:
        """Poll for new messages, handle due ones for a while, then replay."""
        self._answer(opened)
        if self._plan.handlers:
            began = time.monotonic()
            self._read_new(opened)
            now = time.monotonic()
            self._tell(opened, now + max(LOOK_EVERY, now - began))
        for each in self._replays:
            each.round(opened, self._stopped)

    def until_due(self, longest: float) -> float:
        """Seconds until a message is due for a try or a replay, at most `longest`."""
        if self.is_busy:
            return 0.0
        return max(min(longest, self._turns.until_due(time.monotonic()), *(each.until_due() for each in self._replays)), 0.0)

    def summary(self) -> str:
        """The outcome, in one line."""
        replayed, refused = (sum(getattr(each, name) for each in self._replays) for name in ("replayed", "refused"))
        parts = {"handled": self.handled, "replayed": replayed, "given up": self.given_up, "not replayed": refused}
        done = [f"{number} {what}" for what, number in parts.items() if number or what == "handled"]
        waits = self._turns.waiting
        waiting = [f"{count(waits, 'waits', 'wait')} for another try"] if waits else []
        return "Dead messages: " + ", ".join([*done, *waiting]) + "."

    def _read_new(self, opened: OperatorSession) -> None:
        """Read new messages, of each exchange as many as there is room for."""
        # Read before the messages: messages that become visible later are at or above it.
        floor = read_floor(opened)
        self._is_cut = True
        for dead in self._walk.unseen(opened):
            exchange, place = dead["exchange"], place_of(dead)
            if self._stopped():
                return
            if self._turns.is_left(exchange, place):
                continue
            if self._turns.admits(exchange):
                self._add(dead)
            elif not self._turns.leave(exchange, place):
                return
        self._is_cut = False
        self._walk.rise(floor, self._turns.is_left)

    def _read_on(self, opened: OperatorSession, exchange: str, after: Place) -> None:
        """Read more messages of an exchange."""
        for dead in self._walk.unseen(opened, exchange, after):
            if not self._turns.admits(exchange):
                self._turns.leave(exchange, place_of(dead))
                return
            self._add(dead)
        self._turns.read_all(exchange)

    def _add(self, dead: Dead) -> None:
        self._turns.put(WaitingTry(dead["exchange"], place_of(dead), self._plan.handlers, time.monotonic(), dead))
        self._walk.saw(dead)

    def _tell(self, opened: OperatorSession, end: float) -> None:
        while not self._stopped() and (now := time.monotonic()) < end and (exchange := self._turns.next(now)) is not None:
            if (after := self._turns.unread(exchange)) is not None:
                self._read_on(opened, exchange, after)
            if (one := self._turns.take(exchange, time.monotonic())) is not None:
                self._handle(opened, one)

    def _handle(self, opened: OperatorSession, one: WaitingTry) -> None:
        try:
            dead = self._read(opened, one)
        except StoreError:
            self._turns.put(one)
            raise
        if dead is None:
            return
        outcomes = [(each, each.handle(dead)) for each in one.rest]
        for _, outcome in outcomes:
            if isinstance(outcome, CannotHandle | RetryLater) and outcome.why:
                complain(outcome.why)
        spoilt = one.spoilt or any(isinstance(outcome, CannotHandle) for _, outcome in outcomes)
        left = [(each, outcome) for each, outcome in outcomes if isinstance(outcome, RetryLater)]
        tries = one.tries + any(outcome.counts for _, outcome in left)
        if left and tries < self._plan.tries:
            wait = max(outcome.after for _, outcome in left)
            if tries > one.tries:
                wait = max(wait, pause(one.tries))
            rest = [each for each, _ in left]
            self._turns.put(WaitingTry(one.exchange, one.place, rest, time.monotonic() + wait, tries=tries, spoilt=spoilt))
        elif left or spoilt:
            self._give_up(dead, tries if left else 0)
        else:
            self._finish(opened, dead)

    def _read(self, opened: OperatorSession, one: WaitingTry) -> Dead | None:
        """A message with the values for the handlers; None if it was acknowledged since its last attempt."""
        dead = one.dead or self._walk.read(opened, one.place)
        return self._plan.look(opened, dead) if dead and self._plan.look else dead

    def _give_up(self, dead: Dead, tries: int) -> None:
        self.given_up += 1
        if tries:
            complain(f"Message {dead['id']} is given up after {count(tries, 'try', 'tries')}; it stays unacknowledged.")

    def _finish(self, opened: OperatorSession, dead: Dead) -> None:
        self.handled += 1
        if self._plan.ack and not any(each.matches(dead) for each in self._plan.rules):
            self._unanswered.append(dead)
            self._answer(opened)
        if self._plan.acts and time.monotonic() - self._reported > REPORT_SECONDS:
            self._reported = time.monotonic()
            complain(f"{count(self.handled, 'dead message')} handled so far.")

    def _answer(self, opened: OperatorSession) -> None:
        """Acknowledge handled messages; after a lost connection this is repeated with the next one."""
        note = "handled by " + ", ".join(each.name for each in self._plan.handlers)
        while self._unanswered:
            dead = self._unanswered[0]
            opened.rows("answer_dead", id=dead["id"], xid=dead["xid"], seq=dead["seq"], by=BY, note=note)
            del self._unanswered[0]

    def _is_ready(self, dead: Mapping[str, Any]) -> bool:
        """Whether the handlers are through with a message: a replay answers it, and they would not see it any more."""
        place = place_of(dead)
        return not self._plan.handlers or (self._walk.knows(place) and not self._turns.is_open(dead["exchange"], place))


def watch(plan: WatchPlan, *, once: bool, poll: float) -> int:
    """Handle dead messages until a signal, or only the present ones; return the exit code.

    The first connection must succeed; a later loss is waited out.
    """
    with _signals(plan.handlers) as stopped:
        work = DeadWatch(plan, stopped=stopped)
        post = _Post(work, plan, stopped)
        try:
            code = post.once() if once else post.stay(poll)
        finally:
            for each in plan.handlers:
                each.close()
        if plan.acts:
            complain(work.summary())
    return code


class _Post:
    """Runs a watch over one connection after the other; of watches with the same handlers only one is active."""

    def __init__(self, work: DeadWatch, plan: WatchPlan, stopped: Callable[[], bool]) -> None:
        self._work = work
        self._plan = plan
        self._stopped = stopped
        self._reported = False

    def once(self) -> int:
        """What is there."""
        with session() as opened:
            if self._is_active(opened):
                self._work.round(opened)
                while self._work.is_busy and not self._stopped():
                    self._work.round(opened)
        return REFUSED if self._work.failing else 0

    def stay(self, poll: float) -> int:
        """Until a signal."""
        with session() as opened:
            self._until_lost(opened, poll)
        while not self._stopped():
            try:
                with session() as opened:
                    self._until_lost(opened, poll)
            except StoreError:
                self._pause(min(poll, 5.0))
        return 0

    def _until_lost(self, opened: OperatorSession, poll: float) -> None:
        try:
            while not self._stopped() and not self._is_active(opened):
                self._pause(min(poll, 5.0))
            opened.listen(CHANNEL)
            while not self._stopped():
                self._work.round(opened)
                end = time.monotonic() + self._work.until_due(poll)
                while not self._stopped() and (rest := end - time.monotonic()) > 0 and not opened.wait(min(rest, SLICE)):
                    pass
        except StoreError as error:
            complain(f"{error} The watch goes on when it is back.")

    def _is_active(self, opened: OperatorSession) -> bool:
        if not self._plan.acts:
            return True
        handlers = hashlib.sha256(f"{opened.schema}\0{self._plan.identity}".encode(errors="surrogateescape")).hexdigest()
        taken: bool = opened.row("take_watch", handlers=handlers)["taken"]
        if not taken and not self._reported:
            self._reported = True
            complain("Another watch with the same handlers is at work; this one stands by.")
        return taken

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopped() and time.monotonic() < end:
            time.sleep(SLICE)


@contextmanager
def _signals(handlers: Sequence[Handler]) -> Iterator[Callable[[], bool]]:
    """The first SIGTERM or SIGINT lets the running action finish, the second ends it."""
    caught: list[int] = []

    def catch(number: int, _: object) -> None:
        caught.append(number)
        if len(caught) > 1:
            for each in handlers:
                each.cut()

    before: dict[int, Any] = {number: signal.signal(number, catch) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(caught)
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
