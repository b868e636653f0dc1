"""Handles a channel that the relay closes, until the broker has closed it too. No I/O."""

from __future__ import annotations

from typing import Protocol

from relay.amqp import frames
from relay.amqp.frames import ReplyReason


class ChannelOwner(Protocol):
    """What a closing channel needs of its connection."""

    def write(self, data: bytes) -> None:
        """Write whole frames."""

    def free(self, channel: int) -> None:
        """Allow the channel number to be used again."""

    def pump(self) -> None:
        """Write what may be written now."""


class ClosingChannel:
    """Handler of a channel that the relay closes; nothing was in flight on it."""

    def __init__(self, session: ChannelOwner, channel: int) -> None:
        self._session = session
        self._channel = channel

    def acked(self, tag: int, *, multiple: bool) -> None:
        """No message was in flight."""

    def nacked(self, tag: int, *, multiple: bool) -> None:
        """No message was in flight."""

    def returned(self, relay_id: str, reason: ReplyReason) -> None:
        """No message was in flight."""

    def replied(self, method: tuple[int, int]) -> None:
        """Free the channel number when the broker has closed the channel too."""
        if method == frames.CHANNEL_CLOSE_OK:
            self._session.free(self._channel)
            self._session.pump()

    def closed(self, reason: ReplyReason) -> None:  # noqa: ARG002 - the name is the protocol's
        """Both sides closed at once: answer, and wait for the answer."""
        self._session.write(frames.close_channel_ok(self._channel))
