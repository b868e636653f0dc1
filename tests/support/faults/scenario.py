"""The scene of a fault on another PostgreSQL than that of the other tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psycopg

from relay.devservers.postgres import Postgres
from relay.postgres.schema.migrate import migrate
from tests.support.database.lost import assert_nothing_is_lost
from tests.support.database.queue import Queue
from tests.support.faults.scene import LOCK_SECONDS, Scene
from tests.support.relays.ledgers import Producer
from tests.support.servers.shared import Databases


@asynccontextmanager
async def moved(scene: Scene, server: Postgres, folder: Path) -> AsyncIterator[Scene]:
    """The scene on another PostgreSQL, with its ledger in a folder of its own; in the end it holds nothing that no relay would find."""
    databases = Databases(server.url)
    name = databases.create()
    url = databases.url(name)
    migrate(url, seed={"lock_seconds": str(LOCK_SECONDS)})
    with ExitStack() as stack:
        stack.callback(databases.drop, name)
        producer = stack.enter_context(Producer(url, scene.inbox.exchange, folder, scene.chance))
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            queue = Queue(url, connection)
            scene.note("versions", {"PostgreSQL": await queue.value("SHOW server_version"), "RabbitMQ": scene.broker.installation.version})
            yield replace(scene, queue=queue, producer=producer)
            await asyncio.to_thread(assert_nothing_is_lost, url, watched=True)
