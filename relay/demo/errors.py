"""The one error of the demo."""

from __future__ import annotations

from relay.errors import RelayError


class DemoError(RelayError):
    """Something did not go as it must; the message says what."""
