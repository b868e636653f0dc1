"""A message as a handler gets it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from relay.inbox.delivery import RELAY_ID, says_json
from relay.message import Claim
from relay.worker.outcomes import Retry


class NoJsonError(Retry, ValueError):
    """The payload is no JSON; `Message.body` has it."""


@dataclass(frozen=True)
class Message:
    """One claimed message; nothing of it is parsed before it is asked for."""

    claim: Claim

    @property
    def id(self) -> str:
        """Its id in the inbox, which `relay show` takes."""
        return self.claim.id

    @property
    def exchange(self) -> str:
        """Where it was published."""
        return self.claim.exchange

    @property
    def routing_key(self) -> str:
        """By what it was routed."""
        return self.claim.routing_key

    @property
    def ordering_key(self) -> str | None:
        """Messages with the same key are handled one after the other."""
        return self.claim.ordering_key

    @property
    def attempts(self) -> int:
        """Tries so far, this one included."""
        return self.claim.attempts

    @property
    def replay_of(self) -> str | None:
        """The message that this one repeats."""
        return self.claim.replay_of

    @cached_property
    def body(self) -> bytes:
        """The payload: as it came if it was no JSON, else as the database writes it."""
        return self.claim.payload

    @cached_property
    def content(self) -> Any:
        """The payload's JSON value.

        Raises:
            ValueError: it is no JSON; `body` has it.
        """
        if self.claim.binary and not says_json(self.options):
            raise NoJsonError(f"Message {self.id} says of no content type that it is JSON: read its body.")
        return json.loads(self.claim.payload)

    @cached_property
    def options(self) -> dict[str, Any]:
        """Properties by the names that an outbox has for them."""
        return json.loads(self.claim.options) if self.claim.options else {}

    @property
    def headers(self) -> dict[str, Any]:
        """The headers."""
        return dict(self.options.get("headers") or {})

    @property
    def relay_id(self) -> str | None:
        """The id that the relay gave it which published it."""
        found = self.headers.get(RELAY_ID)
        return found if isinstance(found, str) else None
