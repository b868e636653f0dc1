"""What `relay work url_fetch:get` does with a row of url_fetch; see README.md."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from urllib.parse import urljoin, urlsplit

from relay.worker import Message, OutboundError, Reject, Response, Retry, UrlError, fetch

SECONDS = float(os.environ.get("URL_FETCH_SECONDS", "20"))
LONGEST = int(os.environ.get("URL_FETCH_BYTES", str(1 << 20)))
PRIVATE = frozenset(os.environ.get("URL_FETCH_PRIVATE", "").split(","))
"""Hosts of one's own network that may be asked all the same."""
HOPS = 5


async def get(message: Message) -> dict[str, object]:
    """Fetch a URL; what is returned lands in the row."""
    try:
        response = await followed(message.content["url"])
    except (UrlError, ValueError) as error:
        raise Reject(str(error), code="url_refused") from error
    except OutboundError as error:
        raise Retry(str(error)) from error
    return {
        "response_at": datetime.now(UTC),
        "response_code": response.status,
        "response_body": response.body,
        "response_cut": response.cut,
    }


async def followed(url: str) -> Response:
    """The answer at the end of redirects, each of which is looked at like the first URL."""
    for _ in range(HOPS):
        private = urlsplit(url).hostname in PRIVATE
        response = await fetch(url, timeout=SECONDS, max_bytes=LONGEST, allow_private=private)
        if response.status not in (301, 302, 303, 307, 308) or "location" not in response.headers:
            return response
        url = urljoin(url, response.headers["location"])
    raise Reject(f"There are more than {HOPS} redirects.", code="redirects")
