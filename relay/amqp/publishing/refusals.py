"""The result of a message that the broker does not accept, by the broker's reply. No I/O."""

from __future__ import annotations

from typing import Final

from relay.amqp import frames
from relay.amqp.close_reasons import Subject, said
from relay.amqp.frames import ReplyReason
from relay.message import Claim, PublishResult, Verdict

NACKED: Final = PublishResult(
    Verdict.REFUSED,
    "nacked",
    "The broker refused the message (nack) without a reason: look for a full queue with overflow reject-publish.",
)
EXPIRED: Final = PublishResult(Verdict.EXPIRED, "expired", "The message's expires_at passed before it was sent.")
OVERDUE_SUSPECT: Final = PublishResult(
    Verdict.UNKNOWN, "deadline", "Its channel closed before the confirm; the time to send it again had passed."
)
DOUBTED: Final = PublishResult(
    Verdict.UNKNOWN, "confirm_lost", "Its channel closed before the confirm; the broker has refused its exchange since."
)
_OF_EXCHANGES: Final = frozenset((Subject.EXCHANGE_MISSING, Subject.EXCHANGE_REFUSED, Subject.EXCHANGE_INTERNAL))
_REFUSAL_CODES: Final = {frames.NOT_FOUND: "exchange_missing", frames.ACCESS_REFUSED: "access_refused"}


def refusal_of(reason: ReplyReason) -> PublishResult:
    """The result of a message over which the broker closed the channel.

    403 for a topic concerns one routing key; 403 for an exchange concerns all its messages, and so does 404.
    """
    found = said(reason)
    code = _REFUSAL_CODES.get(reason.code, "broker_refused")
    return PublishResult(Verdict.REFUSED, code, reason.text, of_exchange=found is not None and found.about in _OF_EXCHANGES)


def unroutable(claim: Claim, reason: ReplyReason) -> PublishResult:
    """The result of a message that the broker returned."""
    sentence = f"No queue takes routing key {claim.routing_key!r} of exchange {claim.exchange!r} ({reason.code} {reason.text})."
    return PublishResult(Verdict.RETURNED, "unroutable", sentence)
