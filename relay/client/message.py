"""A message as an application writes it: its fields are typed, and the relay's own rules check it before any SQL."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, Self
from uuid import UUID

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    Strict,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from relay.codec.json_numbers import as_stored, check_printed
from relay.codec.json_text import check_json, check_nul, json_text
from relay.codec.option_rules import REPLY_ADDRESS, RESERVED_KEY, SHORT_LIMIT, OptionsError, collect, parse
from relay.codec.options import plan
from relay.errors import RelayError

ORDERING_KEY_LIMIT: Final = 1024
"""Most bytes of an ordering key, and of any other key; the database refuses more (sql/0002_validity.sql, sql/0021_keyed.sql)."""
DEDUP_SECONDS_LIMIT: Final = 31_536_000
"""A year (sql/0021_keyed.sql)."""
DELAY_LIMIT: Final = timedelta(days=36_500)
"""A hundred years, so that a delay cannot exceed the year 9999."""
PAYLOAD_LIMIT: Final = 134_217_728
"""The database's limit of `content` or `body` in bytes; the setting max_body_bytes is lower."""
HEADERS_LIMIT: Final = 128_000
"""Bytes of headers on the wire, CC and BCC included (sql/0002_validity.sql)."""


class MessageError(RelayError, ValueError):
    """A message can never be sent as it is; no SQL was run for it."""


class JsonText(str):
    """`content` that already is JSON text. The text is passed on unchanged, so that numbers keep their digits."""

    __slots__ = ()


class Options(BaseModel):
    """Publish options, explained in docs/options.md; each may also be given in camelCase.

    Only the given options are stored; the relay adds `persistent` and `mandatory` if they are left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    app_id: str | None = None
    bcc: str | list[str] | None = None
    cc: str | list[str] | None = None
    content_encoding: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    delivery_mode: Literal[1, 2] | None = None
    expiration: int | str | None = None
    """Milliseconds that the message may wait in a RabbitMQ queue."""
    headers: dict[str, JsonValue] | None = None
    immediate: Literal[False] | None = None
    mandatory: bool | None = None
    message_id: str | None = None
    persistent: bool | None = None
    priority: int | None = None
    reply_to: str | None = None
    timestamp: int | None = None
    """Seconds since 1970."""
    type: str | None = None
    user_id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _judge(cls, given: Any) -> Any:
        """Apply the relay's rules first, then give each option its snake-case name."""
        if not isinstance(given, Mapping):
            return given
        text = json_text(dict(given), "options")
        try:
            plan(as_stored(text), HEADERS_LIMIT)
            found = {name: value for name, (_, value) in collect(parse(text)).items()}
        except OptionsError as error:
            raise ValueError(error.sentence) from None
        if "delivery_mode" in found:
            # The rules read true and "2" as persistent, as amqplib does.
            found["delivery_mode"] = 1 if found["delivery_mode"] in (1, 1.0) and found["delivery_mode"] is not True else 2
        return found

    def text(self) -> str:
        """The JSON text for the column `options`."""
        return "{}" if self is NO_OPTIONS else json_text(self.given(), "options")

    def given(self) -> dict[str, Any]:
        """Each option that was given, by its snake-case name."""
        return {name: value for name in sorted(self.model_fields_set) if (value := getattr(self, name)) is not None}


NO_OPTIONS: Final = Options()
_KEY_FIELDS: Final = frozenset({"dedup_key", "dedup_seconds", "coalesce_key", "bundle_key"})


def time_ordered_uuid() -> UUID:
    """A new uuid of version 7 (RFC 9562): uuids made one after the other are neighbours in an index."""
    milliseconds, chance = time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10))
    return UUID(int=milliseconds << 80 | 0x7 << 76 | (chance >> 68 & 0xFFF) << 64 | 0b10 << 62 | chance & (1 << 62) - 1)


def _a_time(value: object, info: ValidationInfo) -> object:
    """Refuse values that pydantic would read as seconds since 1970."""
    if isinstance(value, datetime) or (isinstance(value, str) and not _is_number(value)):
        return value
    kind = "a number" if isinstance(value, str) else type(value).__name__
    hint = "; for a length of time there is delay" if info.field_name == "available_at" else ""
    raise ValueError(f"{info.field_name} must be a time with a time zone such as 2031-01-31T12:00:00Z, not {kind}{hint}")


def _a_length(value: object, info: ValidationInfo) -> object:
    if isinstance(value, timedelta):
        return value
    raise ValueError(f"{info.field_name} must be a timedelta such as timedelta(minutes=5), not {type(value).__name__}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_Time = Annotated[AwareDatetime, BeforeValidator(_a_time)]
_Length = Annotated[timedelta, BeforeValidator(_a_length)]


class Message(BaseModel):
    """One message to enqueue; the fields are the columns that an application may write.

    Raises:
        pydantic.ValidationError: the message can never be sent; there is one sentence for each field that is wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    exchange: str
    """The exchange; empty for the default exchange, which routes to the queue that the routing key names."""
    routing_key: str = ""
    content: Any = Field(default_factory=dict)
    """Any JSON value, also pydantic models, dates and UUIDs, converted at once; for JSON text use `JsonText`."""
    body: Annotated[bytes, Strict()] | None = None
    """A binary payload instead of `content`."""
    # Shared by all messages: it is immutable, and validating it again would be half of a small message's cost.
    options: Options = Field(default_factory=lambda: NO_OPTIONS)
    ordering_key: str | None = None
    """Messages with the same key are sent one after the other, in commit order."""
    available_at: _Time | None = None
    """The message is not sent before this time."""
    delay: _Length | None = None
    """How long after the INSERT the message waits, by the database's clock; instead of `available_at`."""
    expires_at: _Time | None = None
    """The message is not sent after this time but archived as rejected, with the code expired."""
    dedup_key: str | None = None
    """A further message with this key and exchange is not enqueued."""
    dedup_seconds: Annotated[int, Strict()] | None = None
    """How many seconds the dedup key is known; the default is the setting dedup_seconds."""
    coalesce_key: str | None = None
    """Of the unsent messages with this key and exchange, only the newest is sent."""
    bundle_key: str | None = None
    """Messages with this key, exchange and routing key that are due together become one message, a list of their contents."""
    id: UUID = Field(default_factory=time_ordered_uuid)
    """The message's id in queue and archive. The database refuses an id that is already in the queue."""
    _content: str = PrivateAttr(default="{}")

    @model_validator(mode="after")
    def _judge(self) -> Self:
        _check_text("exchange", self.exchange, SHORT_LIMIT)
        _check_text("routing_key", self.routing_key, SHORT_LIMIT)
        if self.routing_key.startswith(REPLY_ADDRESS):
            raise ValueError(RESERVED_KEY)
        _check_text("ordering_key", self.ordering_key or "", ORDERING_KEY_LIMIT)
        self._content = content_text(self.content)
        if self.body is not None:
            if self._content != "{}":
                raise ValueError("body and content are both given; leave content out, a message has one payload")
            _check_size("body", len(self.body), PAYLOAD_LIMIT)
        _check_times(self.available_at, self.expires_at)
        if self.delay is not None:
            _check_delay(self.delay, self.available_at)
        if not _KEY_FIELDS.isdisjoint(self.__pydantic_fields_set__):
            _check_keys(self)
        return self

    @property
    def keyed(self) -> bool:
        """Whether the message has a key; messages with a key are inserted into a view (docs/keys.md)."""
        return not (self.dedup_key is None and self.coalesce_key is None and self.bundle_key is None)

    @property
    def content_text(self) -> str:
        """The JSON text for the column `content`."""
        # Not self._content: pydantic first searches many places for this attribute.
        return str((self.__pydantic_private__ or {})["_content"])


def validate(message: Message | Mapping[str, Any]) -> Message:
    """Validate the fields of a message, and return it.

    Raises:
        MessageError: the message can never be sent; the error is one sentence.
    """
    if isinstance(message, Message):
        return message
    if not isinstance(message, Mapping):
        raise MessageError(f"a message is a Message, an OutboxModel or a mapping of fields, and this is of type {type(message).__name__}")
    try:
        return Message.model_validate(dict(message))
    except ValidationError as error:
        raise MessageError(sentence(error)) from None


def sentence(error: ValidationError) -> str:
    """What is wrong with a message, in one sentence, without its values."""
    return "; ".join(
        _problem(problem["loc"], problem["msg"], problem["type"]) for problem in error.errors(include_url=False, include_input=False)
    )


def content_text(content: Any, *, quick: bool = False) -> str:
    """The JSON text for the column `content`; ValueError with a sentence if the content is not valid. For `quick` see `check_printed`."""
    if not isinstance(content, JsonText):
        text = json_text(content, "content")
    else:
        text = str(content)
        check_json(text)
        check_nul(text, "content")
    size = len(text.encode())
    _check_size("content", size, PAYLOAD_LIMIT)
    check_printed(text, size, quick=quick)
    return text


def _check_times(available_at: datetime | None, expires_at: datetime | None) -> None:
    for name, moment in (("available_at", available_at), ("expires_at", expires_at)):
        try:
            if moment is not None:
                moment.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"{name} is outside the years 1 to 9999") from None
    if available_at is not None and expires_at is not None and expires_at <= available_at:
        raise ValueError("expires_at is not after available_at; the message could never be sent")


def _check_delay(delay: timedelta, available_at: datetime | None) -> None:
    if available_at is not None:
        raise ValueError("available_at and delay are both given; a message waits until a time or for a length of time")
    if not timedelta() <= delay <= DELAY_LIMIT:
        raise ValueError(f"delay is {delay / timedelta(days=1):g} days; it must be from 0 to {DELAY_LIMIT.days} days")


def _check_keys(message: Message) -> None:
    """Check the keys; the errors are those of queue_message_keys_check() (sql/0021_keyed.sql)."""
    if message.bundle_key is not None and message.coalesce_key is not None:
        raise ValueError("bundle_key and coalesce_key are both given; a message is sent with others or replaced by them")
    if message.bundle_key is not None and message.body is not None:
        raise ValueError("body and bundle_key are both given; a bundle is a JSON list, so use content")
    seconds = message.dedup_seconds
    if seconds is not None and (message.dedup_key is None or not 1 <= seconds <= DEDUP_SECONDS_LIMIT):
        raise ValueError(f"dedup_seconds is {seconds}; it must be from 1 to {DEDUP_SECONDS_LIMIT}, beside a dedup_key")
    for name in ("bundle_key", "coalesce_key", "dedup_key"):
        _check_text(name, getattr(message, name) or "", ORDERING_KEY_LIMIT)


def _check_text(name: str, text: str, limit: int) -> None:
    if "\0" in text:
        raise ValueError(f"{name} holds a NUL character, which PostgreSQL cannot store; leave it out")
    try:
        _check_size(name, len(text.encode()), limit)
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds text that is not valid UTF-8") from None


def _check_size(name: str, size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"{name} is {size} bytes long; the limit is {limit} bytes")


def _problem(place: tuple[int | str, ...], text: str, kind: str) -> str:
    """Add the field's name to pydantic's messages; the messages of this module already name the field."""
    text = text.removeprefix("Value error, ")
    return text if kind == "value_error" else f"{'.'.join(map(str, place))}: {text[:1].lower()}{text[1:]}"
