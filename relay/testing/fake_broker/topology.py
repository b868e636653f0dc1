"""Exchanges, queues and bindings of the in-memory broker: routes messages by RabbitMQ's rules. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

Kind = Literal["direct", "fanout", "topic", "headers"]
"""Types of exchanges."""
PREDECLARED: Final[Mapping[str, Kind]] = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
    "amq.rabbitmq.trace": "topic",
}
"""Exchanges that every vhost has, without the default exchange."""


class TopologyError(ValueError):
    """A declaration or query that RabbitMQ would refuse; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message in a queue, as a consumer receives it; its properties are named as in aio-pika and pika."""

    exchange: str
    routing_key: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    content_type: str | None = None
    content_encoding: str | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: datetime | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None

    @property
    def content(self) -> Any:
        """The body, parsed as JSON.

        Raises:
            json.JSONDecodeError: the body is not JSON.
        """
        return json.loads(self.body)


@dataclass(slots=True)
class Queue:
    """The messages of one queue, oldest first."""

    name: str
    max_length: int | None = None
    messages: list[Delivered] = field(default_factory=list)

    def take(self, message: Delivered) -> bool:
        """Add a message; return False if the queue is full and refuses the message."""
        if self.max_length is not None and len(self.messages) >= self.max_length:
            return False
        self.messages.append(message)
        return True


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding from an exchange to a queue."""

    queue: str
    routing_key: str
    arguments: Mapping[str, Any]

    def fits(self, kind: Kind, routing_key: str, headers: Mapping[str, Any]) -> bool:
        """Whether a message matches this binding."""
        if kind == "topic":
            return topic_fits(self.routing_key.split("."), routing_key.split("."))
        if kind == "headers":
            return headers_fit(self.arguments, headers)
        return kind == "fanout" or self.routing_key == routing_key


@dataclass(slots=True)
class Exchange:
    """An exchange and its bindings."""

    name: str
    kind: Kind
    internal: bool = False
    bindings: list[Binding] = field(default_factory=list)


class Topology:
    """All declarations of one vhost."""

    def __init__(self) -> None:
        self.exchanges = {name: Exchange(name, kind, internal=name == "amq.rabbitmq.trace") for name, kind in PREDECLARED.items()}
        self.exchanges[""] = Exchange("", "direct")
        self.queues: dict[str, Queue] = {}

    def declare_exchange(self, name: str, kind: Kind, *, internal: bool) -> None:
        """Declare an exchange; a declaration may be repeated, but not with another type.

        Raises:
            TopologyError: a different exchange of that name exists, or the type is invalid.
        """
        if kind not in {"direct", "fanout", "topic", "headers"}:
            raise TopologyError(f"An exchange is direct, fanout, topic or headers, not {kind!r}.")
        known = self.exchanges.setdefault(name, Exchange(name, kind, internal))
        if (known.kind, known.internal) != (kind, internal):
            raise TopologyError(f"The exchange {name!r} is there as {known.kind}: delete_exchange it first.")

    def declare_queue(self, name: str, *, max_length: int | None) -> Queue:
        """Declare a queue; the default exchange routes to it by name. A declaration may be repeated.

        Raises:
            TopologyError: a queue of that name with another length exists.
        """
        known = self.queues.setdefault(name, Queue(name, max_length))
        if known.max_length != max_length:
            raise TopologyError(f"The queue {name!r} is there with max_length={known.max_length}.")
        return known

    def bind(self, queue: str, exchange: str, routing_key: str, arguments: Mapping[str, Any]) -> None:
        """Bind a queue to an exchange; a repeated binding changes nothing.

        Raises:
            TopologyError: the queue or the exchange was not declared.
        """
        self.queue(queue)
        if exchange == "" or exchange not in self.exchanges:
            raise TopologyError(f"There is no exchange {exchange!r} to bind to: declare_exchange it first.")
        binding = Binding(queue, routing_key, dict(arguments))
        if binding not in self.exchanges[exchange].bindings:
            self.exchanges[exchange].bindings.append(binding)

    def queue(self, name: str) -> Queue:
        """The queue of that name.

        Raises:
            TopologyError: the queue was not declared.
        """
        try:
            return self.queues[name]
        except KeyError:
            there = ", ".join(sorted(self.queues)) or "none"
            raise TopologyError(f"There is no queue {name!r} (declared: {there}): declare_queue or bind it first.") from None

    def route(self, exchange: str, routing_keys: Sequence[str], headers: Mapping[str, Any]) -> list[Queue]:
        """The queues to which a message is routed, each once."""
        if exchange == "":
            return [self.queues[key] for key in dict.fromkeys(routing_keys) if key in self.queues]
        target = self.exchanges[exchange]
        names = [one.queue for key in routing_keys for one in target.bindings if one.fits(target.kind, key, headers)]
        return [self.queues[name] for name in dict.fromkeys(names)]


def topic_fits(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Whether words match a pattern: `*` matches one word, `#` any number of words."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(topic_fits(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in {"*", words[0]} and topic_fits(pattern[1:], words[1:])


def headers_fit(wanted: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    """Whether headers match a binding's arguments: all or any of them, by `x-match`."""
    match = wanted.get("x-match", "all")
    with_x = match.endswith("-with-x")
    names = [name for name in wanted if name != "x-match" and (with_x or not name.startswith("x-"))]
    fits = [name in headers and wanted[name] in (None, headers[name]) for name in names]
    return any(fits) if match.startswith("any") else all(fits)
