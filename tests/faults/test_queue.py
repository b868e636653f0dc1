"""The queue is the database: what was committed needs neither relay nor broker to last."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from relay import devservers
from tests.support.database.queue import Queue, unchecked
from tests.support.faults.scene import Scene

ROOM = 64 << 20
"""Bytes that a process of the server may still take: less than the text needs."""


@pytest.mark.fault(4, repeats=5)
@pytest.mark.ids("A1", "C8")
async def test_messages_wait_in_the_database_alone(scene: Scene, own_postgres: devservers.Postgres) -> None:
    """No relay runs, the broker is dead, and the database crashes: what was committed goes out when all are back, the rest does not."""
    scene.broker.persist_topology()
    scene.broker.crash()
    await scene.producer.insert(300)
    uncommitted = await psycopg.AsyncConnection.connect(scene.queue.url)
    await uncommitted.execute("INSERT INTO queue_message (exchange) VALUES ('never')")
    await asyncio.to_thread(own_postgres.crash)
    await uncommitted.close()
    await asyncio.to_thread(own_postgres.start)
    async with await psycopg.AsyncConnection.connect(scene.queue.url, autocommit=True) as connection:
        assert 300 == await Queue(scene.queue.url, connection).waiting()

    await asyncio.to_thread(scene.broker.start)
    relay = await scene.start()
    async with await psycopg.AsyncConnection.connect(scene.queue.url, autocommit=True) as connection:
        scene.queue = Queue(scene.queue.url, connection)
        report = await scene.check_after_restart(relay)
    assert (300, 0) == (report.delivered, report.duplicates)


@pytest.mark.fault(29, repeats=20)
async def test_a_server_without_memory_rejects_nothing(queue: Queue) -> None:
    """A content that cannot be printed for want of memory just now is no content that can never be printed."""
    async with unchecked(queue):
        await queue.sql(
            "INSERT INTO queue_message (exchange, content) SELECT 'e', jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 900)"
        )
    pid = await queue.value("SELECT pg_backend_pid()")
    resource.prlimit(pid, resource.RLIMIT_AS, (mapped(pid) + ROOM, resource.RLIM_INFINITY))

    with pytest.raises(errors.OutOfMemory):
        await queue.sql("SELECT queue_message_reject_unprintable()")

    resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (0, {}) == (await queue.value("SELECT queue_message_reject_unprintable()"), await queue.results())


def mapped(pid: int) -> int:
    """Bytes of a process's address space."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
