"""Answers of handlers as text: in turn, within so many bytes, one always."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from relay.worker.response import HandlerResponse
from relay.worker.response_memory import MAX_WAIT, ResponseMemory
from tests.support.fakes.virtual_time import timeless


@timeless
async def test_answers_are_made_in_turn_while_there_is_room() -> None:
    """The last may reach beyond the bytes, and letters beyond ASCII count as four; who ends makes room for the next."""
    kept, made, done = ResponseMemory(5), list[str](), asyncio.Event()

    def make(text: str) -> HandlerResponse:
        made.append(text)
        return HandlerResponse(text, [])

    async def write(text: str, ended: asyncio.Event) -> None:
        async with kept.admit(lambda: make(text)):
            await ended.wait()

    async with asyncio.TaskGroup() as tasks:
        first = [tasks.create_task(write(text, done)) for text in ("é", "abc", "d", "e")]
        await asyncio.sleep(1)
        assert ["é", "abc"] == made
        first[0].cancel()
        await asyncio.sleep(1)
        assert ["é", "abc", "d", "e"] == made
        done.set()


@timeless
async def test_an_answer_does_not_wait_for_ever() -> None:
    """The transaction that it belongs to may hold what one ahead of it waits for."""
    kept, begun = ResponseMemory(1), asyncio.get_running_loop().time()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(kept.admit(lambda: HandlerResponse("large", [])))
    assert 2 * MAX_WAIT <= asyncio.get_running_loop().time() - begun < 3 * MAX_WAIT
    async with asyncio.timeout(1), kept.admit(lambda: HandlerResponse(None, [])) as answer:
        assert answer.text is None
