"""Turns a message into its frames, or decides its result if it must not be sent. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from relay.amqp.frames import ReplyReason
from relay.amqp.publishing.foreign_names import ForeignNames, names_another
from relay.amqp.publishing.publish_batch import OVERDUE, Slot
from relay.amqp.publishing.refusals import EXPIRED, OVERDUE_SUSPECT
from relay.amqp.publishing.refused_keys import RefusedKeys
from relay.codec.encoder import Encoded, Encoder
from relay.message import PublishResult


class SlotEncoder:
    """Encodes messages of one connection.

    Args:
        encoder: makes frames of messages.
        names: the broker's answers about messages in the name of another user.
        keys: the broker's answers about routing keys.

    """

    def __init__(self, encoder: Encoder, names: ForeignNames, keys: RefusedKeys) -> None:
        self._encoder = encoder
        self._names = names
        self.keys = keys

    def encode(self, slot: Slot, now: float) -> Encoded | None:
        """Make the frames of a message, or decide its result and return None. `now` is monotonic seconds.

        Each message passes through this function, so it is not divided and calls few others.
        """
        job, index = slot
        if job.results[index] is not None:
            return None
        claim, batch = job.claims[index], job.batch
        result: Encoded | PublishResult
        # This avoids a call for each message if the batch has one deadline.
        if now >= batch.deadline or (batch.behind and batch.is_overdue(claim, now)):
            result = OVERDUE_SUSPECT if job.published[index] else OVERDUE
        elif claim.expires_in is not None and now - batch.claimed_tick >= claim.expires_in:
            result = OVERDUE_SUSPECT if job.published[index] else EXPIRED
        else:
            result = self._encoder.encode(claim)
            refusal = self._names.refusal
            if refusal is not None and not isinstance(result, PublishResult) and names_another(claim, self._names.user):
                result = refusal
            if self.keys.refused and not isinstance(result, PublishResult):
                result = self.keys.refusal(claim) or result
            if job.refused and not isinstance(result, PublishResult):
                result = job.refused.get(index, result)
        if isinstance(result, PublishResult):
            job.decide(index, result)
            return None
        return result

    def learn(self, slot: Slot, reason: ReplyReason) -> bool:
        """The broker closed a channel over this message; return whether other messages of its exchange get another route now."""
        job, index = slot
        self._names.learn(job.claims[index], reason)
        return self.keys.learn(job.claims[index], reason)

    def took(self, exchange: str, slots: Sequence[Slot]) -> None:
        """The broker has accepted these messages."""
        if self.keys.guards([exchange]):
            self.keys.took(job.claims[index] for job, index in slots)
