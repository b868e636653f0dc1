"""How many channels a connection may have, and the functions that the connection calls about them. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ChannelAllowance:
    """The channels that a connection may have."""

    most: int
    """How many channels may be open; 0 means no limit."""
    idle: int
    """While this many channels are open, an idle channel is closed before another is opened."""
    wake: Callable[[float, Callable[[], None]], object]
    """Calls a function after a number of seconds."""
    starved: Callable[[int], None] = lambda _: None
    """Called with the number of exchanges that share the channels, when one of the exchanges gets no channel."""
    later: Callable[[Callable[[], None]], object] | None = None
    """Calls a function once the broker no longer counts a channel that was just closed; None: the broker stops counting it at once."""
