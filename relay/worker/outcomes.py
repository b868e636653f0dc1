"""Turns the result or error of a handler into the verdict by which the engine decides. Pure functions."""

from __future__ import annotations

import re
import traceback
from typing import Final

from relay.errors import RelayError
from relay.message import CONFIRMED, PublishResult, Verdict

MAX_TEXT: Final = 500
"""Characters of an exception's text that are kept."""
_MAX_READ: Final = 4 * MAX_TEXT
"""Characters of an exception's text that are read, before control characters become one space."""
_DEFAULT_CODES: Final = {Verdict.INVALID: "handler_rejected"}
"""The code of a verdict if the handler gives no code."""
STOPPED: Final = PublishResult(Verdict.UNWRITTEN, "stopped", "The worker stopped before it was handled.")
LATE: Final = PublishResult(Verdict.UNWRITTEN, "deadline", "The lock was about to expire before it was handled.")
LOST: Final = PublishResult(Verdict.UNKNOWN, "stopped", "The worker was cut off while it was handled.")
OVERDUE: Final = PublishResult(Verdict.OVERDUE, "time_limit", "The handler did not end within its time.")


class Reject(RelayError):  # noqa: N818 - a handler's decision, not an error
    """The message can never be handled: it is archived as `rejected` at once, with this sentence and code."""

    def __init__(self, sentence: str, *, code: str = "") -> None:
        super().__init__(sentence)
        self.code = code


class Retry(RelayError):  # noqa: N818 - as above
    """The attempt failed for a reason that operators may read: only this exception's text is stored."""


class TransientAttemptError(Exception):
    """The attempt failed for a reason other than the handler; no `handler_failed` is logged."""


class NotStartedError(Exception):
    """The handler was not called, for a reason unrelated to the message."""


def verdict(error: BaseException | None, *, package: str = "") -> PublishResult:
    """The result of a handler.

    Of a foreign exception only the type and the line are kept: its text may quote the message, as in `float(card_number)`.

    Args:
        error: the error that the handler raised; None if it returned.
        package: the handler's package.
    """
    if error is None:
        return CONFIRMED
    if isinstance(error, Reject):
        return PublishResult(Verdict.INVALID, _valid_code(error.code), _one_line(_text_of(error)))
    if isinstance(error, NotStartedError):
        return PublishResult(Verdict.UNWRITTEN, "no_connection", _one_line(str(error)))
    kind, where = type(error).__name__, location(error, package)
    shown = type_and_text(error) if isinstance(error, Retry) else f"{kind} ({where})" if where else kind
    return PublishResult(Verdict.REFUSED, "handler_failed", _one_line(shown))


def type_and_text(error: BaseException) -> str:
    """The exception's type and text."""
    return _one_line(f"{type(error).__name__}: {_text_of(error)}".rstrip(": "))


def location(error: BaseException, package: str) -> str:
    """Module and line of the innermost frame in the package; without such a frame, of the innermost frame of all."""
    frames = [(str(frame.f_globals.get("__name__")), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [each for each in frames if each[0].partition(".")[0] == package] or frames
    return ":".join(map(str, own[-1])) if own else ""


def _text_of(error: BaseException) -> str:
    """The exception's text; its `__str__` may itself raise."""
    try:
        return str(error)[:_MAX_READ]
    except Exception:  # noqa: BLE001 - `__str__` may raise anything
        return "its text cannot be had"


def _valid_code(code: object) -> str:
    return code if isinstance(code, str) and re.fullmatch("[a-z][a-z0-9_]{0,62}", code) else _DEFAULT_CODES[Verdict.INVALID]


def _one_line(text: str) -> str:
    """One line of an exception's text; control characters become spaces."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text)[:MAX_TEXT]
