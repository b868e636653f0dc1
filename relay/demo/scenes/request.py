"""A request row: it contains a URL, and a worker writes the response from this URL into the same row."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

from relay.demo.polling import until
from relay.demo.scenes.stage import Check, Stage
from relay.devservers.process import LOOPBACK
from relay.net.http_client import UrlError, fetch
from relay.worker import Message, Reject

SETTINGS: Final = {"RELAY_SCHEMA": "fetching", "RELAY_DIRECTION": "inbox"}
_BODY: Final = b"hello from the demo"
_NEVER: Final = "http://169.254.169.254/latest/meta-data/"
"""The address at which cloud providers serve credentials."""
_LOOK: Final = 0.05


async def get(message: Message) -> dict[str, object]:
    """The handler: the values that it returns are written together with the message's result."""
    try:
        response = await fetch(message.content["url"], timeout=5, max_bytes=1 << 20, allow_private=True)
    except UrlError as error:
        raise Reject(str(error), code="url_refused") from error
    return {"response_at": datetime.now(UTC), "response_code": response.status, "response_body": response.body}


async def prepare(stage: Stage) -> None:
    """Create the table, and start the worker that answers its rows."""
    await stage.sidecars.command("migrate", settings=SETTINGS)
    await stage.commit(("scene_create_url_fetch", {}), ("scene_request", {}))
    handler = f"{__name__}:{get.__name__}"
    await stage.sidecars.start("fetcher", words=("work", handler), settings=SETTINGS)
    stage.say(f"relay work {handler}, for rows of url_fetch: ready")


async def play(stage: Stage) -> list[Check]:
    """Insert one request for a page of a small local server, and one whose URL is refused."""
    server = await asyncio.start_server(_serve, LOOPBACK, 0)
    url = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/"
    async with server:
        rows = await stage.commit(*(("scene_insert_url_fetch", {"url": asked}) for asked in (url, _NEVER)))
        good, bad = [await _answered(stage, row[0]) for row in rows if row]
    stage.say(f"url_fetch: {bad[2]}")
    return [
        Check("url_fetch: answers in the row that asked", int(good == (200, _BODY, None)), 1),
        Check("url_fetch: refused, with the reason in the row", int(bad[:2] == (None, None) and "url_refused" in str(bad[2])), 1),
    ]


async def _answered(stage: Stage, id_: int) -> tuple[Any, ...]:
    """Wait for the answer in a row: code, body, error."""
    found: tuple[Any, ...] = (None, None, None)

    async def answered() -> bool:
        nonlocal found
        [row] = await stage.commit(("scene_read_url_fetch", {"id": id_}))
        found = row or found
        return any(each is not None for each in found)

    await until(answered, every=_LOOK)
    return found


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(_BODY), _BODY))
    await writer.drain()
    writer.close()
