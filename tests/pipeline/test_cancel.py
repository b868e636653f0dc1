"""A job that is stopped waits for no network that is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from relay.pipeline.source import database as source
from relay.pipeline.source.database import Database
from relay.pipeline.verify import comparison
from tests.support.network.proxy import Proxy

PATIENCE = 10


def interrupt_a_verification(job: Database) -> None:
    """A signal arrives while a comparison waits for its statement."""
    with pytest.raises(KeyboardInterrupt), job.connection() as connection, comparison._cancelled(connection):
        raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [Database.cancel, interrupt_a_verification])
async def test_a_stop_waits_for_no_server_that_does_not_answer(
    database_url: str, monkeypatch: pytest.MonkeyPatch, stop: Callable[[Database], None]
) -> None:
    """The request goes over a connection of its own, and a lost network answers nothing on it."""
    monkeypatch.setattr(source, "CANCEL_SECONDS", 1)
    async with Proxy.before(database_url) as proxy:
        with Database(proxy.url(database_url)) as job:
            await asyncio.to_thread(job.one, "read_now")
            proxy.black_hole()
            begin = time.monotonic()
            waiting = asyncio.create_task(asyncio.to_thread(stop, job))
            done, _ = await asyncio.wait([waiting], timeout=PATIENCE)
            took = time.monotonic() - begin
            proxy.reset()
            await waiting
        assert done
        assert 1 <= took
