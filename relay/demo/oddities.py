"""Special messages: delayed messages, and one or a few of each kind that becomes dead or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from psycopg import AsyncConnection

from relay.demo.broker import MISSING, NOWHERE
from relay.demo.shop import Draft, Shop

ATTEMPTS: Final = 4
"""`RELAY_MAX_ATTEMPTS` of the demo."""
BODY_LIMIT: Final = 1_000_000
"""`RELAY_MAX_BODY_BYTES` of the demo."""

_DELAYED: Final = [Draft(content={"part": "reminder"}, delay=delay) for delay in (1.0, 2.5, 4.0, 4.5, 5.0)]
_DEAD: Final = {
    "unroutable": [Draft(exchange=NOWHERE, content={"part": "nobody listens"}, expect="failed")] * 3,
    "for an exchange that does not exist": [Draft(exchange=MISSING, content={"part": "nowhere"}, expect="failed")] * 2,
    "too large": [Draft(body=bytes(BODY_LIMIT + 1), expect="rejected")],
    "past their expires_at": [Draft(content={"part": "yesterday's paper"}, lifetime=-1.0, expect="rejected")] * 2,
}
DYING: Final = sum(map(len, _DEAD.values()))
"""The number of messages that a relay will archive as dead."""
_REFUSED: Final = [
    Draft(options={"persistant": True}, routing_key="order.misspelt"),
    Draft(options={"priority": 256}, routing_key="order.urgent"),
    Draft(routing_key="order." + "x" * 250),
]


async def insert_oddities(shop: Shop, say: Callable[[str], None]) -> None:
    """Insert all these messages, and print a description of them."""
    async with await shop.connect() as connection:
        await shop.trade(connection, _DELAYED)
        say(f"shop: {len(_DELAYED)} messages are due only in 1 to 5 s (available_at)")
        for kind, drafts in _DEAD.items():
            await shop.trade(connection, drafts)
            say(f"shop: {len(drafts)} {'messages' if len(drafts) > 1 else 'message'} {kind}, to end dead with result {drafts[0].expect}")
        await shop.abandon(connection, ATTEMPTS)
        say(f"shop: 1 message on which a worker of another kind has crashed {ATTEMPTS} times, to end dead with result lock_expired")
        await _be_refused(connection, shop, say)


async def _be_refused(connection: AsyncConnection, shop: Shop, say: Callable[[str], None]) -> None:
    for draft in _REFUSED:
        say(f"shop: refused by the INSERT: {await shop.be_refused(connection, draft)}")
