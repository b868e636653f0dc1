"""The watch over dead messages: hears of them by `dead_message`, and looks by itself, because a notification is only a hint."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import typer

from relay.cli.output import count, plain, quoted, show_json_line, words
from relay.cli.support import REFUSED, complain, console
from relay.errors import StoreError

if TYPE_CHECKING:
    from relay.console import Console

CHANNEL: Final = "dead_message"
PAGE: Final = 500
"""Dead messages of one look; also how many may wait for another try before no more are read."""
SLICE: Final = 0.25
"""Seconds after which a signal is noticed at the latest."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds between two tries of a command for one message; doubles from the first to the longest."""

Dead = dict[str, Any]
Look = Callable[["Console", Dead], Dead]
Place = tuple[int, int, int]
"""Archiving transaction, transaction, number: the order in which messages became dead."""


class Handler(Protocol):
    """What is done with a dead message."""

    def handle(self, dead: Dead) -> bool | None:
        """True: acknowledge it; None: it was only shown; False: try again later."""

    def cut(self) -> None:
        """End at once what is under way."""


class LineHandler:
    """Prints a line for each message; somebody else answers."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def handle(self, dead: Dead) -> bool | None:
        """See `Handler`."""
        if self._as_json:
            show_json_line(dead)
            return None
        where = f"{quoted(dead['exchange'])} {quoted(dead['routing_key'])} after {count(dead['attempts'], 'attempt')}"
        why = f"{dead['error_code'] or 'no code'}: {dead['error_detail'] or 'no detail'}"
        line = f"{words(dead['archived_at'])} {dead['result']} {dead['id']} to {where}, {why}"
        typer.echo(words(line))
        return None

    def cut(self) -> None:
        """See `Handler`."""


class CommandHandler:
    """Runs a command for each message, in a process group of its own so that Ctrl-C lets it finish."""

    def __init__(self, argv: list[str], *, timeout: float) -> None:
        self._argv = argv
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None

    def handle(self, dead: Dead) -> bool | None:
        """See `Handler`."""
        text = json.dumps(dead, default=plain, ensure_ascii=False).encode() + b"\n"
        try:
            with subprocess.Popen(self._argv, stdin=subprocess.PIPE, start_new_session=True) as self._process:
                return self._ended(dead, text, self._process)
        except OSError as error:
            complain(f"The command cannot be run: {error.strerror}.")
            return False

    def cut(self) -> None:
        """See `Handler`."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _ended(self, dead: Dead, text: bytes, process: subprocess.Popen[bytes]) -> bool:
        try:
            process.communicate(text, timeout=self._timeout)
        except subprocess.TimeoutExpired:
            self.cut()
            complain(f"The command took longer than {self._timeout:g} s for message {dead['id']} and was killed.")
            return False
        if process.returncode:
            complain(f"The command ended with {process.returncode} for message {dead['id']}; it stays unacknowledged.")
        return process.returncode == 0


class Watch:
    """Finds unacknowledged dead messages, each once, and has them handled one at a time.

    Args:
        handler: what is done with each.
        look: adds to a message what the handler needs.
        stopped: says whether a signal came.

    """

    def __init__(self, handler: Handler, *, look: Look | None, stopped: Callable[[], bool]) -> None:
        self._handler = handler
        self._look = look
        self._stopped = stopped
        self._floor = 0
        self._seen: set[Place] = set()
        self._again: dict[Place, tuple[Dead, int, float]] = {}

    @property
    def failing(self) -> int:
        """Messages that wait for another try."""
        return len(self._again)

    def round(self, opened: Console) -> None:
        """Handle what is new, then what is due for another try."""
        # Read before the messages: what becomes visible after this look stands at or above it.
        floor = int(opened.row("read_floor")["floor"])
        through = True
        for dead in self._unseen(opened):
            if self._stopped() or len(self._again) >= PAGE:
                through = False
                break
            self._handle(opened, dead, tries=0)
        if through:
            self._floor = floor
            self._seen = {place for place in self._seen if place[0] >= floor}
        for dead, tries, due in list(self._again.values()):
            if due <= time.monotonic() and not self._stopped():
                self._try_again(opened, dead, tries)

    def until_due(self, longest: float) -> float:
        """Seconds until a message is due for another try, at most `longest`."""
        due = min((due for _, _, due in self._again.values()), default=float("inf"))
        return min(longest, max(due - time.monotonic(), 0.0))

    def _unseen(self, opened: Console) -> Iterator[Dead]:
        place: Place = (self._floor, 0, 0)
        while True:
            page = opened.rows("watch_dead", archived_xid=str(place[0]), xid=str(place[1]), seq=place[2], most=PAGE)
            for dead in page:
                place = _place(dead)
                if place not in self._seen:
                    yield dead
            if len(page) < PAGE:
                return

    def _handle(self, opened: Console, dead: Dead, *, tries: int) -> None:
        place = _place(dead)
        handled = self._handler.handle(self._look(opened, dead) if self._look else dead)
        self._seen.add(place)
        if handled is False:
            pause = min(FIRST_PAUSE * 2.0 ** min(tries, 60), LONGEST_PAUSE)
            self._again[place] = (dead, tries + 1, time.monotonic() + pause)
            return
        self._again.pop(place, None)
        if handled:
            opened.rows("acknowledge_dead", id=dead["id"], note="handled by relay dead watch")

    def _try_again(self, opened: Console, dead: Dead, tries: int) -> None:
        """Somebody may have answered meanwhile."""
        if opened.row("read_unanswered", id=dead["id"], xid=dead["xid"], seq=dead["seq"])["unanswered"]:
            self._handle(opened, dead, tries=tries)
        else:
            self._again.pop(_place(dead), None)


def watch(handler: Handler, *, once: bool, poll: float, look: Look | None) -> int:
    """Handle dead messages until a signal, or what is there; return the exit code.

    The first connection must succeed; a later loss is waited out.
    """
    with _signals(handler) as stopped:
        work = Watch(handler, look=look, stopped=stopped)
        with console() as opened:
            if once:
                work.round(opened)
                return REFUSED if work.failing else 0
            opened.listen(CHANNEL)
            _until_lost(work, opened, poll, stopped)
        while not stopped():
            _once_more(work, poll, stopped)
    return 0


def _once_more(work: Watch, poll: float, stopped: Callable[[], bool]) -> None:
    try:
        with console() as opened:
            opened.listen(CHANNEL)
            _until_lost(work, opened, poll, stopped)
    except StoreError:
        _pause(min(poll, 5.0), stopped)


def _until_lost(work: Watch, opened: Console, poll: float, stopped: Callable[[], bool]) -> None:
    try:
        while not stopped():
            work.round(opened)
            end = time.monotonic() + work.until_due(poll)
            while not stopped() and (rest := end - time.monotonic()) > 0 and not opened.wait(min(rest, SLICE)):
                pass
    except StoreError as error:
        complain(f"{error} The watch goes on when it is back.")


def _pause(seconds: float, stopped: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not stopped() and time.monotonic() < end:
        time.sleep(SLICE)


@contextmanager
def _signals(handler: Handler) -> Iterator[Callable[[], bool]]:
    """The first SIGTERM or SIGINT lets the command under way finish, the second ends it."""
    caught: list[int] = []

    def catch(number: int, _: object) -> None:
        caught.append(number)
        if len(caught) > 1:
            handler.cut()

    before = {number: signal.signal(number, catch) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(caught)
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _place(dead: Dead) -> Place:
    return int(dead["archived_xid"]), int(dead["xid"]), dead["seq"]
