"""The reply texts with which RabbitMQ closes a channel or a connection, by version, and the meaning of each. No I/O.

A text quotes names, which rows, users and operators choose. So a text is recognised by the words before its first name, which are
RabbitMQ's own. If two texts share those words, the whole text decides. RabbitMQ cuts a text after 255 characters. If the end is missing,
the beginning alone decides; if the beginning is ambiguous, the text is not recognised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from relay.amqp.frames import ReplyReason


class Subject(StrEnum):
    """The meaning of a reply text."""

    EXCHANGE_MISSING = "the exchange does not exist"
    EXCHANGE_REFUSED = "the user may not write to the exchange"
    EXCHANGE_INTERNAL = "no client may publish to the exchange"
    TOPIC_REFUSED = "the user may not write with the routing key"
    QUEUE_MISSING = "the queue does not exist"
    QUEUE_REFUSED = "the user may not read the queue"
    QUEUE_TAKEN = "another consumer has exclusive use of the queue"
    QUEUE_LOCKED = "the queue is exclusive to another connection"
    STREAM = "the queue is a stream"
    NOT_IMPERSONATOR = "the user may not send in the name of another (user_id)"
    LOGIN_REFUSED = "user or password is wrong, or the user may log in only from the broker's machine"
    VHOST_MISSING = "the vhost does not exist"
    VHOST_REFUSED = "the user may not use the vhost"
    VHOST_DOWN = "the vhost is down"
    VHOST_FULL = "the vhost has reached its limit of connections (max-connections)"
    USER_FULL = "the user has reached its limit of connections (max-connections)"
    NODE_FULL = "the node has reached its limit of connections (connection_max)"
    USER_CHANNELS = "the user has reached its limit of channels (max-channels)"
    NODE_CHANNELS = "the node has reached its limit of channels (channel_max_per_node)"
    CONNECTION_CHANNELS = "the connection has reached the negotiated limit of channels (channel_max)"


class Form(NamedTuple):
    """A reply text as it is in a source file of rabbitmq-server, with names and numbers in braces."""

    about: Subject
    code: int
    text: str
    versions: str
    """The RabbitMQ versions whose source has this text."""
    source: str
    """File below deps/rabbit/src."""

    @property
    def head(self) -> str:
        """The words before the first name."""
        return self.text.partition("{")[0]


class CloseReason(NamedTuple):
    """The meaning of a reply text, and the limit that the text names."""

    about: Subject
    limit: int | None = None


_ALL: Final = "3.10 to 4.3"
FORMS: Final[Sequence[Form]] = (
    Form(Subject.EXCHANGE_MISSING, 404, "NOT_FOUND - no exchange '{exchange}' in vhost '{vhost}'", _ALL, "rabbit_amqqueue.erl"),
    Form(
        Subject.EXCHANGE_REFUSED, 403, "ACCESS_REFUSED - access to exchange '{exchange}' in vhost '{vhost}' refused for user '{user}'",
        "3.10, 3.11", "rabbit_access_control.erl",
    ),
    Form(
        Subject.EXCHANGE_REFUSED, 403,
        "ACCESS_REFUSED - write access to exchange '{exchange}' in vhost '{vhost}' refused for user '{user}'",
        "3.12 to 4.3", "rabbit_access_control.erl",
    ),
    Form(
        Subject.EXCHANGE_INTERNAL, 403, "ACCESS_REFUSED - cannot publish to internal exchange '{exchange}' in vhost '{vhost}'", _ALL,
        "rabbit_channel.erl",
    ),
    Form(
        Subject.TOPIC_REFUSED, 403,
        "ACCESS_REFUSED - access to topic '{key}' in exchange '{exchange}' in vhost '{vhost}' refused for user '{user}'", "3.10, 3.11",
        "rabbit_access_control.erl",
    ),
    Form(
        Subject.TOPIC_REFUSED, 403,
        "ACCESS_REFUSED - write access to topic '{key}' in exchange '{exchange}' in vhost '{vhost}' refused for user '{user}'",
        "3.12 to 4.3", "rabbit_access_control.erl",
    ),
    Form(Subject.QUEUE_MISSING, 404, "NOT_FOUND - no queue '{queue}' in vhost '{vhost}'", _ALL, "rabbit_amqqueue.erl"),
    Form(
        Subject.QUEUE_REFUSED, 403, "ACCESS_REFUSED - access to queue '{queue}' in vhost '{vhost}' refused for user '{user}'", "3.10, 3.11",
        "rabbit_access_control.erl",
    ),
    Form(
        Subject.QUEUE_REFUSED, 403, "ACCESS_REFUSED - read access to queue '{queue}' in vhost '{vhost}' refused for user '{user}'",
        "3.12 to 4.3", "rabbit_access_control.erl",
    ),
    Form(Subject.QUEUE_TAKEN, 403, "ACCESS_REFUSED - queue '{queue}' in vhost '{vhost}' in exclusive use", _ALL, "rabbit_channel.erl"),
    Form(
        Subject.QUEUE_LOCKED, 405,
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '{vhost}'{rest}", _ALL,
        "rabbit_amqqueue.erl",
    ),
    Form(
        Subject.STREAM, 406, "PRECONDITION_FAILED - invalid arg 'x-priority' for {queue} of queue type {type}", _ALL,
        "rabbit_amqqueue.erl",
    ),
    Form(
        Subject.NOT_IMPERSONATOR, 406, "PRECONDITION_FAILED - user_id property set to '{name}' but authenticated user was '{user}'", _ALL,
        "rabbit_channel.erl",
    ),
    Form(
        Subject.LOGIN_REFUSED, 403,
        "ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}. For details see the broker logfile.", _ALL,
        "rabbit_reader.erl",
    ),
    Form(Subject.VHOST_MISSING, 530, "NOT_ALLOWED - vhost {vhost} not found", _ALL, "rabbit_reader.erl"),
    Form(
        Subject.VHOST_REFUSED, 530, "NOT_ALLOWED - access to vhost '{vhost}' refused for user '{user}'", _ALL, "rabbit_access_control.erl"
    ),
    Form(
        Subject.VHOST_FULL, 530, "NOT_ALLOWED - access to vhost '{vhost}' refused for user '{user}': connection limit ({limit}) is reached",
        _ALL, "rabbit_reader.erl",
    ),
    Form(
        Subject.VHOST_DOWN, 541, "INTERNAL_ERROR - access to vhost '{vhost}' refused for user '{user}': vhost '{vhost}' is down", _ALL,
        "rabbit_reader.erl",
    ),
    Form(
        Subject.USER_FULL, 530, "NOT_ALLOWED - connection refused for user '{user}': user connection limit ({limit}) is reached", _ALL,
        "rabbit_reader.erl",
    ),
    Form(
        Subject.NODE_FULL, 530, "NOT_ALLOWED - connection refused: node connection limit ({limit}) is reached", "3.11.12 to 4.3",
        "rabbit_reader.erl",
    ),
    Form(
        Subject.CONNECTION_CHANNELS, 530,
        "NOT_ALLOWED - number of channels opened ({opened}) has reached the negotiated channel_max ({limit})", _ALL, "rabbit_reader.erl",
    ),
    Form(
        Subject.USER_CHANNELS, 530,
        "NOT_ALLOWED - number of channels opened for user '{user}' has reached the maximum allowed user limit of ({limit})",
        "3.10 to 4.2.7, 4.3.0, 4.3.1", "rabbit_reader.erl",
    ),
    Form(
        Subject.USER_CHANNELS, 530,
        "NOT_ALLOWED - number of channels opened for user '{user}' has reached the maximum allowed user limit of {limit}",
        "4.2.8 and 4.2.9, from 4.3.2 on", "rabbit_reader.erl",
    ),
    Form(
        Subject.NODE_CHANNELS, 530,
        "NOT_ALLOWED - number of channels opened on node '{node}' has reached the maximum allowed limit of ({limit})",
        "3.12.13 to 4.2.7, 4.3.0, 4.3.1", "rabbit_reader.erl",
    ),
    Form(
        Subject.NODE_CHANNELS, 530,
        "NOT_ALLOWED - number of channels opened on node '{node}' has reached the maximum allowed limit of {limit}",
        "4.2.8 and 4.2.9, from 4.3.2 on", "rabbit_reader.erl",
    ),
)  # fmt: skip
"""RabbitMQ's reply texts that the relay distinguishes, from the tags of rabbitmq-server 3.10.0 to 4.3.5."""


def said(reason: ReplyReason) -> CloseReason | None:
    """The meaning of the broker's reason; None if no entry of `FORMS` matches."""
    likely = [form for form in FORMS if form.code == reason.code and reason.text.startswith(form.head)]
    for form in likely:
        if whole := _pattern(form).fullmatch(reason.text):
            return CloseReason(form.about, _number(whole.groupdict().get("limit")))
    alike = {form.about for form in likely}
    return CloseReason(alike.pop()) if len(alike) == 1 else None


def table() -> str:
    """The forms as a table for the docs."""
    rows = (f"| {form.code} | `{form.text.partition(' - ')[2]}` | {form.about} | {form.versions} | `{form.source}` |" for form in FORMS)
    return "\n".join(["| code | sentence | says | RabbitMQ | source |", "|---|---|---|---|---|", *rows])


def _pattern(form: Form) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", form.text)
    names = (r"(?P<limit>\d{1,9})" if name == "limit" else ".*" for name in parts[1::2])
    words = [re.escape(part) for part in parts[::2]]
    return re.compile("".join(word + name for word, name in zip(words, [*names, ""], strict=True)), re.DOTALL)


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
