"""What an application imports to handle messages of an inbox.

    from relay.worker import Message, Reject

    async def handle(message: Message) -> None:
        if message.content["total"] < 0:
            raise Reject("the total is negative")
        await book(message.content)

`relay work shop.handlers:handle` runs it. Returning archives the message `success`; `Reject` archives it `rejected`; another exception is
an attempt, and the last one archives it `failed`; a handler that does not end in its time leaves the message to its lock. Operators read
the sentences of `Reject` and `Retry`, and of other exceptions only type and place.
"""

from __future__ import annotations

from relay.worker.message import Message
from relay.worker.outcomes import Reject, Retry

__all__ = ["Message", "Reject", "Retry"]
