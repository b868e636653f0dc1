"""How many channels a connection may open: as many as were negotiated, or fewer if the broker has refused a channel. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from relay import events
from relay.events import broker

FORGETS: Final = 5.0
"""Seconds for which the broker may still count channels that are closed."""
HOLDS: Final = 600.0
"""Seconds after which the next connection asks for all channels again, because the limit may have been raised.

This request is rare because each refusal ends a connection. A publisher's report of the limit ends after the same time, if no exchange
has waited for a channel since.
"""


class ChannelLimit:
    """The broker's channel limits that are not negotiated, as far as the broker's refusals have shown them.

    Args:
        clock: monotonic seconds.
        emit: gets an event when the limit begins or ends.
        spares: leave half of the granted channels unused, for a connection that opens and closes channels all the time. For a
            moment the broker still counts channels that were closed, and the channels of a lost connection.

    """

    def __init__(self, *, clock: Callable[[], float], emit: events.Sink, spares: bool) -> None:
        self._clock = clock
        self._emit = emit
        self._spares = spares
        self._most = self._said = 0
        self._lowered_at = self._felt_at = -FORGETS

    @property
    def is_learned(self) -> bool:
        """Whether the broker has refused a channel."""
        return self._most > 0

    def refused(self, asked: int, allowed: int, *, sharing: int) -> None:
        """The broker closed the connection over one of the `asked` channels. `allowed`: the limit that the broker named, or 0.

        If `asked` is not above the named limit, other connections have the rest of the channels.
        """
        explained = 0 < allowed < asked
        if self._spares and not explained and self._clock() < self._lowered_at + FORGETS:
            return
        self._lowered_at = self._clock()
        fewer = asked - 1 if self._spares else asked // 2
        granted = allowed if explained else fewer
        self._most = max(1, granted // 2 if self._spares else granted)
        self.shared(self._most, sharing)

    def of(self, negotiated: int, *, sharing: int = 0) -> int:
        """How many channels a new connection may open.

        Args:
            negotiated: the number that the connection negotiated; 0 means no limit.
            sharing: how many exchanges or queues get one channel each if there are enough channels.

        """
        if self._clock() >= self._lowered_at + HOLDS:
            self._most = 0
        most = min(negotiated or self._most, self._most or negotiated)
        if sharing or not self._most:
            self.shared(most, sharing)
        return most

    def shared(self, channels: int, sharing: int) -> None:
        """Report once that `sharing` exchanges or queues share `channels` channels, and later that they no longer do."""
        felt = channels if 0 < channels < sharing else 0
        self._felt_at = self._clock()
        if felt != self._said:
            self._said = felt
            self._emit(broker.ChannelsLimited(channels, sharing) if felt else broker.ChannelsUnlimited())

    def look(self, *, waiting: bool) -> None:
        """Note whether an exchange waits for a channel now. End the report if no exchange has waited for `HOLDS` seconds."""
        if waiting:
            self._felt_at = self._clock()
        elif self._clock() >= self._felt_at + HOLDS:
            self.shared(0, 0)
