"""Actions of `relay dead watch` on a dead message: print a line, run a command. Webhooks have a module of their own."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import typer

from relay.cli.common.output import count, plain, quoted, show_json_line, words

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds between two tries: the pause doubles from the first to the longest, with jitter. A receiver's Retry-After is capped at the
longest.
"""
INHERITED: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Environment variables that a command gets. The relay's own variables are left out, because they contain passwords."""

Dead = dict[str, Any]


@dataclass(frozen=True)
class Handled:
    """An outcome: this handler has finished with the message."""


@dataclass(frozen=True)
class CannotHandle:
    """An outcome: this handler cannot handle the message; `why` is a sentence."""

    why: str


@dataclass(frozen=True)
class RetryLater:
    """An outcome: the message is to be retried; `why` is a sentence, or empty if the reason was reported before."""

    why: str
    after: float = 0.0
    """The least number of seconds until the next try."""
    counts: bool = True
    """Whether this counts as one of the message's tries. A try does not count while the receiver is unavailable."""


Outcome = Handled | CannotHandle | RetryLater


class Handler(Protocol):
    """An action on a dead message."""

    acts: bool
    """False for a handler that only shows the message, and does not acknowledge it."""
    name: str

    def handle(self, dead: Dead) -> Outcome:
        """Run the action, and return its outcome."""

    def cut(self) -> None:
        """End the running action at once."""

    def close(self) -> None:
        """Free its resources."""


class LineHandler:
    """Prints a line for each message; does not acknowledge the message."""

    acts = False
    name = "log"

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def handle(self, dead: Dead) -> Outcome:
        """See `Handler`."""
        if self._as_json:
            show_json_line(dead)
            return Handled()
        where = f"{quoted(dead['exchange'])} {quoted(dead['routing_key'])} after {count(dead['attempts'], 'attempt')}"
        why = f"{dead['error_code'] or 'no code'}: {dead['error_detail'] or 'no detail'}"
        line = f"{words(dead['archived_at'])} {dead['result']} {dead['id']} to {where}, {why}"
        if missing := dead.get("content_missing"):
            line += f" ({missing})"
        typer.echo(words(line))
        return Handled()

    def cut(self) -> None:
        """See `Handler`."""

    def close(self) -> None:
        """See `Handler`."""


class CommandHandler:
    """Runs a command for each message, in its own process group, so that Ctrl-C lets it finish.

    Args:
        argv: program and arguments; they are not passed through a shell.
        timeout: seconds until the command is killed.
        env: names of further environment variables of this process that the command gets.
    """

    acts = True
    name = "command"

    def __init__(self, argv: list[str], *, timeout: float, env: Sequence[str] = ()) -> None:
        self._argv = argv
        self._timeout = timeout
        self._env = {name: os.environ[name] for name in (*INHERITED, *env) if name in os.environ}
        self._process: subprocess.Popen[bytes] | None = None

    def handle(self, dead: Dead) -> Outcome:
        """See `Handler`."""
        try:
            with subprocess.Popen(self._argv, stdin=subprocess.PIPE, start_new_session=True, env=self._env) as self._process:
                return self._ended(dead, as_json(dead) + b"\n", self._process)
        except OSError as error:
            return RetryLater(f"The command cannot be run: {error.strerror}.")

    def cut(self) -> None:
        """See `Handler`."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """See `Handler`."""

    def _ended(self, dead: Dead, text: bytes, process: subprocess.Popen[bytes]) -> Outcome:
        try:
            process.communicate(text, timeout=self._timeout)
        except subprocess.TimeoutExpired:
            self.cut()
            return RetryLater(f"The command took longer than {self._timeout:g} s for message {dead['id']} and was killed.")
        if process.returncode:
            return RetryLater(f"The command ended with {process.returncode} for message {dead['id']}; it stays unacknowledged.")
        return Handled()


def pause(failures: int) -> float:
    """Seconds until the next attempt. The pause doubles with each failure up to a limit, with jitter."""
    return min(FIRST_PAUSE * 2.0 ** min(failures, 60), LONGEST_PAUSE) * random.uniform(0.75, 1.0)  # noqa: S311 - no secret


def as_json(value: Any) -> bytes:
    """The value as JSON in ASCII, with times as ISO 8601 in UTC."""
    return json.dumps(value, default=plain).encode("ascii")
