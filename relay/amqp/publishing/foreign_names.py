"""Messages in the name of another user, which RabbitMQ accepts only from impersonators. No I/O.

RabbitMQ checks whether the user who has logged in has the tag `impersonator` (`check_user_id_header` in rabbit_channel.erl). So the first
refusal on a connection applies to all such messages on it, and no other message has to close a channel.
"""

from __future__ import annotations

import json

from relay.amqp.close_reasons import Subject, said
from relay.amqp.frames import ReplyReason
from relay.message import Claim, PublishResult, Verdict


class ForeignNames:
    """What one connection has learned about messages in the name of another user.

    Args:
        user: the user who is logged in; None if the user is not known, in which case nothing is learned.

    """

    def __init__(self, user: str | None) -> None:
        self.user = user
        self.refusal: PublishResult | None = None
        """The result of all messages in the name of another user, once the broker has refused one of them."""

    def learn(self, claim: Claim, reason: ReplyReason) -> None:
        """The broker closed a channel over this message."""
        found = said(reason)
        if self.user is not None and found is not None and found.about is Subject.NOT_IMPERSONATOR and names_another(claim, self.user):
            words = f"RabbitMQ takes no message in the name of another user from {self.user!r} ({reason.code}): correct `userId`."
            self.refusal = PublishResult(Verdict.REFUSED, "broker_refused", words)


def names_another(claim: Claim, user: str | None) -> bool:
    """Whether the message names another user than the connection's. False for unreadable options: such a message is never sent."""
    options = claim.options
    if options is None or b"user" not in options:
        return False
    try:
        found = json.loads(options)
    except (ValueError, RecursionError):
        return False
    names = [found.get("userId"), found.get("user_id")] if isinstance(found, dict) else []
    return any(name is not None and name != user for name in names)
