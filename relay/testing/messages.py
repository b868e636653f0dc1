"""Waiting and settled messages for tests, and assertions with messages. No I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self, TypedDict, Unpack, overload
from uuid import UUID

from relay.testing.matching import difference

_SHOWN: Final = 20
"""The most messages that a failed assertion lists."""
_LONGEST: Final = 200
"""The most characters of one listed message."""


class Expected(TypedDict, total=False):
    """Expected fields of a message; other fields, and further keys of content, headers and options, are ignored."""

    exchange: str
    routing_key: str
    content: Any
    body: bytes | None
    headers: Mapping[str, Any]
    options: Mapping[str, Any]
    ordering_key: str | None
    available_at: datetime | None
    expires_at: datetime | None
    bundle_key: str | None
    coalesce_key: str | None
    id: UUID
    state: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Queued:
    """A waiting message; the fields are those of `relay.client.Message`."""

    id: UUID
    exchange: str
    routing_key: str
    content: Any
    body: bytes | None
    options: Mapping[str, Any]
    ordering_key: str | None
    available_at: datetime | None
    expires_at: datetime | None
    created_at: datetime
    bundle_key: str | None
    coalesce_key: str | None
    state: str
    """One of: ready, delayed, locked, or keyed (the message waits under its key)."""
    attempts: int
    last_error: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """The message from a JSON row."""
        moments = {name: datetime.fromisoformat(row[name]) if row[name] else None for name in ("available_at", "expires_at", "created_at")}
        body = None if row["body"] is None else base64.b64decode(row["body"])
        read = {"content": json.loads(row["content"]), "options": json.loads(row["options"]), "body": body, "id": UUID(row["id"])}
        return cls(**{name: {**row, **moments, **read}[name] for name in cls.__dataclass_fields__})

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers of the options; the relay adds its own when it publishes."""
        return self.options.get("headers") or {}

    def __str__(self) -> str:
        """The message in one line."""
        payload = json.dumps(self.content, ensure_ascii=False) if self.body is None else f"{len(self.body)} bytes"
        more = [f"{name}={value}" for name in _MORE if (value := getattr(self, name))]
        line = " ".join([self.exchange or "(default exchange)", self.routing_key or "''", payload, *more, self.state])
        return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."


_MORE: Final = ("options", "ordering_key", "bundle_key", "coalesce_key", "available_at", "expires_at", "last_error")


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """A settled message in the archive."""

    id: UUID
    exchange: str
    routing_key: str
    content: Any
    body: bytes | None
    options: Mapping[str, Any]
    result: str
    """One of: success, discarded, rejected, failed or lock_expired."""
    error_code: str | None
    error_detail: str | None
    attempts: int
    handled_by: str | None
    archived_at: datetime
    replay_of: UUID | None


class Messages(Sequence[Queued]):
    """Messages in order, with assertions.

    Args:
        messages: the messages in order.
        title: the beginning of a sentence that lists them.
        hint: advice that is shown if there are no messages.
    """

    def __init__(self, messages: Iterable[Queued], *, title: str, hint: str) -> None:
        self._messages = tuple(messages)
        self._title = title
        self._hint = hint

    @overload
    def __getitem__(self, at: int) -> Queued: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Queued]: ...
    def __getitem__(self, at: int | slice) -> Queued | Sequence[Queued]:
        """One message, or several."""
        return self._messages[at]

    def __len__(self) -> int:
        """The number of messages."""
        return len(self._messages)

    def __eq__(self, other: object) -> bool:
        """Compare as a list, so that `[] == outbox.waiting()` works."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The text that a failed assertion shows."""
        return f"[{', '.join(map(str, self))}]"

    def matching(self, **expected: Unpack[Expected]) -> list[Queued]:
        """The messages that match.

        Raises:
            TypeError: an expected field is not a field of messages.
        """
        if unknown := sorted(expected.keys() - Expected.__annotations__.keys()):
            raise TypeError(f"A message has no {', '.join(unknown)}; it has {', '.join(Expected.__annotations__)}.")
        return [message for message in self if _differs(message, expected) is None]

    def assert_has(self, **expected: Unpack[Expected]) -> Queued:
        """The first message that matches.

        Raises:
            AssertionError: no message matches; the error says how the closest message differs, and lists all messages.
        """
        __tracebackhide__ = True
        if found := self.matching(**expected):
            return found[0]
        raise AssertionError("\n".join([f"No message has {_said(expected)}.", *self._closest(expected), self.listed()]))

    def assert_lacks(self, **expected: Unpack[Expected]) -> None:
        """Assert that no message matches; without expectations, assert that there is no message.

        Raises:
            AssertionError: a message matches; the error lists all messages.
        """
        __tracebackhide__ = True
        if found := self.matching(**expected):
            said = f" with {_said(expected)}" if expected else ""
            raise AssertionError(f"{_counted(len(found))}{said} where none was expected.\n{self.listed()}")

    def _closest(self, expected: Expected) -> list[str]:
        """Lines on how the closest message differs."""
        if not self:
            return []

        def wrong(message: Queued) -> int:
            return sum(difference(value, getattr(message, name), name) is not None for name, value in expected.items())

        closest = min(self, key=wrong)
        return [f"The closest one differs in {_differs(closest, expected)}"]

    def listed(self) -> str:
        """All messages, one a line, for the text of a failed assertion."""
        if not self:
            return f"{self._title}: nothing. {self._hint}"
        more = [f"  and {len(self) - _SHOWN} more"] if len(self) > _SHOWN else []
        return "\n".join([f"{self._title}: {_counted(len(self))}", *(f"  {message}" for message in self[:_SHOWN]), *more])


def _differs(message: Queued, expected: Expected) -> str | None:
    """The first difference as a phrase; None if the message matches."""
    found = (difference(value, getattr(message, name), name) for name, value in expected.items())
    return next((one for one in found if one is not None), None)


def _said(expected: Expected) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in expected.items()) or "anything at all"


def _counted(number: int) -> str:
    return "1 message" if number == 1 else f"{number} messages"
