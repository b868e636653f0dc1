"""A connection string, given as text or in a file that is read again for each connection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from relay.errors import SettingsError

Secret = str | Callable[[], str]
"""A connection string, or a function that returns the current connection string."""


class DatabaseTarget(NamedTuple):
    """A database to connect to, and a callback that gets a sentence with advice if a connection is insecure."""

    secret: Secret
    on_risk: Callable[[str], None]


Conninfo = str | DatabaseTarget
"""A database to connect to. For plain text, insecure connections are not reported."""
MAX_BYTES = 64 << 10
"""Most bytes of a secret's file: no connection string is longer, and a wrongly named file must not fill the memory."""


def current(secret: Secret) -> str:
    """The connection string for a new connection."""
    return secret if isinstance(secret, str) else secret()


def read(path: Path) -> str:
    """The text of a secret's file, without surrounding white space.

    Raises:
        SettingsError: the file cannot be read; the error message contains only the reason.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SettingsError(f"longer than {MAX_BYTES} bytes")
        return content.decode("utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError((error.strerror if isinstance(error, OSError) else None) or "not a text in UTF-8") from error


class SecretFile:
    """Returns the file's text at each call, or the previous text while the file is missing or invalid.

    Args:
        path: the file; a pipe can be read only once, so it is not read again.
        value: the text at the start.
        check: raises SettingsError for an invalid text.
        changed: called when the text has changed.
        kept: called with a sentence when the file becomes missing or invalid; not called again until the file was valid.

    """

    def __init__(
        self, path: Path, value: str, *, check: Callable[[str], None], changed: Callable[[], None], kept: Callable[[str], None]
    ) -> None:
        self._path = path
        self._value = value
        self._check = check
        self._changed = changed
        self._kept = kept
        self._reported = False

    def __call__(self) -> str:
        """The current text."""
        try:
            text = self._read()
            if text != self._value:
                self._check(text)
        except SettingsError as error:
            if not self._reported:
                self._reported = True
                self._kept(f"{error} Its previous content is used meanwhile.")
            return self._value
        self._reported = False
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
