"""Keeps a watch over dead messages running.

The channel `dead_message` wakes the watch. The watch also polls, because a notification is only a hint.
"""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from relay.cli.common.support import REFUSED, complain, session
from relay.cli.dead_watch.actions import Handler
from relay.cli.dead_watch.loop import DeadWatch
from relay.cli.dead_watch.plan import WatchPlan
from relay.errors import StoreError
from relay.postgres.operator_session import BusyError

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

CHANNEL: Final = "dead_message"
SLICE: Final = 0.25
"""Seconds after which a signal is noticed at the latest."""


def watch(plan: WatchPlan, *, once: bool, poll: float) -> int:
    """Handle dead messages until a signal, or with `once` only the existing ones; return the exit code.

    The first connection must succeed; after a later loss the watch waits and reconnects.
    """
    with _signals(plan.handlers) as stopped:
        work = DeadWatch(plan, stopped=stopped)
        running = _WatchSession(work, plan, stopped)
        try:
            code = running.run_once() if once else running.run(poll)
        finally:
            for each in plan.handlers:
                each.close()
        if plan.acts:
            complain(work.summary())
    return code


class _WatchSession:
    """Runs a watch, and reconnects after a loss. Of several watches with the same handlers only one is active."""

    def __init__(self, work: DeadWatch, plan: WatchPlan, stopped: Callable[[], bool]) -> None:
        self._work = work
        self._plan = plan
        self._stopped = stopped
        self._reported = False

    def run_once(self) -> int:
        """Handle the existing dead messages; return the exit code."""
        with session() as opened:
            if self._is_active(opened):
                self._work.round(opened)
                while self._work.is_busy and not self._stopped():
                    self._work.round(opened)
        return REFUSED if self._work.failing else 0

    def run(self, poll: float) -> int:
        """Handle dead messages until a signal, and reconnect after a loss; return the exit code."""
        with session() as opened:
            self._until_lost(opened, poll)
        while not self._stopped():
            self._pause(min(poll, 5.0))
            with suppress(StoreError), session() as opened:
                self._until_lost(opened, poll)
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
        except (StoreError, BusyError) as error:
            complain(f"{error} The watch connects again.")

    def _is_active(self, opened: OperatorSession) -> bool:
        if not self._plan.acts:
            return True
        handlers = hashlib.sha256(f"{opened.schema}\0{self._plan.identity}".encode(errors="surrogateescape")).hexdigest()
        try:
            taken: bool = opened.row("take_watch", handlers=handlers)["taken"]
        except BusyError as error:
            self._work.meet_lock(error)
            return False
        if not taken and not self._reported:
            self._reported = True
            complain("Another watch with the same handlers is at work; this one waits.")
        return taken

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopped() and time.monotonic() < end:
            time.sleep(SLICE)


@contextmanager
def _signals(handlers: Sequence[Handler]) -> Iterator[Callable[[], bool]]:
    """Handle signals: after the first SIGTERM or SIGINT the running action may finish, the second ends the action."""
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
