"""Prepares an application's messages: validates each message, and adds the trace context of the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from relay.client.contracts import ClientContracts
from relay.client.message import NO_OPTIONS, Message, MessageError, Options, validate
from relay.client.model import OutboxModel
from relay.codec.trace_context import TRACE_HEADERS, trace_headers

MessageLike = Message | OutboxModel | Mapping[str, Any]
"""Anything that can be enqueued."""


class Trace:
    """The trace context of one call, for messages that have no trace context.

    Args:
        traceparent: W3C trace context; by default the context of OpenTelemetry's current span, if there is a span.
        tracestate: the `tracestate` that belongs to `traceparent`.
    """

    def __init__(self, traceparent: str | None = None, tracestate: str | None = None) -> None:
        self._headers = trace_headers(traceparent, tracestate)
        self._options = Options.model_validate({"headers": self._headers}) if self._headers else NO_OPTIONS

    def add_to(self, message: Message) -> Message:
        """The message with the trace in its headers. A message that has a trace already, or would become invalid, is unchanged."""
        if not self._headers:
            return message
        own = message.options.headers or {}
        if any(name in own for name in TRACE_HEADERS):
            return message
        given = message.options.given()
        try:
            traced = Options.model_validate({**given, "headers": {**own, **self._headers}}) if given else self._options
        except ValidationError:
            return message
        return message.model_copy(update={"options": traced})


def prepare(message: MessageLike, trace: Trace, contracts: ClientContracts | None) -> Message:
    """Validate one message, by its own rules and by the contracts, and add the trace.

    Raises:
        MessageError: the message can never be sent, or breaks an enforced contract; the error is one sentence.
    """
    valid = message.to_message() if isinstance(message, OutboxModel) else validate(message)
    if contracts is not None:
        contracts.check(valid)
    return trace.add_to(valid)


def prepare_at(place: int, message: MessageLike, trace: Trace, contracts: ClientContracts | None) -> Message:
    """Like `prepare`, for one of several messages; the error names the message's place."""
    try:
        return prepare(message, trace, contracts)
    except MessageError as error:
        raise MessageError(f"message {place}: {error}") from None


def prepare_all(messages: Iterable[MessageLike], trace: Trace, contracts: ClientContracts | None) -> list[Message]:
    """Prepare the messages of one statement.

    Raises:
        MessageError: `prepare` refuses a message, or only some messages have a key; the error names the place of the first such message.
    """
    prepared = [prepare_at(place, message, trace, contracts) for place, message in enumerate(messages, start=1)]
    for place, message in enumerate(prepared, start=1):
        check_keyed(place, message, keyed=prepared[0].keyed)
    return prepared


def check_keyed(place: int, message: Message, *, keyed: bool) -> None:
    """Refuse a message that belongs in another table than those before it: two statements would preserve neither order nor atomicity.

    Args:
        place: the message's place in its call, from 1.
        message: the next message.
        keyed: whether the messages before it have a key.

    Raises:
        MessageError: either this message or the messages before it have a key, but not both; the error names the message's place.
    """
    if message.keyed is keyed:
        return
    here, before = ("a key", "none") if message.keyed else ("no key", "one")
    raise MessageError(
        f"message {place} has {here} (dedup_key, coalesce_key, bundle_key), and those before it have {before}: "
        "enqueue them in separate calls"
    )
