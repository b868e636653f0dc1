"""The queue is the database: what was committed needs neither relay nor broker to last."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from relay import local
from tests.faults.conftest import Scene
from tests.support.queue import Queue


@pytest.mark.ids("A1", "C8")
async def test_messages_wait_in_the_database_alone(scene: Scene, own_postgres: local.Postgres) -> None:
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
