"""The watch over dead messages: hears of them by `dead_message`, and looks by itself, because a notification is only a hint."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from relay.cli.handlers import Again, Dead, Handler, Never, pause
from relay.cli.output import count
from relay.cli.replays import BY, Replays
from relay.cli.rules import Rule
from relay.cli.support import REFUSED, complain, session
from relay.cli.walk import PAGE, Place, Walk, place_of, read_floor
from relay.errors import StoreError

if TYPE_CHECKING:
    from relay.console import Console

CHANNEL: Final = "dead_message"
SLICE: Final = 0.25
"""Seconds after which a signal is noticed at the latest."""
TRIES: Final = 10
TOLD_EVERY: Final = 5.0
"""Seconds between two lines of progress."""

Look = Callable[["Console", Dead], Dead]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a watch does."""

    handlers: Sequence[Handler]
    rules: Sequence[Rule] = ()
    wanted: Mapping[str, object] = field(default_factory=lambda: dict.fromkeys(("exchange", "routing_key", "result", "error_code")))
    """Filter, as `watch_dead.sql` takes it."""
    look: Look | None = None
    """Adds to a message what the handlers need."""
    ack: bool = False
    """Acknowledge what all handlers have handled, but for what a rule replays: that is its answer."""
    tries: int = TRIES
    """Of one message by its handlers."""
    identity: str = ""
    """What tells this watch from those that do something else."""

    @property
    def acts(self) -> bool:
        """It does more than show, so two of the same would do it twice."""
        return bool(self.rules) or any(each.acts for each in self.handlers)


@dataclass
class Waiting:
    """A message that waits for another try by some handlers."""

    dead: Dead
    rest: Sequence[Handler]
    tries: int
    due: float
    spoilt: bool
    """One handler has given it up."""


class Watch:
    """Finds unacknowledged dead messages, each once, and has them handled one at a time.

    Args:
        plan: what is done.
        stopped: says whether a signal came.

    """

    def __init__(self, plan: Plan, *, stopped: Callable[[], bool]) -> None:
        self._plan = plan
        self._stopped = stopped
        self._walk = Walk(plan.wanted)
        self._again: dict[Place, Waiting] = {}
        self._unanswered: list[Dead] = []
        self._told = time.monotonic()
        self._replays = [
            Replays(rule, earlier=plan.rules[:place], wanted=plan.wanted, ready=self._is_ready) for place, rule in enumerate(plan.rules)
        ]
        self.handled = 0
        self.given_up = 0

    @property
    def failing(self) -> int:
        """Messages that were given up, or wait for another try."""
        return self.given_up + len(self._again) + sum(each.refused for each in self._replays)

    def round(self, opened: Console) -> None:
        """Handle what is new, then what is due for another try, then replay."""
        self._answer(opened)
        if self._plan.handlers:
            self._handle_new(opened)
        for waiting in list(self._again.values()):
            if waiting.due <= time.monotonic() and not self._stopped():
                self._try_again(opened, waiting)
        for each in self._replays:
            each.round(opened, self._stopped)

    def until_due(self, longest: float) -> float:
        """Seconds until a message is due for another try or a replay, at most `longest`."""
        due = min((each.due for each in self._again.values()), default=float("inf")) - time.monotonic()
        return max(min(longest, due, *(each.until_due() for each in self._replays)), 0.0)

    def summary(self) -> str:
        """What came of it, in a line."""
        replayed, refused = (sum(getattr(each, name) for each in self._replays) for name in ("replayed", "refused"))
        parts = {"handled": self.handled, "replayed": replayed, "given up": self.given_up, "not replayed": refused}
        told = [f"{number} {what}" for what, number in parts.items() if number or what == "handled"]
        waiting = [f"{count(len(self._again), 'waits', 'wait')} for another try"] if self._again else []
        return "Dead messages: " + ", ".join([*told, *waiting]) + "."

    def _handle_new(self, opened: Console) -> None:
        # Read before the messages: what becomes visible after this look stands at or above it.
        floor = read_floor(opened)
        for dead in self._walk.unseen(opened):
            if self._stopped() or len(self._again) >= PAGE:
                return
            self._walk.saw(place_of(dead))
            self._handle(opened, Waiting(dead, self._plan.handlers, 0, 0.0, spoilt=False))
        self._walk.rise(floor)

    def _handle(self, opened: Console, one: Waiting) -> None:
        dead = self._plan.look(opened, one.dead) if self._plan.look else one.dead
        outcomes = [(each, each.handle(dead)) for each in one.rest]
        for _, outcome in outcomes:
            if isinstance(outcome, Never | Again) and outcome.why:
                complain(outcome.why)
        spoilt = one.spoilt or any(isinstance(outcome, Never) for _, outcome in outcomes)
        left = [(each, outcome) for each, outcome in outcomes if isinstance(outcome, Again)]
        tries = one.tries + any(outcome.counts for _, outcome in left)
        self._again.pop(place_of(dead), None)
        if left and tries < self._plan.tries:
            wait = max(outcome.after for _, outcome in left)
            if tries > one.tries:
                wait = max(wait, pause(one.tries))
            rest = [each for each, _ in left]
            self._again[place_of(dead)] = Waiting(one.dead, rest, tries, time.monotonic() + wait, spoilt)
        elif left or spoilt:
            self._give_up(dead, tries if left else 0)
        else:
            self._finish(opened, one.dead)

    def _give_up(self, dead: Dead, tries: int) -> None:
        self.given_up += 1
        if tries:
            complain(f"Message {dead['id']} is given up after {count(tries, 'try', 'tries')}; it stays unacknowledged.")

    def _finish(self, opened: Console, dead: Dead) -> None:
        self.handled += 1
        if self._plan.ack and not any(each.matches(dead) for each in self._plan.rules):
            self._unanswered.append(dead)
            self._answer(opened)
        if self._plan.acts and time.monotonic() - self._told > TOLD_EVERY:
            self._told = time.monotonic()
            complain(f"{count(self.handled, 'dead message')} handled so far.")

    def _answer(self, opened: Console) -> None:
        """Acknowledge what was handled; what a lost connection has kept from it is done after the next one."""
        note = "handled by " + ", ".join(each.name for each in self._plan.handlers)
        while self._unanswered:
            dead = self._unanswered[0]
            opened.rows("answer_dead", id=dead["id"], xid=dead["xid"], seq=dead["seq"], by=BY, note=note)
            del self._unanswered[0]

    def _try_again(self, opened: Console, waiting: Waiting) -> None:
        """Somebody may have answered meanwhile."""
        dead = waiting.dead
        if opened.row("read_unanswered", id=dead["id"], xid=dead["xid"], seq=dead["seq"])["unanswered"]:
            self._handle(opened, waiting)
        else:
            self._again.pop(place_of(dead), None)

    def _is_ready(self, place: Place) -> bool:
        """Whether the handlers are through with a message: a replay answers it, and they would not see it any more."""
        return not self._plan.handlers or (self._walk.knows(place) and place not in self._again)


def watch(plan: Plan, *, once: bool, poll: float) -> int:
    """Handle dead messages until a signal, or what is there; return the exit code.

    The first connection must succeed; a later loss is waited out.
    """
    with _signals(plan.handlers) as stopped:
        work = Watch(plan, stopped=stopped)
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
    """Where a watch stands: one connection after the other, and beside others with the same handlers only one is at work."""

    def __init__(self, work: Watch, plan: Plan, stopped: Callable[[], bool]) -> None:
        self._work = work
        self._plan = plan
        self._stopped = stopped
        self._told = False

    def once(self) -> int:
        """One round."""
        with session() as opened:
            if self._is_mine(opened):
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

    def _until_lost(self, opened: Console, poll: float) -> None:
        try:
            while not self._stopped() and not self._is_mine(opened):
                self._pause(min(poll, 5.0))
            opened.listen(CHANNEL)
            while not self._stopped():
                self._work.round(opened)
                end = time.monotonic() + self._work.until_due(poll)
                while not self._stopped() and (rest := end - time.monotonic()) > 0 and not opened.wait(min(rest, SLICE)):
                    pass
        except StoreError as error:
            complain(f"{error} The watch goes on when it is back.")

    def _is_mine(self, opened: Console) -> bool:
        if not self._plan.acts:
            return True
        handlers = hashlib.sha256(f"{opened.schema}\0{self._plan.identity}".encode(errors="surrogateescape")).hexdigest()
        taken: bool = opened.row("take_watch", handlers=handlers)["taken"]
        if not taken and not self._told:
            self._told = True
            complain("Another watch with the same handlers is at work; this one stands by.")
        return taken

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopped() and time.monotonic() < end:
            time.sleep(SLICE)


@contextmanager
def _signals(handlers: Sequence[Handler]) -> Iterator[Callable[[], bool]]:
    """The first SIGTERM or SIGINT lets what is under way finish, the second ends it."""
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
