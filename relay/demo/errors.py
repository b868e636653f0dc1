"""The error of the demo."""

from __future__ import annotations

from relay.errors import RelayError


class DemoError(RelayError):
    """The demo failed; the message says at which step."""
