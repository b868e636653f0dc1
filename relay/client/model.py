"""A pydantic model that names the exchange and keys of its instances, so that each instance is a message.

class InvoicePaid(OutboxModel, exchange="billing", routing_key="invoice.{country}.paid", ordering_key="customer"):
    invoice: int
    customer: str
    country: str

enqueue(connection, InvoicePaid(invoice=7, customer="c-7", country="at"))
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from string import Formatter
from typing import Any, ClassVar, TypedDict, Unpack
from uuid import UUID

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from relay.client.message import Message, MessageError, Options, sentence

_KINDS: Mapping[str, type] = {"options": Options, "by_alias": bool, "dedup_seconds": int}
"""Types of the class arguments; any other class argument is text."""
_KEYS = ("ordering_key", "dedup_key", "coalesce_key", "bundle_key")
"""Class arguments that name a field."""


class Keys(TypedDict, total=False):
    """Keys for `to_message`, in place of the class's keys; None omits a key of the class."""

    dedup_key: str | None
    dedup_seconds: int | None
    coalesce_key: str | None
    bundle_key: str | None


class OutboxModel(BaseModel):
    """The base of messages whose content is the model's own JSON.

    Subclasses inherit the class arguments, and may override them. A method may compute a value that a template cannot:
    override `outbox_routing_key`, `outbox_ordering_key` or the method of another key.

    Raises:
        TypeError: a subclass is defined whose `routing_key` or other key names a missing field, or a class argument has the wrong type.
    """

    __outbox_exchange__: ClassVar[str | None] = None
    __outbox_routing_key__: ClassVar[str] = ""
    __outbox_options__: ClassVar[Options] = Options()
    __outbox_ordering_key__: ClassVar[str | None] = None
    __outbox_dedup_key__: ClassVar[str | None] = None
    __outbox_dedup_seconds__: ClassVar[int | None] = None
    __outbox_coalesce_key__: ClassVar[str | None] = None
    __outbox_bundle_key__: ClassVar[str | None] = None
    __outbox_by_alias__: ClassVar[bool | None] = None

    def __init_subclass__(
        cls,
        *,
        exchange: str | None = None,
        routing_key: str | None = None,
        options: Options | None = None,
        ordering_key: str | None = None,
        dedup_key: str | None = None,
        dedup_seconds: int | None = None,
        coalesce_key: str | None = None,
        bundle_key: str | None = None,
        by_alias: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Store the class arguments.

        Args:
            exchange: the exchange of its messages; empty for the default exchange.
            routing_key: a template for `str.format` with names of fields: `invoice.{country}.paid`.
            options: publish options of every message of the class.
            ordering_key: the name of the field whose value orders messages; None for no order.
            dedup_key: the name of a field; of the messages with the same value only the first is enqueued (docs/keys.md).
            dedup_seconds: how long a dedup key is known; by default the database's setting.
            coalesce_key: the name of a field; of the messages with the same value only the newest is sent.
            bundle_key: the name of a field; messages with the same value are sent together.
            by_alias: whether the content has the fields' aliases; by default, the model's configuration decides.
            kwargs: the arguments of other base classes.
        """
        super().__init_subclass__(**kwargs)
        class_options = {
            "exchange": exchange, "routing_key": routing_key, "options": options, "ordering_key": ordering_key, "dedup_key": dedup_key,
            "dedup_seconds": dedup_seconds, "coalesce_key": coalesce_key, "bundle_key": bundle_key, "by_alias": by_alias,
        }  # fmt: skip
        for name, value in class_options.items():
            if value is not None:
                # A type checker does not look at the class line of a pydantic model.
                if not isinstance(value, _KINDS.get(name, str)):
                    raise TypeError(f"{cls.__name__}: {name} must be {_KINDS.get(name, str).__name__}, not {type(value).__name__}")
                setattr(cls, f"__outbox_{name}__", value)

    @classmethod
    def __pydantic_init_subclass__(cls, **_kwargs: Any) -> None:
        """Check that the class arguments name existing fields."""
        for _, field, _, _ in Formatter().parse(cls.__outbox_routing_key__):
            cls._require_field(field)
        for key in _KEYS:
            cls._require_field(getattr(cls, f"__outbox_{key}__"))

    def outbox_routing_key(self) -> str:
        """The routing key of this message."""
        return self.__outbox_routing_key__.format_map({name: getattr(self, name) for name in _names(type(self))})

    def outbox_ordering_key(self) -> str | None:
        """The ordering key of this message, or None for no order."""
        name = self.__outbox_ordering_key__
        return None if name is None else self._value(name)

    def outbox_dedup_key(self) -> str | None:
        """The key by which this message is enqueued once, or None."""
        name = self.__outbox_dedup_key__
        return None if name is None else self._value(name)

    def outbox_coalesce_key(self) -> str | None:
        """The key under which only the newest message is sent, or None."""
        name = self.__outbox_coalesce_key__
        return None if name is None else self._value(name)

    def outbox_bundle_key(self) -> str | None:
        """The key by which this message is sent together with others, or None."""
        name = self.__outbox_bundle_key__
        return None if name is None else self._value(name)

    def to_message(
        self,
        *,
        exchange: str | None = None,
        routing_key: str | None = None,
        options: Options | None = None,
        ordering_key: str | None = None,
        available_at: datetime | None = None,
        delay: timedelta | None = None,
        expires_at: datetime | None = None,
        id: UUID | None = None,  # noqa: A002 - the field's name
        **keys: Unpack[Keys],
    ) -> Message:
        """The message of this instance; arguments override the class's values, option by option and header by header.

        Raises:
            MessageError: the message can never be sent, or no exchange is named; the error is one sentence.
        """
        given = {
            "exchange": self.__outbox_exchange__ if exchange is None else exchange,
            "routing_key": self.outbox_routing_key() if routing_key is None else routing_key,
            "options": self.__outbox_options__ if options is None else _merge(self.__outbox_options__, options),
            "ordering_key": self.outbox_ordering_key() if ordering_key is None else ordering_key,
            "available_at": available_at, "delay": delay, "expires_at": expires_at, **({} if id is None else {"id": id}),
            **self._keys(keys),
        }  # fmt: skip
        if given["exchange"] is None:
            raise MessageError(f"{type(self).__name__} names no exchange: say class {type(self).__name__}(OutboxModel, exchange=...)")
        try:
            return Message.model_validate({**given, "content": self.model_dump(mode="json", by_alias=self.__outbox_by_alias__)})
        except ValidationError as error:
            raise MessageError(sentence(error)) from None
        except PydanticSerializationError as error:
            raise MessageError(f"content is not JSON: {str(error).splitlines()[0].rstrip('.')}") from None

    def _value(self, name: str) -> str | None:
        value = getattr(self, name)
        return None if value is None else str(value)

    def _keys(self, given: Keys) -> dict[str, Any]:
        """Only the keys that have a value, so that a message without a key is validated fast."""
        own = {
            "dedup_key": self.outbox_dedup_key(), "coalesce_key": self.outbox_coalesce_key(), "bundle_key": self.outbox_bundle_key(),
            **given,
        }  # fmt: skip
        keys = {name: key for name, key in own.items() if key is not None}
        if "dedup_key" in keys and self.__outbox_dedup_seconds__ is not None:
            keys.setdefault("dedup_seconds", self.__outbox_dedup_seconds__)
        return keys

    @classmethod
    def _require_field(cls, name: str | None) -> None:
        if name is not None and name not in _names(cls):
            raise TypeError(f"{cls.__name__} has no field {name!r}, which its routing_key or a key names")


def _names(model: type[BaseModel]) -> list[str]:
    return [*model.model_fields, *model.model_computed_fields]


def _merge(class_options: Options, given: Options) -> Options:
    headers = {**(class_options.headers or {}), **(given.headers or {})}
    values = {**class_options.given(), **given.given(), **({"headers": headers} if headers else {})}
    return Options.model_validate(values)
