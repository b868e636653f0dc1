"""Webhooks of `relay dead watch`: sends each dead message as a signed POST, and pauses while the receiver is unavailable."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping

from relay.cli.dead_watch.actions import LONGEST_PAUSE, CannotHandle, Dead, Handled, Outcome, RetryLater, as_json, pause
from relay.net.http_client import OutboundError, Response, UnreachableHostError, UrlError, fetch, parse
from relay.net.webhook_signature import signed

_ANSWER_BYTES = 4096
"""How many bytes of a receiver's response are read; only the status counts."""
_UNAVAILABLE = frozenset({429, 502, 503, 504})
"""Status codes by which a gateway or the receiver reports that it is unavailable."""
_LONGEST_NUMBER = 9
"""The most digits of a Retry-After that is read as seconds."""


class WebhookHandler:
    """Posts each message to a URL, signed. While the receiver is unavailable nothing is posted, and no message uses up a try.

    Args:
        url: the receiver's URL; its path is never shown.
        timeout: seconds for one request.
        allow_private: whether posts to this machine and to private networks are allowed.
        secret: returns the current secret; None sends without a signature.
    """

    acts = True
    name = "webhook"

    def __init__(self, url: str, *, timeout: float, allow_private: bool, secret: Callable[[], str] | None) -> None:
        self._url = url
        self._place = parse(url, allow_private=allow_private).place
        self._timeout = timeout
        self._allow_private = allow_private
        self._secret = secret
        self._tls = ssl.create_default_context()
        self._runner = asyncio.Runner()
        self._task: asyncio.Task[Response] | None = None
        self._open_at = 0.0
        self._failures = 0

    def handle(self, dead: Dead) -> Outcome:
        """See `Handler`."""
        if (closed := self._open_at - time.monotonic()) > 0:
            return RetryLater("", closed, counts=False)
        body, message_id = hook_body(dead), f"dead_{dead['id']}_{dead['xid']}_{dead['seq']}"
        headers = {"content-type": "application/json"}
        if self._secret is not None:
            headers |= signed(self._secret(), message_id=message_id, timestamp=int(time.time()), body=body)
        else:
            headers["webhook-id"] = message_id
        try:
            response = self._runner.run(self._posted(headers, body))
        except (UnreachableHostError, UrlError) as error:
            return self._wait_for_receiver(str(error), 0.0)
        except OutboundError as error:
            return RetryLater(f"{error} Message {dead['id']} stays unacknowledged.")
        except asyncio.CancelledError:
            return RetryLater(f"The webhook for message {dead['id']} was cut short.")
        return self._outcome(dead, response)

    def cut(self) -> None:
        """See `Handler`."""
        if self._task is not None and not self._task.done():
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def close(self) -> None:
        """See `Handler`."""
        self._runner.close()

    async def _posted(self, headers: Mapping[str, str], body: bytes) -> Response:
        self._task = asyncio.ensure_future(
            fetch(
                self._url, method="POST", headers=headers, body=body, timeout=self._timeout, max_bytes=_ANSWER_BYTES,
                allow_private=self._allow_private, tls=self._tls,
            )
        )  # fmt: skip
        return await self._task

    def _outcome(self, dead: Dead, response: Response) -> Outcome:
        answered = f"{self._place} answered {response.status} for message {dead['id']}"
        if response.status in _UNAVAILABLE:
            return self._wait_for_receiver(f"{answered}.", retry_after(response))
        self._failures = 0
        if 200 <= response.status < 300:  # noqa: PLR2004 - what a success is
            return Handled()
        if response.status >= 500:  # noqa: PLR2004 - a failure of the server itself
            return RetryLater(f"{answered}; it stays unacknowledged.", retry_after(response))
        redirect = ", a redirect, which is not followed" if response.status // 100 == 3 else ""  # noqa: PLR2004 - 3xx
        return CannotHandle(f"{answered}{redirect}; it is not tried again and stays unacknowledged.")

    def _wait_for_receiver(self, why: str, asked: float) -> Outcome:
        wait = max(pause(self._failures), asked)
        self._failures += 1
        self._open_at = time.monotonic() + wait
        return RetryLater(f"{why} Webhooks wait for {wait:.1f} s." if asked or self._failures in {1, 10} else "", wait, counts=False)


def retry_after(response: Response) -> float:
    """The receiver's Retry-After in seconds, within the limit; 0 without one, or for a date."""
    text = response.headers.get("retry-after", "").strip()
    return min(float(text), LONGEST_PAUSE) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else 0.0


def hook_body(dead: Dead) -> bytes:
    """A webhook's body: a type, the time of the message's death, and the message."""
    return as_json({"type": "message.dead", "timestamp": dead["archived_at"], "data": dead})
