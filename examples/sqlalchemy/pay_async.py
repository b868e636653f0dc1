"""Pay an invoice and announce it in one transaction, with an async session of SQLAlchemy's; see README.md."""

import asyncio
from contextlib import suppress
from uuid import UUID

from invoices import Invoice, RefusedError, charge, database_url, paid
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from relay.integrations.sqlalchemy import enqueue_async


async def pay(sessions: async_sessionmaker[AsyncSession], total: int) -> UUID:
    """Write an invoice and the message about it, both or neither; return the message's id."""
    async with sessions.begin() as session:
        invoice = Invoice(total=total)
        session.add(invoice)
        await session.flush()  # gives the invoice its id
        message_id = await enqueue_async(session, paid(invoice))
        charge(invoice)
    return message_id


async def main() -> None:
    """Pay one invoice, and fail to pay another."""
    engine = create_async_engine(database_url())
    sessions = async_sessionmaker(engine)
    print(await pay(sessions, 120))
    # The bank refuses this one: neither the invoice nor its message is there.
    with suppress(RefusedError):
        await pay(sessions, 5000)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
