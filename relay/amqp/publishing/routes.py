"""Chooses a message's channel: the normal channel of its exchange, or a separate channel of that exchange. No I/O.

RabbitMQ may close a channel over one message; then everything else in flight on that channel is sent again. Messages that may close
their channel therefore use a separate one: if it is closed, only such messages are repeated. These are messages with:

- another user's name (`user_id`), which RabbitMQ accepts only from impersonators (406), see `relay.amqp.publishing.foreign_names`;
- a large payload, because no client can read the broker's `max_message_size` (406);
- a failed attempt, for any reason: some causes, such as a forbidden routing key (403), show only when the message is sent.

Once the broker has refused a routing key of an exchange, keys that it has not accepted yet are tried on another channel: see
`relay.amqp.publishing.refused_keys`.

A message over which the broker may have closed the whole connection is sent alone: see `relay.amqp.publishing.isolation`.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from enum import Enum
from operator import itemgetter
from typing import Final

from relay.amqp.publishing.foreign_names import names_another
from relay.amqp.publishing.refused_keys import RefusedKeys
from relay.message import Batch, Claim


class Way(Enum):
    """With which other messages a message is sent; an exchange has a channel for each way."""

    SHARED = "shared"
    """With all other messages of the exchange."""
    APART = "apart"
    """With messages that may close their channel."""
    ASKED = "asked"
    """With messages whose routing key the broker may refuse."""
    ALONE = "alone"
    """With nothing else on any channel."""


Route = tuple[str, Way]
"""An exchange, and the way of its messages."""
LARGE: Final = 1 << 20
"""Bytes of a payload above which a message goes the way `APART`."""


_payload, _options, _attempts = (itemgetter(Claim._fields.index(name)) for name in ("payload", "options", "attempts"))


def by_route(
    batch: Batch, user: str | None, keys: RefusedKeys, places: Collection[int] | None = None, blamed: Container[str] = ()
) -> dict[Route, Sequence[int]]:
    """For each route, the indexes of its messages in the batch, in the batch's order.

    Args:
        batch: the messages.
        user: the user who is logged in; None if the user is not known.
        keys: routing keys that the broker does not accept.
        places: the places in the batch to consider; None for all.
        blamed: ids of messages over which a connection may have ended.

    """
    claims = batch.claims
    if places is not None:
        return _grouped((place, (claims[place].exchange, _way(claims[place], user, keys, blamed))) for place in places)
    # Most batches need no separate channel. A few built-in functions, which are fast, find that out.
    large = max(map(len, map(_payload, claims)), default=0) > LARGE
    looks = large or any(map(_options, claims)) or max(map(_attempts, claims), default=0) > 1
    if looks or keys.guards(batch.exchanges):
        return _grouped((place, (claim.exchange, _way(claim, user, keys, blamed))) for place, claim in enumerate(claims))
    if len(batch.exchanges) == 1:
        return {(exchange, Way.SHARED): range(len(claims)) for exchange in batch.exchanges}
    return _grouped((place, (claim.exchange, Way.SHARED)) for place, claim in enumerate(claims))


def _grouped(routes: Iterable[tuple[int, Route]]) -> dict[Route, Sequence[int]]:
    groups: dict[Route, list[int]] = {}
    for place, route in routes:
        groups.setdefault(route, []).append(place)
    return dict(groups)


def _way(claim: Claim, user: str | None, keys: RefusedKeys, blamed: Container[str]) -> Way:
    if claim.attempts > 1 and claim.id in blamed:
        return Way.ALONE
    if keys.exchanges and keys.is_open(claim):
        return Way.ASKED
    return Way.APART if _goes_apart(claim, user) else Way.SHARED


def _goes_apart(claim: Claim, user: str | None) -> bool:
    return claim.attempts > 1 or len(claim.payload) > LARGE or names_another(claim, user)
