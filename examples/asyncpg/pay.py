"""Pay an invoice and announce it in one transaction, with asyncpg; see README.md."""

import asyncio
import os
from contextlib import suppress
from typing import Any
from uuid import UUID

import asyncpg

from relay.client import Message
from relay.integrations.asyncpg import enqueue


class RefusedError(Exception):
    """The bank does not pay."""


async def pay(connection: Any, total: int) -> UUID:
    """Write an invoice and the message about it, both or neither; return the message's id."""
    async with connection.transaction():
        invoice = await connection.fetchval("INSERT INTO invoice (total) VALUES ($1) RETURNING id", total)
        message = Message(exchange="shop", routing_key="order.paid", content={"invoice": invoice, "total": total})
        message_id = await enqueue(connection, message)
        await charge(total)
    return message_id


async def charge(total: int) -> None:
    """Ask the bank."""
    if total > 1000:
        raise RefusedError


async def main() -> None:
    """Pay one invoice, and fail to pay another."""
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        print(await pay(connection, 120))
        # The bank refuses this one: neither the invoice nor its message is there.
        with suppress(RefusedError):
            await pay(connection, 5000)
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
