"""A proxy that keeps answers back from a certain statement on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tests.support.network.proxy import Proxy


class Trap(Proxy):
    """Keeps answers back from the moment on at which it passes on a request with a certain text."""

    text: bytes | None = None

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        ours = cast("asyncio.StreamReader", Eavesdropper(reader, self._look))
        await super()._pass_on(ours, writer, gate)

    def _look(self, data: bytes) -> None:
        if self.text is not None and self.text in data:
            self.text = None
            self.hold_answers()


class Eavesdropper:
    """A reader that shows somebody what it reads."""

    def __init__(self, reader: asyncio.StreamReader, show: Callable[[bytes], None]) -> None:
        self._reader = reader
        self._show = show

    async def read(self, size: int) -> bytes:
        """Read, show, return."""
        data = await self._reader.read(size)
        self._show(data)
        return data
