"""A proxy that breaks the connection to PostgreSQL at a statement, for tests that are not asynchronous themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

from tests.support.network.delaying_proxy import Eavesdropper
from tests.support.network.proxy import Proxy


class Cut(NamedTuple):
    """Where a connection breaks.

    Args:
        text: of the statement.
        answered: PostgreSQL runs the statement, and its answer alone is lost; else the statement is lost.
        away: new connections are refused from then on.

    """

    text: bytes
    answered: bool
    away: bool


class CuttingProxy(Proxy):
    """Breaks its connections once, where `cut` says, as soon as that is set."""

    cut: Cut | None = None
    broken = False
    _answering: asyncio.StreamWriter | None = None

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        def look(data: bytes) -> None:
            if self.cut is None or self.broken:
                return
            if gate is self._there and self.cut.text in data:
                self._answering = next(client for client, server in self._pairs if server is writer)
                if not self.cut.answered:
                    self._break()
            elif gate is self._back and writer is self._answering:
                self._break()

        ours = cast("asyncio.StreamReader", Eavesdropper(reader, look))
        await super()._pass_on(ours, writer, gate)

    def _break(self) -> None:
        assert self.cut is not None
        self.broken = True
        self.reset()
        if self.cut.away:
            self._server.close()
        raise ConnectionResetError


@contextmanager
def cutting_proxy(url: str) -> Iterator[CuttingProxy]:
    """A proxy before the server of a URL, with an event loop and a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        made = CuttingProxy.before(url)
        asyncio.run_coroutine_threadsafe(made.listen(), loop).result()
        yield made
        asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
