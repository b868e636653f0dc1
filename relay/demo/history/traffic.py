"""The messages of the example shop over several days: for three exchanges, and a few that become dead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from psycopg import AsyncConnection

from relay.client import Message, enqueue_many_async

BODY_LIMIT: Final = 20_000
"""`RELAY_MAX_BODY_BYTES` of this demo."""
ORDERS: Final = "shop"
ROUTES: Final = {
    ORDERS: ("order.placed", "order.paid", "order.shipped", "order.returned"),
    "billing": ("invoice.sent", "invoice.paid"),
    "mail": ("mail.welcome", "mail.receipt", "mail.news"),
}
"""Exchanges with a queue, and their routing keys, the most frequent first."""
NOWHERE: Final = "audit"
"""An existing exchange without a binding."""
MISSING: Final = "attic"
"""An exchange that is never declared."""

_SHARES: Final = (6, 3, 2)
_TOGETHER: Final = 20
"""How many messages one transaction has."""
_DEAD_EVERY: Final = 60
"""One in this many messages becomes dead; the kinds of dead messages take turns."""
_PAUSE: Final = 0.01
"""The longest pause of a customer, in seconds."""


async def sell(url: str, messages: int, *, seed: int) -> int:
    """Commit this many messages in several transactions; return how many of them will become dead."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    drafts = list(_drafts(messages, chance))
    async with await AsyncConnection.connect(url, application_name="example shop") as connection:
        for start in range(0, messages, _TOGETHER):
            await enqueue_many_async(connection, drafts[start : start + _TOGETHER])
            await connection.commit()
            await asyncio.sleep(chance.uniform(0, _PAUSE))
    return messages // _DEAD_EVERY


def _drafts(messages: int, chance: random.Random) -> Iterator[Message]:
    for place in range(1, messages + 1):
        yield _dying(place // _DEAD_EVERY) if place % _DEAD_EVERY == 0 else _good(place, chance)


def _good(place: int, chance: random.Random) -> Message:
    [exchange] = chance.choices(list(ROUTES), _SHARES)
    keys = ROUTES[exchange]
    [key] = chance.choices(keys, range(len(keys) * 2, 0, -2))
    customer = f"customer-{chance.randrange(40)}"
    content = {"number": place, "customer": customer, "euro": chance.randint(100, 99_999) / 100, "note": "é" * chance.randrange(200)}
    return Message(exchange=exchange, routing_key=key, content=content, ordering_key=customer if place % 4 == 0 else None)


def _dying(number: int) -> Message:
    match number % 4:
        case 0:
            return Message(exchange=NOWHERE, routing_key="order.seen", content={"number": number})
        case 1:
            return Message(exchange=MISSING, routing_key="order.kept", content={"number": number})
        case 2:
            return Message(exchange=ORDERS, routing_key="order.scanned", body=bytes(BODY_LIMIT + 1))
        case _:
            yesterday = datetime.now(UTC) - timedelta(days=1)
            return Message(exchange="mail", routing_key="mail.news", content={"number": number}, expires_at=yesterday)
