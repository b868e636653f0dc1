"""Routing keys that the broker does not accept from this user (403 for a topic). No I/O.

RabbitMQ's topic permissions are patterns that no client can read, and RabbitMQ closes a channel over each key that they forbid. So after
the first refusal, keys of that exchange that have not been accepted yet are tried on a separate channel (`key_channel`). A refused key is
not tried again for a while: its messages are refused without asking the broker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from relay.amqp.close_reasons import Subject, said
from relay.amqp.frames import ReplyReason
from relay.message import Claim, PublishResult, Verdict

REMEMBERED: Final = 60.0
"""Seconds after which a refused key is tried again, because it may have been permitted since."""
MAX_KEYS: Final = 20_000
"""How many of the latest refused keys, and of the latest accepted keys, are remembered. The longest keys take half a kilobyte each."""
_Key = tuple[str, str]
K = TypeVar("K")
V = TypeVar("V")


class RefusedKeys:
    """The routing keys that the broker has refused or accepted on one connection.

    Args:
        clock: monotonic seconds.

    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.refused: OrderedDict[_Key, float] = OrderedDict()
        """Keys that are not tried again, each with the end of this ban."""
        self._taken: OrderedDict[_Key, None] = OrderedDict()
        self.exchanges: OrderedDict[str, float] = OrderedDict()
        """Exchanges with refused keys, each with the time until which their keys are tried separately."""

    def learn(self, claim: Claim, reason: ReplyReason) -> bool:
        """The broker closed a channel over this message; return whether its key is the first refused key of its exchange lately."""
        found = said(reason)
        if found is None or found.about is not Subject.TOPIC_REFUSED:
            return False
        guarded, until = self.guards([claim.exchange]), self._clock() + REMEMBERED
        self._taken.pop(_key(claim), None)
        _note(self.refused, _key(claim), until)
        _note(self.exchanges, claim.exchange, until)
        return not guarded

    def took(self, claims: Iterable[Claim]) -> None:
        """The broker has accepted these messages, whose exchange also has refused keys."""
        for claim in claims:
            _note(self._taken, _key(claim), None)

    def guards(self, exchanges: Iterable[str]) -> bool:
        """Whether the broker refuses some keys of one of these exchanges."""
        now = self._clock()
        return any(now < self.exchanges.get(exchange, now) for exchange in exchanges)

    def refusal(self, claim: Claim) -> PublishResult | None:
        """The result of a message whose key was refused lately; None for other messages."""
        if self._clock() >= self.refused.get(_key(claim), 0.0):
            return None
        words = f"RabbitMQ has refused routing key {claim.routing_key!r} of exchange {claim.exchange!r} within the last minute (403)"
        return PublishResult(Verdict.REFUSED, "access_refused", f"{words}: correct it, or permit it (rabbitmqctl set_topic_permissions).")

    def is_open(self, claim: Claim) -> bool:
        """Whether the message's key must be tried first, because the broker refuses some keys of this exchange and this key is unknown."""
        return self.guards([claim.exchange]) and _key(claim) not in self._taken and self.refusal(claim) is None


def _key(claim: Claim) -> _Key:
    return claim.exchange, claim.routing_key


def _note(notes: OrderedDict[K, V], key: K, value: V) -> None:
    """Note a value as the latest, and forget the oldest notes."""
    notes[key] = value
    notes.move_to_end(key)
    if len(notes) > MAX_KEYS:
        notes.popitem(last=False)
