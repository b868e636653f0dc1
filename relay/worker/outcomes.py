"""What a handler's end means: a pure function from how it ended to the verdict that the engine decides by."""

from __future__ import annotations

import re
import traceback
from typing import Final

from relay.errors import RelayError
from relay.message import CONFIRMED, PublishResult, Verdict

LONGEST: Final = 500
"""Characters of an exception's text that are kept."""
_READ: Final = 4 * LONGEST
"""Characters of it that are read, before control characters become one space."""
_DEFAULT_CODES: Final = {Verdict.INVALID: "handler_rejected"}
"""Of a handler that gives none."""
STOPPED: Final = PublishResult(Verdict.UNWRITTEN, "stopped", "The worker stopped before it was handled.")
LATE: Final = PublishResult(Verdict.UNWRITTEN, "deadline", "The lock was about to expire before it was handled.")
LOST: Final = PublishResult(Verdict.UNKNOWN, "stopped", "The worker was cut off while it was handled.")
OVERDUE: Final = PublishResult(Verdict.OVERDUE, "time_limit", "The handler did not end within its time.")


class Reject(RelayError):  # noqa: N818 - what a handler says, not what went wrong
    """The message can never be handled: archived `rejected` at once, with this sentence and a code."""

    def __init__(self, sentence: str, *, code: str = "") -> None:
        super().__init__(sentence)
        self.code = code


class Retry(RelayError):  # noqa: N818 - as above
    """The attempt has failed, for a reason that operators may read: the text is kept, which that of no other exception is."""


class TransientAttemptError(Exception):
    """What spoiled an attempt although no handler failed; raised within its call, and told elsewhere if at all."""


class NotStartedError(Exception):
    """The handler was not called, for a reason that is not the message's."""


def verdict(error: BaseException | None, *, home: str = "") -> PublishResult:
    """What becomes of a message whose handler ended like this; None for a return.

    Of a foreign exception only the type is kept and the place: its text may quote the message, as that of `float(card_number)` does.

    Args:
        error: what it raised.
        home: the handler's package.
    """
    if error is None:
        return CONFIRMED
    if isinstance(error, Reject):
        return PublishResult(Verdict.INVALID, _code(error.code), _line(_words(error)))
    if isinstance(error, NotStartedError):
        return PublishResult(Verdict.UNWRITTEN, "no_connection", _line(str(error)))
    kind, where = type(error).__name__, place(error, home)
    shown = words(error) if isinstance(error, Retry) else f"{kind} ({where})" if where else kind
    return PublishResult(Verdict.REFUSED, "handler_failed", _line(shown))


def words(error: BaseException) -> str:
    """Type and text; an exception may fail even at that."""
    return _line(f"{type(error).__name__}: {_words(error)}".rstrip(": "))


def place(error: BaseException, home: str) -> str:
    """Module and line of the innermost frame in a package, or of the innermost of all where none is."""
    frames = [(str(frame.f_globals.get("__name__")), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [each for each in frames if each[0].partition(".")[0] == home] or frames
    return ":".join(map(str, own[-1])) if own else ""


def _words(error: BaseException) -> str:
    """Its text; an exception may fail even at that."""
    try:
        return str(error)[:_READ]
    except Exception:  # noqa: BLE001 - whatever its `__str__` does
        return "its text cannot be had"


def _code(code: object) -> str:
    return code if isinstance(code, str) and re.fullmatch("[a-z][a-z0-9_]{0,62}", code) else _DEFAULT_CODES[Verdict.INVALID]


def _line(text: str) -> str:
    """One line of an exception's text; control characters become spaces."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text)[:LONGEST]
