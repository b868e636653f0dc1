"""One channel of the in-memory broker: reads messages from frames, and responds as RabbitMQ does. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pamqp import base, commands, header

from relay.testing.fake_broker.topology import Delivered, Queue, Topology

MAX_MESSAGE: Final = 16 << 20
"""RabbitMQ 4's default limit of a message, in bytes."""
_PROPERTIES: Final = tuple(name for name in Delivered.__dataclass_fields__ if name not in {"exchange", "routing_key", "body", "headers"})
Answer = Callable[[base.Frame], None]


class ChannelRefusal(Exception):  # noqa: N818 - the broker's word, not an error of this program
    """A refusal for which the broker closes the channel."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(slots=True)
class Faults:
    """Faults that a test has set, by exchange."""

    nacks: dict[str, int | None] = field(default_factory=dict)
    """How many further messages of each exchange are nacked; None for all."""
    forbidden: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    """Exchanges whose messages are accepted, but not confirmed."""

    def nacked(self, exchange: str) -> bool:
        """Whether the next message is nacked; each call counts one message."""
        left = self.nacks.get(exchange, 0)
        if left is not None and left > 0:
            self.nacks[exchange] = left - 1
        return left is None or left > 0


@dataclass(slots=True)
class Incoming:
    """A message whose frames are arriving."""

    method: commands.Basic.Publish
    raw: list[bytes] = field(default_factory=list)
    """Header and body as received; used if the message is returned."""
    head: header.ContentHeader | None = None
    body: bytearray = field(default_factory=bytearray)

    @property
    def whole(self) -> bool:
        """Whether the body is complete."""
        return self.head is not None and len(self.body) >= self.head.body_size


class Channel:
    """The broker's end of a channel.

    Args:
        number: the channel's number.
        user: the user of the connection.
        topology: the declarations of the vhost.
        faults: the faults that the test has set.
        answer: sends a method to the client.
        give_back: sends a returned message's header and body.
    """

    def __init__(
        self, number: int, *, user: str, topology: Topology, faults: Faults, answer: Answer, give_back: Callable[[list[bytes]], None]
    ) -> None:
        self.number = number
        self.dying = False
        """Whether the broker has closed the channel; after that every frame except the close-ok is ignored."""
        self._user = user
        self._topology = topology
        self._faults = faults
        self._answer = answer
        self._give_back = give_back
        self._confirms = False
        self._tag = 0
        self._unheard: dict[int, str] = {}
        """Delivery tags without a confirm, and their exchanges."""
        self._incoming: Incoming | None = None

    def method(self, method: base.Frame) -> None:
        """Handle a method frame of the client."""
        if isinstance(method, commands.Basic.Publish):
            self._incoming = Incoming(method)
        elif isinstance(method, commands.Confirm.Select):
            self._confirms = True
            if not method.nowait:
                self._answer(commands.Confirm.SelectOk())
        elif isinstance(method, commands.Basic.Qos):
            self._answer(commands.Basic.QosOk())
        else:
            self.close(540, f"NOT_IMPLEMENTED - the broker in memory has no {method.name}", method)

    def content(self, frame: header.ContentHeader | bytes, raw: bytes) -> None:
        """Add a header or a part of the body to the message that is arriving."""
        incoming = self._incoming
        if incoming is None:
            return
        incoming.raw.append(raw)
        if isinstance(frame, header.ContentHeader):
            incoming.head = frame
        else:
            incoming.body += frame
        if incoming.whole:
            self._incoming = None
            self._published(incoming)

    def heard(self, exchange: str) -> None:
        """Confirm the withheld messages of an exchange."""
        for tag in [tag for tag, name in self._unheard.items() if name == exchange]:
            del self._unheard[tag]
            self._answer(commands.Basic.Ack(tag))

    def close(self, code: int, text: str, method: base.Frame) -> None:
        """Close the channel, as a broker does because of one bad message."""
        self.dying = True
        self._unheard.clear()
        class_id, method_id = divmod(method.index, 1 << 16)
        self._answer(commands.Channel.Close(code, text, class_id, method_id))

    def _published(self, incoming: Incoming) -> None:
        assert incoming.head is not None
        exchange = incoming.method.exchange
        message = _delivered(incoming)
        try:
            self._check(message, incoming.head.properties.user_id)
            queues = self._route(message)
        except ChannelRefusal as refusal:
            self.close(refusal.code, refusal.text, incoming.method)
            return
        self._tag += 1
        if not queues and incoming.method.mandatory:
            self._answer(commands.Basic.Return(312, "NO_ROUTE", exchange, incoming.method.routing_key))
            self._give_back(incoming.raw)
        refused = self._faults.nacked(exchange)
        if not refused:
            kept = _without_bcc(message)
            # Each queue accepts or refuses the message independently.
            refused = [queue.take(kept) for queue in queues].count(False) > 0
        self._confirm(exchange, refused=refused)

    def _confirm(self, exchange: str, *, refused: bool) -> None:
        if not self._confirms:
            return
        if exchange in self._faults.silent:
            self._unheard[self._tag] = exchange
        else:
            self._answer(commands.Basic.Nack(self._tag, requeue=False) if refused else commands.Basic.Ack(self._tag))

    def _check(self, message: Delivered, user: str | None) -> None:
        """Check a message, in the order of RabbitMQ's checks."""
        name = message.exchange
        if len(message.body) > MAX_MESSAGE:
            text = f"PRECONDITION_FAILED - message size {len(message.body)} is larger than configured max size {MAX_MESSAGE}"
            raise ChannelRefusal(406, text)
        if name in self._faults.forbidden:
            raise ChannelRefusal(403, f"ACCESS_REFUSED - write access to exchange '{name}' in vhost '/' refused for user '{self._user}'")
        if name not in self._topology.exchanges:
            raise ChannelRefusal(404, f"NOT_FOUND - no exchange '{name}' in vhost '/'")
        if self._topology.exchanges[name].internal:
            raise ChannelRefusal(403, f"ACCESS_REFUSED - cannot publish to internal exchange '{name}' in vhost '/'")
        if user not in {None, self._user}:
            text = f"PRECONDITION_FAILED - user_id property set to '{user}' but authenticated user was '{self._user}'"
            raise ChannelRefusal(406, text)

    def _route(self, message: Delivered) -> list[Queue]:
        """The queues of a message, by its routing key and the keys in CC and BCC."""
        keys = [message.routing_key]
        for name in ("CC", "BCC"):
            more = message.headers.get(name, [])
            if not isinstance(more, list):
                raise ChannelRefusal(406, f"PRECONDITION_FAILED - unacceptable type in the header '{name}'")
            keys += more
        return self._topology.route(message.exchange, keys, message.headers)


def _delivered(incoming: Incoming) -> Delivered:
    assert incoming.head is not None
    properties = incoming.head.properties
    headers: Mapping[str, Any] = properties.headers or {}
    fields = {name: getattr(properties, name if name != "type" else "message_type") for name in _PROPERTIES}
    return Delivered(incoming.method.exchange, incoming.method.routing_key, bytes(incoming.body), headers, **fields)


def _without_bcc(message: Delivered) -> Delivered:
    """The message in the form that consumers get, without the header BCC."""
    if "BCC" not in message.headers:
        return message
    fields = {name: getattr(message, name) for name in ("exchange", "routing_key", "body", *_PROPERTIES)}
    return Delivered(headers={name: value for name, value in message.headers.items() if name != "BCC"}, **fields)
