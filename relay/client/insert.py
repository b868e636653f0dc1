"""From what an application enqueues to the values of one INSERT, for any driver; no I/O."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final
from uuid import UUID

from pydantic import ValidationError

from relay.client.message import NO_OPTIONS, Message, MessageError, Options, checked
from relay.client.model import OutboxModel
from relay.codec.trace_context import TRACE_HEADERS, trace_headers
from relay.queries.statements import Statements

Given = Message | OutboxModel | Mapping[str, Any]
"""What may be enqueued."""
KEYS: Final = ("dedup_key", "dedup_seconds", "coalesce_key", "bundle_key")
"""The columns that the view has and the queue has not."""


class Trace:
    """The trace context that the messages of one call take along, unless they bring one of their own.

    Args:
        traceparent: of the W3C's shape; by default that of OpenTelemetry's current span, if there is one.
        tracestate: goes with it.
    """

    def __init__(self, traceparent: str | None = None, tracestate: str | None = None) -> None:
        self._headers = trace_headers(traceparent, tracestate)
        self._alone = Options.model_validate({"headers": self._headers}) if self._headers else NO_OPTIONS

    def onto(self, message: Message) -> Message:
        """The message with the trace among its headers; as it is where it has one, or could not be sent with this one."""
        if not self._headers:
            return message
        own = message.options.headers or {}
        if any(name in own for name in TRACE_HEADERS):
            return message
        given = message.options.given()
        try:
            traced = Options.model_validate({**given, "headers": {**own, **self._headers}}) if given else self._alone
        except ValidationError:
            return message
        return message.model_copy(update={"options": traced})


def fit(message: Given, trace: Trace) -> Message:
    """One message that is fit to be sent.

    Raises:
        MessageError: it is not; one sentence.
    """
    return trace.onto(message.to_message() if isinstance(message, OutboxModel) else checked(message))


def into(name: str, messages: Sequence[Message]) -> str:
    """The statement for messages as these: `name`, or the one beside it that goes by the view of messages with a key.

    Raises:
        MessageError: some have a key and some have none; the sentence names the place of the first that is not as those before it.
    """
    keyed = messages[0].keyed
    for place, message in enumerate(messages, start=1):
        if message.keyed is not keyed:
            raise unlike(place, keyed=message.keyed)
    return f"{name}_keyed" if keyed else name


def unlike(place: int, *, keyed: bool) -> MessageError:
    """What is wrong with a message that goes elsewhere than those before it: two statements would keep neither order nor all or none."""
    here, before = ("a key", "none") if keyed else ("no key", "one")
    return MessageError(
        f"message {place} has {here} (dedup_key, coalesce_key, bundle_key), and those before it have {before}: enqueue them in calls apart"
    )


def taken(messages: Sequence[Message], rows: Iterable[Sequence[Any]]) -> list[UUID]:
    """The ids of messages; of those with a key as the statement returned them.

    Raises:
        MessageError: retention forgot a dedup_key in the very moment that it was asked for; the transaction should be rolled back.
    """
    if not messages[0].keyed:
        return [message.id for message in messages]
    ids = [row[0] for row in rows]
    if None in ids:
        raise MessageError(f"message {ids.index(None) + 1}: its dedup_key was forgotten just now, roll back and enqueue it again")
    return [UUID(id_) for id_ in ids]


def columns(messages: Sequence[Message]) -> dict[str, list[Any]]:
    """Parameters of the statements `enqueue` and `enqueue_keyed`."""
    keys = {name: [getattr(message, name) for message in messages] for name in KEYS} if messages[0].keyed else {}
    return _columns(messages) | keys


def _columns(messages: Sequence[Message]) -> dict[str, list[Any]]:
    return {
        "ids": [message.id for message in messages],
        "exchanges": [message.exchange for message in messages],
        "routing_keys": [message.routing_key for message in messages],
        "contents": [message.content_text for message in messages],
        "bodies": [message.body for message in messages],
        "options": [message.options.text() for message in messages],
        "ordering_keys": [message.ordering_key for message in messages],
        "available_ats": [message.available_at for message in messages],
        "delays": [_seconds(message.delay) for message in messages],
        "expires_ats": [message.expires_at for message in messages],
    }


def as_json(messages: Sequence[Message]) -> str:
    """The one parameter of `enqueue_json` and `enqueue_json_keyed`, which is text, so that every driver can bind it."""
    return json.dumps([_entry(message) for message in messages], ensure_ascii=False, separators=(",", ":"))


def statement(name: str, schema: str) -> bytes:
    """A statement with psycopg's placeholders."""
    return _statements(schema)[name]


def statement_for(name: str, schema: str, mark: Callable[[str], str], *, escape: str = "") -> str:
    """A statement with another driver's placeholders: `mark` makes one of a name; `escape` goes before each colon that is none."""
    text = statement(name, schema).decode().replace(":", f"{escape}:")
    return re.sub(r"%(?:%|\((\w+)\)s)", lambda found: mark(found[1]) if found[1] else "%", text)


@cache
def _statements(schema: str) -> Statements:
    return Statements(schema)


def _entry(message: Message) -> dict[str, str | float | None]:
    keys: dict[str, str | float | None] = {}
    if message.keyed:
        keys = {name: getattr(message, name) for name in KEYS}
    return keys | {
        "id": str(message.id),
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "content": message.content_text,
        "body": None if message.body is None else base64.b64encode(message.body).decode(),
        "options": message.options.text(),
        "ordering_key": message.ordering_key,
        "available_at": _moment(message.available_at),
        "delay": _seconds(message.delay),
        "expires_at": _moment(message.expires_at),
    }


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _seconds(delay: timedelta | None) -> float | None:
    """Seconds, as days of an interval would have the hours that the session's time zone gives them."""
    return None if delay is None else delay.total_seconds()
