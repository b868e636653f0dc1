"""The first look at the database: it is repeated until it answers, and ends with the process."""

from __future__ import annotations

import asyncio

from relay import events
from relay.app.process import reach
from relay.errors import StoreError
from tests.support.fakes.virtual_time import timeless


@timeless
async def test_a_look_that_fails_is_repeated() -> None:
    """And each failure is reported."""
    answers = [StoreError("Away."), StoreError("Still away."), None]
    told: list[events.Event] = []

    async def look() -> bool:
        if answer := answers.pop(0):
            raise answer
        return True

    assert await reach(look, stop=asyncio.Event(), emit=told.append)
    assert [events.DatabaseDown("Away.", 1), events.DatabaseDown("Still away.", 2)] == told


@timeless
async def test_a_look_without_an_answer_ends_with_the_process() -> None:
    """It is cancelled, not left behind."""
    stop, ended = asyncio.Event(), asyncio.Event()

    async def look() -> bool:
        try:
            return await asyncio.Event().wait()
        finally:
            ended.set()

    asyncio.get_running_loop().call_later(1, stop.set)
    async with asyncio.timeout(2):
        assert not await reach(look, stop=stop, emit=lambda event: None)
    assert ended.is_set()
