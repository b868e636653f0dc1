"""The example application: writes orders and their messages in one transaction, and keeps a ledger of its actions."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, cast
from uuid import uuid4

import psycopg
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from relay.client import Message, enqueue_many_async
from relay.demo.broker import EXCHANGE
from relay.demo.errors import DemoError
from relay.demo.journal import Journal
from relay.demo.statements import statement

PAUSE: Final = 0.06
"""The longest pause of a customer between two orders, in seconds."""
_ROLLED_BACK: Final = 0.1
_UNDONE: Final = 0.2
"""Shares of the orders that are rolled back, and of the orders that undo a savepoint."""
_KEYS: Final = 4
"""Customers whose messages keep their order, for each seller."""


class Draft(NamedTuple):
    """A message before its INSERT, and its expected result."""

    exchange: str = EXCHANGE
    routing_key: str = "order.placed"
    content: Mapping[str, Any] = {}
    body: bytes | None = None
    options: Mapping[str, Any] = {}
    ordering_key: str | None = None
    delay: float | None = None
    """Seconds until the message is due."""
    lifetime: float | None = None
    """Seconds until the message expires."""
    expect: str = "success"
    """The expected result in the archive."""


class Shop:
    """Sells, and records each message in the producer's ledger before and after the end of its transaction.

    Args:
        url: the database.
        journal: the ledger.
    """

    def __init__(self, url: str, journal: Journal) -> None:
        self._url = url
        self._journal = journal
        self._transactions = itertools.count(1)
        self._places = itertools.count(1)
        self._progress = asyncio.Condition()
        self.committed = 0

    async def connect(self) -> AsyncConnection:
        """Return a connection that begins a transaction with its first statement."""
        return await AsyncConnection.connect(self._url, application_name="example shop")

    async def sold(self, messages: int) -> None:
        """Return when this many messages are committed."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.committed >= messages)

    async def open(self) -> Self:
        """Create the shop's own table."""
        async with await self.connect() as connection:
            await connection.execute(statement("create_shop"))
        return self

    async def sell(self, seller: int, messages: int) -> None:
        """Place orders of one to five messages.

        Of ten transactions, about two undo a savepoint; one of these two is then rolled back.
        """
        chance = random.Random(seller)  # noqa: S311 - not a secret
        async with await self.connect() as connection:
            while messages > 0:
                drafts = [self._order(seller, chance) for _ in range(min(messages, chance.randint(1, 5)))]
                fate = chance.random()
                undo = [self._order(seller, chance)] if fate < _UNDONE else []
                await self.trade(connection, drafts, undo=undo, commit=fate > _ROLLED_BACK)
                messages -= len(drafts) if fate > _ROLLED_BACK else 0
                await asyncio.sleep(chance.uniform(0, PAUSE))

    async def trade(
        self, connection: AsyncConnection, drafts: Sequence[Draft], *, undo: Sequence[Draft] = (), commit: bool = True
    ) -> list[str]:
        """Place one order with its messages in one transaction; return their ids."""
        await connection.execute(statement("place_order"), {"customer": drafts[0].ordering_key or "walk-in"})
        kept = [await self._insert(connection, draft) for draft in drafts]
        undone = await self._insert_and_undo(connection, undo)
        await self._end(connection, kept, undone, commit=commit)
        return [message["id"] for message in kept]

    async def burst(self, messages: int) -> None:
        """Commit many messages at once through the client library; every third message has an ordering key."""
        keys = [f"wholesale-{place % _KEYS}" if place % 3 == 0 else None for place in range(messages)]
        drafts = [Message(exchange=EXCHANGE, routing_key="order.placed", content={"part": key}, ordering_key=key) for key in keys]
        async with await self.connect() as connection:
            await enqueue_many_async(connection, drafts)
            await self._end(connection, [self._noted(str(message.id), message.ordering_key) for message in drafts], [])

    async def be_refused(self, connection: AsyncConnection, draft: Draft) -> str:
        """Insert a message that can never be sent; return the database's error message.

        Raises:
            DemoError: the database accepted it.
        """
        id_ = str(uuid4())
        try:
            await connection.execute(statement("insert_message"), _columns(id_, draft))
        except psycopg.Error as error:
            sentence = error.diag.message_primary or str(error)
        else:
            raise DemoError(f"The INSERT accepted a message that can never be sent ({draft.routing_key}); it must refuse it.")
        finally:
            await self._end(connection, [self._noted(id_)], [], commit=False)
        return sentence

    async def abandon(self, connection: AsyncConnection, times: int) -> None:
        """Leave a message under an expired lock, as if a worker had crashed on it this many times."""
        message = await self._insert(connection, Draft(content={"part": "crash"}, expect="lock_expired"))
        for _ in range(times):
            await connection.execute(statement("lock_by_hand"), {"id": message["id"]})
        await self._end(connection, [message], [])

    def _order(self, seller: int, chance: random.Random) -> Draft:
        customer = chance.randrange(_KEYS * 2)
        key = f"customer-{seller}-{customer}" if customer < _KEYS else None
        return Draft(content={"seller": seller, "total": chance.randint(100, 100_000) / 100}, ordering_key=key)

    async def _insert(self, connection: AsyncConnection, draft: Draft) -> dict[str, Any]:
        id_ = str(uuid4())
        cursor = await connection.execute(statement("insert_message"), _columns(id_, draft))
        [not_before] = cast("tuple[float | None]", await cursor.fetchone())
        return {**self._noted(id_, draft.ordering_key, draft.expect), "not_before": not_before}

    async def _insert_and_undo(self, connection: AsyncConnection, drafts: Sequence[Draft]) -> list[str]:
        if not drafts:
            return []
        async with connection.transaction(force_rollback=True):  # a savepoint, because a transaction is already open
            return [(await self._insert(connection, draft))["id"] for draft in drafts]

    def _noted(self, id_: str, key: str | None = None, expect: str = "success") -> dict[str, Any]:
        """The ledger's entry for a message. Places increase, so they define the order of a key's messages."""
        return {"id": id_, "expect": expect, "key": key, "place": next(self._places)}

    async def _end(
        self, connection: AsyncConnection, kept: Sequence[Mapping[str, Any]], undone: Sequence[str], *, commit: bool = True
    ) -> None:
        """Record the messages, end the transaction, and record its end."""
        name = f"t{next(self._transactions)}"
        self._journal.note(transaction=name, phase="before", messages=kept, undone=undone)
        await (connection.commit() if commit else connection.rollback())
        self._journal.note(transaction=name, phase="committed" if commit else "rolled_back")
        async with self._progress:
            self.committed += len(kept) if commit else 0
            self._progress.notify_all()


def _columns(id_: str, draft: Draft) -> dict[str, Any]:
    return {
        "id": id_,
        "exchange": draft.exchange,
        "routing_key": draft.routing_key,
        "content": Jsonb(draft.content),
        "body": draft.body,
        "options": Jsonb(draft.options),
        "ordering_key": draft.ordering_key,
        "delay": draft.delay,
        "lifetime": draft.lifetime,
    }
