"""What an application imports to handle messages of an inbox.

    from relay.worker import Message, Reject

    async def handle(message: Message) -> None:
        if message.content["total"] < 0:
            raise Reject("the total is negative")
        await book(message.content)

`relay work shop.handlers:handle` runs this handler. If the handler returns, the message is archived as `success`; if it raises `Reject`,
as `rejected`. Any other exception is a failed attempt; after the last attempt the message is archived as `failed`. After a timeout the
message stays locked until its lock expires. Operators see the text of `Reject` and `Retry`; of other exceptions they see only the type
and the line.

`fetch` is an HTTP client for URLs that messages name: it connects to no private address.
"""

from __future__ import annotations

from relay.net.http_client import OutboundError, Response, UrlError, fetch
from relay.worker.message import Message
from relay.worker.outcomes import Reject, Retry

__all__ = ["Message", "OutboundError", "Reject", "Response", "Retry", "UrlError", "fetch"]
