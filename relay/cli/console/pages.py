"""The pages: what each reads, with the functions of the command line, and the template that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import typer
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from relay.cli.common.arguments import Archived, place
from relay.cli.console.latest import Latest
from relay.cli.console.sessions import Sessions
from relay.cli.console.templates import rendered
from relay.cli.queue_check.listing import STATES, Wanted, listed
from relay.cli.queue_check.scan import FIRST
from relay.cli.queue_check.story import cut_at, read_story
from relay.cli.queue_status.figures import Status, read_status
from relay.cli.queue_status.picture import queue_line, recent_line, relay_row
from relay.cli.queue_status.problems import problems
from relay.errors import RelayError, StoreError
from relay.postgres.operator_session import BusyError, NotFoundError

REFRESH = 5
"""Seconds between two updates of a page that is visible."""
KEPT = 4.0
"""Seconds for which the figures of the overview are kept; less than `REFRESH`, so that each update of a single page is new."""
PAGE, SCANNED = 50, 20_000
"""How many waiting messages a page shows, and how many messages of the queue it scans for them."""
DEAD, GROUPS = 100, 20
"""How many dead messages and groups of them a page shows."""
TEXTS = ("exchange", "routing_key", "ordering_key", "code")
RESULTS = ("rejected", "failed", "lock_expired")
TIMES = ("created_at", "available_at", "claimed_at", "published_at", "confirmed_at", "archived_at")


class ConsolePages:
    """Answers the requests of browsers. Each method is a page; it runs in a thread of its own.

    Args:
        sessions: connections of an operator's login.
        schema: where the outbox is.
    """

    def __init__(self, sessions: Sessions, schema: str) -> None:
        self._sessions, self._schema = sessions, schema
        self._status: Latest[Status] = Latest(self._read_status, KEPT)

    def overview(self, _: Request) -> Response:
        """What waits, what was settled, what needs an operator, and who is at work."""
        found = self._status.value()
        return self._page(
            "overview",
            found=found,
            lines=[line for line in problems(found) if line],
            queue=queue_line(found),
            recent=recent_line(found["recent"]),
            relays=[relay_row(row) for row in found["relays"]],
            refresh=REFRESH,
        )

    def waiting(self, request: Request) -> Response:
        """Messages in the queue that meet the form's conditions."""
        texts = _texts(request, TEXTS)
        states = [state for state in request.query_params.getlist("state") if state]
        if unknown := set(states) - set(STATES):
            raise HTTPException(400, f"There is no state {min(unknown)!r}: give one of {', '.join(STATES)}.")
        after = place(given) if (given := request.query_params.get("after")) else FIRST
        with self._sessions.session() as opened:
            found = listed(opened, Wanted(state=states or None, **texts), after, limit=PAGE, scan=SCANNED)
        more = None if found.next is None else _query(texts, state=states, after=[found.next])
        return self._page("waiting", rows=found.messages, more=more, texts=texts, states=states, all_states=STATES, scanned=SCANNED)

    def search(self, request: Request) -> Response:
        """Lead from the search field to the message's page."""
        return RedirectResponse(f"/message/{Archived.of(request.query_params.get('id', '').strip())}", 303)

    def message(self, request: Request) -> Response:
        """The story of one message."""
        asked = Archived.of(request.path_params["id"])
        with self._sessions.session() as opened:
            found = read_story(opened, asked)
        if not found["story"]:
            raise NotFoundError(f"No message has the id {asked}, neither in the queue nor in the archive.")
        parts = [(part, sorted((part[name], name) for name in TIMES if part[name])) for part in found["story"]]
        return self._page("message", asked=asked, found=found, parts=parts, times=TIMES, cut=cut_at(found))

    def dead(self, request: Request) -> Response:
        """Dead messages: groups by exchange, routing key and code, and the newest ones that meet the form's conditions."""
        texts = _texts(request, ("exchange", "routing_key", "code", "result"))
        acknowledged = request.query_params.get("all") == "1"
        with self._sessions.session() as opened:
            groups = opened.rows("group_dead", most=GROUPS)
            rows = opened.rows(
                "list_dead",
                acknowledged=acknowledged,
                most=DEAD,
                **{**dict.fromkeys(("exchange", "routing_key", "code", "result")), **texts},
            )
        return self._page(
            "dead",
            groups=[(group, _query(_names(group))) for group in groups],
            rows=rows,
            texts=texts,
            results=RESULTS,
            acknowledged=acknowledged,
            most=DEAD,
        )

    def problem(self, _: Request, error: Exception) -> Response:
        """An error as a sentence. A page that waits for the database tries again by itself."""
        status, sentence = _explained(error)
        waits = isinstance(error, StoreError | BusyError)
        answer = self._page("problem", status=status, sentence=sentence, refresh=REFRESH if waits else None)
        answer.status_code = status
        return answer

    def _page(self, name: str, **values: object) -> HTMLResponse:
        return HTMLResponse(rendered(name, schema=self._schema, page=name, **{"refresh": None, **values}))

    def _read_status(self) -> Status:
        with self._sessions.session() as opened:
            return read_status(opened)


def _texts(request: Request, names: tuple[str, ...]) -> dict[str, str]:
    """Conditions of a form. An empty field is none; the parameter `empty` names those that must be the empty string."""
    given = {name: request.query_params.get(name, "") for name in names}
    empty = request.query_params.getlist("empty")
    return {name: text for name, text in given.items() if text or name in empty}


def _names(group: Mapping[str, Any]) -> dict[str, str]:
    named = {"exchange": group["exchange"], "routing_key": group["routing_key"], "code": group["error_code"], "result": group["result"]}
    return {name: text for name, text in named.items() if text is not None}


def _query(texts: Mapping[str, str], **more: list[str]) -> str:
    """The conditions as the query of a link."""
    pairs = [(name, text) for name, text in texts.items() if text] + [("empty", name) for name, text in texts.items() if not text]
    return urlencode(pairs + [(name, one) for name, values in more.items() for one in values])


def _explained(error: Exception) -> tuple[int, str]:
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, typer.BadParameter):
        return 400, error.message
    status = 404 if isinstance(error, NotFoundError) else 503 if isinstance(error, StoreError | BusyError) else 500
    return status, str(error) if isinstance(error, RelayError) else "The console met an error that it does not know; its output has more."
