"""The message that a handler receives."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from relay.inbox.delivery import RELAY_ID, declares_json
from relay.message import Claim
from relay.worker.outcomes import Retry


class NoJsonError(Retry, ValueError):
    """The payload is not JSON; read `Message.body`."""


@dataclass(frozen=True)
class Message:
    """One claimed message; its JSON is parsed on first access."""

    claim: Claim

    @property
    def id(self) -> str:
        """The id in the inbox, for example for `relay show`."""
        return self.claim.id

    @property
    def exchange(self) -> str:
        """The exchange to which the message was published."""
        return self.claim.exchange

    @property
    def routing_key(self) -> str:
        """The routing key with which the message was published."""
        return self.claim.routing_key

    @property
    def ordering_key(self) -> str | None:
        """The ordering key; messages with the same key are handled one after the other."""
        return self.claim.ordering_key

    @property
    def attempts(self) -> int:
        """Attempts so far, including this one."""
        return self.claim.attempts

    @property
    def replay_of(self) -> str | None:
        """The id of the message that this message replays."""
        return self.claim.replay_of

    @cached_property
    def body(self) -> bytes:
        """The payload as received if it was not JSON, and otherwise the JSON text as PostgreSQL writes it."""
        return self.claim.payload

    @cached_property
    def content(self) -> Any:
        """The payload's JSON value.

        Raises:
            ValueError: the payload is not JSON; read `body`.
        """
        if self.claim.binary and not declares_json(self.options):
            raise NoJsonError(f"Message {self.id} has no JSON content type: read its body.")
        return json.loads(self.claim.payload)

    @cached_property
    def options(self) -> dict[str, Any]:
        """AMQP properties, under the names of an outbox's options."""
        return json.loads(self.claim.options) if self.claim.options else {}

    @property
    def headers(self) -> dict[str, Any]:
        """The message's AMQP headers."""
        return dict(self.options.get("headers") or {})

    @property
    def relay_id(self) -> str | None:
        """The id that the publishing relay gave the message (header `x-relay-id`)."""
        found = self.headers.get(RELAY_ID)
        return found if isinstance(found, str) else None
