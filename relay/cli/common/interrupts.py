"""Signals that end a job in order: it gives up at once, says so in one line, and ends with 128 and the signal's number."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

PATIENCE = 10.0
"""Seconds for what the job has to put away: uncommitted files, a transaction, Spark. Nothing of it is needed, for a kill does no harm."""
_TWICE = 1.0
"""Seconds in which a signal that comes again is the same one: `timeout` sends it to the process and to its group."""
_READING = 5.0
"""Seconds for whoever reads the error output."""
_SENTENCE = "nothing half-done counts, and the next run goes on from there."
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the block SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, and what comes after it is the end of the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch()
    with watch.installed():
        try:
            yield
        except KeyboardInterrupt:
            watch.end(watch.caught or signal.SIGINT)
        finally:
            # Whatever the interrupt has turned into on its way: Spark's JVM may have got the signal too.
            if watch.caught:
                watch.end(watch.caught)


class _Watch:
    """Hears of signals in a thread of its own, because the main one may be in a library that returns late, or with a handler of Spark's."""

    def __init__(self) -> None:
        self.caught = 0
        self._telling = threading.Lock()
        self._told = False
        self._read, self._write = socket.socketpair()
        self._write.settimeout(0)
        self._stderr = sys.stderr

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take the signals, but for those that whoever started this wants ignored (nohup); give them back in the end."""
        mine = [number for number in _SIGNALS if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN]
        threading.Thread(target=self._listen, name="signals", daemon=True).start()
        fd = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, self._interrupt) for number in mine}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(fd)
            self._write.close()

    def end(self, number: int) -> NoReturn:
        """End the process with nothing more to read than the one line."""
        self._tell(number)
        os._exit(128 + number)

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        if not self.caught:
            self.caught = number
            _hush()
            raise KeyboardInterrupt(number)

    def _listen(self) -> None:
        first = 0.0
        with self._read:
            while found := self._read.recv(1):
                if found[0] not in _SIGNALS:
                    continue
                if not first:
                    first = time.monotonic()
                    threading.Thread(target=self._wait, args=[found[0]], daemon=True).start()
                elif time.monotonic() - first > _TWICE:
                    self.end(found[0])

    def _wait(self, number: int) -> None:
        _hush()
        self._tell(number)
        time.sleep(PATIENCE)
        self.end(number)

    def _tell(self, number: int) -> None:
        """Say the line and what was said before it, in a thread: where nobody reads any more, as behind a pager, that may never end."""
        telling = threading.Thread(target=self._say, args=[number], daemon=True)
        telling.start()
        telling.join(_READING)

    def _say(self, number: int) -> None:
        with self._telling:
            if not self._told:
                self._told = True
                with suppress(OSError, ValueError):
                    print(f"Stopped by {signal.Signals(number).name}: {_SENTENCE}", file=self._stderr, flush=True)
        with suppress(OSError, ValueError):
            sys.stdout.flush()


def _hush() -> None:
    """From here on libraries tell only of what the interrupt has torn."""
    logging.disable(logging.CRITICAL)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for good
