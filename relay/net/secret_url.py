"""A connection string for those who connect again and again: plain, or in a file that is read anew for each connection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from relay.errors import SettingsError

Secret = str | Callable[[], str]
"""A connection string, or what gives the one that holds now."""


class DatabaseTarget(NamedTuple):
    """A database to connect to, and who hears a sentence, with what to do, about a connection that is not safe."""

    secret: Secret
    on_risk: Callable[[str], None]


Conninfo = str | DatabaseTarget
"""Where to connect; nobody hears of a plain text's risks."""
LONGEST = 64 << 10
"""Bytes; no connection string is longer, and a wrong name must not fill the memory."""


def current(secret: Secret) -> str:
    """The connection string to use for a connection that is about to be made."""
    return secret if isinstance(secret, str) else secret()


def read(path: Path) -> str:
    """The text of a secret's file, without white space around it.

    Raises:
        SettingsError: it cannot be read; the text is the reason alone.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)
        if len(content) > LONGEST:
            raise SettingsError(f"longer than {LONGEST} bytes")
        return content.decode("utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError((error.strerror if isinstance(error, OSError) else None) or "not a text in UTF-8") from error


class SecretFile:
    """Gives what the file holds at each call, and what it held before while it is gone or holds nothing usable.

    Args:
        path: the file; a pipe, which can be read only once, is not read again.
        value: what it held at the start.
        check: raises SettingsError with a sentence about a text that is not usable.
        changed: called when another text is usable from now on.
        kept: called with a sentence when the file is not usable, once until it is again.

    """

    def __init__(
        self, path: Path, value: str, *, check: Callable[[str], None], changed: Callable[[], None], kept: Callable[[str], None]
    ) -> None:
        self._path = path
        self._value = value
        self._check = check
        self._changed = changed
        self._kept = kept
        self._told = False

    def __call__(self) -> str:
        """The text that holds now."""
        try:
            text = self._read()
            if text != self._value:
                self._check(text)
        except SettingsError as error:
            if not self._told:
                self._told = True
                self._kept(f"{error} What it held before is used meanwhile.")
            return self._value
        self._told = False
        if text != self._value:
            self._value = text
            self._changed()
        return self._value

    def _read(self) -> str:
        try:
            if self._can_be_read_once():
                return self._value
            return read(self._path)
        except (SettingsError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise SettingsError(f"{self._path} cannot be read ({why}): write it again.") from error

    def _can_be_read_once(self) -> bool:
        return self._path.is_fifo() or self._path.is_char_device() or self._path.is_socket()
