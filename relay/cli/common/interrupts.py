"""Ends a job cleanly on a signal: the job stops at once, prints one line, and exits with 128 plus the signal's number."""

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
"""Seconds for clean-up: uncommitted files, a transaction, Spark. Clean-up may be cut off, because a kill does no harm."""
SAME_SIGNAL_SECONDS = 1.0
"""Seconds in which a repeated signal counts as the same signal: `timeout` signals the process and its group."""
WRITE_SECONDS = 5.0
"""Seconds for writing to a slow reader of the error output."""
_SENTENCE = "nothing half-done counts, and the next run continues from there."
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt within the block; a further signal ends the process."""
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
            # Another error may have replaced the interrupt, for example because the same signal ended Spark's JVM.
            if watch.caught:
                watch.end(watch.caught)


class _Watch:
    """Receives signals in its own thread: the main thread may be inside a slow library, or Spark may have replaced the handler."""

    def __init__(self) -> None:
        self.caught = 0
        self._telling = threading.Lock()
        self._reported = False
        self._read, self._write = socket.socketpair()
        self._write.settimeout(0)
        self._stderr = sys.stderr

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals, except those ignored by the parent process (nohup); restore the handlers at the end."""
        mine = [number for number in SIGNALS if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN]
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
        """End the process; the line about the signal is the only output."""
        self._report(number)
        os._exit(128 + number)

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        if not self.caught:
            self.caught = number
            _silence_output()
            raise KeyboardInterrupt(number)

    def _listen(self) -> None:
        first = 0.0
        with self._read:
            while found := self._read.recv(1):
                if found[0] not in SIGNALS:
                    continue
                if not first:
                    first = time.monotonic()
                    threading.Thread(target=self._wait, args=[found[0]], daemon=True).start()
                elif time.monotonic() - first > SAME_SIGNAL_SECONDS:
                    self.end(found[0])

    def _wait(self, number: int) -> None:
        _silence_output()
        self._report(number)
        time.sleep(PATIENCE)
        self.end(number)

    def _report(self, number: int) -> None:
        """Write the line and pending output in a thread.

        If no process reads the output, as behind a closed pager, the write may block for ever.
        """
        telling = threading.Thread(target=self._print_once, args=[number], daemon=True)
        telling.start()
        telling.join(WRITE_SECONDS)

    def _print_once(self, number: int) -> None:
        with self._telling:
            if not self._reported:
                self._reported = True
                with suppress(OSError, ValueError):
                    print(f"Stopped by {signal.Signals(number).name}: {_SENTENCE}", file=self._stderr, flush=True)
        with suppress(OSError, ValueError):
            sys.stdout.flush()


def _silence_output() -> None:
    """Silence libraries, which from now on would report only consequences of the interrupt."""
    logging.disable(logging.CRITICAL)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for good
