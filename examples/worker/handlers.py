"""What becomes of a message is what its handler does; see README.md."""

import asyncio
from typing import Any

from relay.worker import Message, Reject


async def book(message: Message) -> None:
    """Book a paid invoice at the bank."""
    invoice = message.content
    if invoice["total"] <= 0:
        raise Reject("there is nothing to pay", code="nothing_to_pay")
    await transfer(invoice)


async def transfer(invoice: dict[str, Any]) -> None:
    """Stand in for a bank that is closed for some and never answers others."""
    if invoice.get("bank") == "closed":
        raise ConnectionError("the bank is closed")
    if invoice.get("bank") == "silent":
        await asyncio.sleep(3600)
