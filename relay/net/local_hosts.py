"""Protects a server on loopback from pages of other sites."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::[0-9]*)?")
"""The header Host: an address in brackets or a name, and a port (RFC 9110, 7.2)."""


class LocalHostsOnly:
    """Allows only requests whose header Host is an address or a name of this machine.

    This prevents DNS rebinding, by which a foreign web page points its own name at 127.0.0.1 and reads the response.

    Args:
        app: answers the requests that are allowed.
        name: another name that is allowed, as localhost is.
        sentence: the answer to other requests.
    """

    def __init__(self, app: ASGIApp, name: str, sentence: str) -> None:
        self._app, self._sentence = app, sentence
        self._names = {"", "localhost", name.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        host = _HOST.fullmatch(dict(scope.get("headers", [])).get(b"host", b"").decode("latin-1").lower())
        if host and ((name := host["name"]) in self._names or _is_address(host["address"] or name or "")):
            await self._app(scope, receive, send)
        else:
            await Response(self._sentence, 403, media_type="text/plain")(scope, receive, send)


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False
