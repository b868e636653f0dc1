"""What channels a connection may have, and whom it asks about time. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ChannelAllowance:
    """The channels that a connection may have."""

    most: int
    """How many may be open, 0 for any number."""
    idle: int
    """Idle ones above this number are closed."""
    wake: Callable[[float, Callable[[], None]], object]
    """Calls a function after so many seconds."""
    starved: Callable[[int], None] = lambda _: None
    """Hears how many exchanges share them when one of these gets none."""
    later: Callable[[Callable[[], None]], object] | None = None
    """Calls what it is given when the broker counts a channel no more that was just closed; None: it does so at once."""
