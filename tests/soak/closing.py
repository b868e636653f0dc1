"""The end of a soak: wait until all has arrived, and write the database's part of the ledger."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg

from relay.demo import ledger
from tests.soak.shards import Shards
from tests.soak.stage import DUE, QUEUE, Stage

LONGEST = 300.0
"""Seconds until the last message must have arrived, bad ones after their twelve attempts."""
_ARCHIVE = "SELECT id::text, result, error_code, extract(epoch FROM archived_at)::float8 FROM queue_message_archive"


async def backlog(stage: Stage) -> int:
    """Messages that the relays could take and have not."""
    async with asyncio.timeout(10):
        return int(await stage.value(DUE))


async def settled(stage: Stage, say: Callable[[str], None]) -> None:
    """Wait until nothing is in the database's queue nor in the broker's."""
    began, left = time.monotonic(), 1
    say("soak: the load is over; waiting until all has arrived")
    while left and time.monotonic() - began < LONGEST:
        await asyncio.sleep(0.5)
        with suppress(psycopg.OperationalError):
            left = await stage.value("SELECT count(*) FROM queue_message") or await _in_broker(stage)
    if left:
        stage.problems.append(f"{left} messages had not arrived {LONGEST:g} s after the last was inserted.")


def archive(url: str, folder: Path) -> None:
    """Write archive and queue to the shards, a row at a time."""
    with psycopg.connect(url) as connection:
        with Shards(folder, ledger.ARCHIVE) as file, connection.cursor(name="soak") as rows:
            for id_, result, code, at in rows.execute(_ARCHIVE):
                file.note(id_, id=id_, result=result, error_code=code, archived_at=at)
        with Shards(folder, ledger.QUEUE) as file:
            for (id_,) in connection.execute("SELECT id::text FROM queue_message"):
                file.note(id_, id=id_)


async def _in_broker(stage: Stage) -> int:
    """Messages of the queue, those that the consumer has not acknowledged too."""
    said = await asyncio.to_thread(stage.broker.ctl, "list_queues", "name", "messages", "--formatter", "json")
    return sum(int(queue["messages"]) for queue in json.loads(said) if queue["name"] == QUEUE)
