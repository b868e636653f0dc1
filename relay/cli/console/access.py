"""Who may read the pages: a browser that opened a link which works once, as long as its cookie is valid."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

SESSION_SECONDS = 12 * 3600.0
"""How long a cookie is valid."""
ENTRY, OPEN = "/enter", "/static/"
"""The path of the link, and the paths that need no cookie."""
_REFUSED = "This page is for a browser that has opened the link which `relay console` printed. The link works once.\n"


class LinkKeys:
    """The link's key and the sessions of browsers, in memory.

    Args:
        announce: is called with each new key: first at once, then whenever one was used.
        clock: seconds that never jump.
    """

    def __init__(self, announce: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._announce, self._clock = announce, clock
        self._lock = threading.Lock()
        self._sessions: dict[str, float] = {}
        self._key = ""
        self._renew()

    def enter(self, key: str) -> str | None:
        """Use the link's key up for a new session; None if the key is not the current one."""
        with self._lock:
            if not hmac.compare_digest(key.encode(), self._key.encode()):
                return None
            session = secrets.token_urlsafe(32)
            self._sessions = {one: ends for one, ends in self._sessions.items() if ends > self._clock()}
            self._sessions[session] = self._clock() + SESSION_SECONDS
            self._renew()
            return session

    def knows(self, session: str) -> bool:
        """Whether a browser may read pages. Sessions are looked up by hash: a guess learns nothing from the time."""
        return self._sessions.get(session, 0.0) > self._clock()

    def _renew(self) -> None:
        self._key = secrets.token_urlsafe(32)
        self._announce(self._key)


class Access:
    """Lets requests with a known cookie through, and turns the link into a cookie.

    Args:
        app: answers the requests that are let through.
        keys: the link's key and the sessions.
        cookie: the cookie's name. Browsers send a cookie to every port of a host, so each console has a name of its own.
    """

    def __init__(self, app: ASGIApp, keys: LinkKeys, cookie: str) -> None:
        self._app, self._keys, self._cookie = app, keys, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        request, path = Request(scope), scope["path"]
        if path == ENTRY:
            await self._enter(request)(scope, receive, send)
        elif path.startswith(OPEN) or self._keys.knows(_cookie(request, self._cookie)):
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse(_REFUSED, 401)(scope, receive, send)

    def _enter(self, request: Request) -> Response:
        session = self._keys.enter(request.query_params.get("key", ""))
        if session is None:
            known = self._keys.knows(_cookie(request, self._cookie))
            return RedirectResponse("/", 303) if known else PlainTextResponse(_REFUSED, 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._cookie, session, max_age=int(SESSION_SECONDS), httponly=True, samesite="lax")
        return answer


def _cookie(request: Request, name: str) -> str:
    """The value of a cookie; empty if the request has none, or none that can be read."""
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""
