"""Applications with serializable transactions, next to relays without them."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import psycopg
import pytest
from psycopg import errors

from tests.support.database.queue import Queue
from tests.support.faults.play import SMALL, producing
from tests.support.faults.scene import Scene

APPLICATIONS, TURNS = 4, 40
INSERT = b"INSERT INTO queue_message (exchange, routing_key, available_at) VALUES (%s, %s, now() + %s::interval) RETURNING id::text"


class Done(NamedTuple):
    """What one application has committed, and how often a transaction of its was refused."""

    sent: list[str]
    taken_back: list[str]
    refusals: int


async def work(scene: Scene) -> Done:
    """Look, insert two messages and take one back, in serializable transactions that are tried again."""
    sent: list[str] = []
    taken_back: list[str] = []
    refusals = 0
    to = (scene.inbox.exchange, scene.inbox.routing_key)
    async with await psycopg.AsyncConnection.connect(scene.queue.url) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
        application = Queue(scene.queue.url, connection)
        while len(sent) < TURNS:
            try:
                await application.waiting()
                stays, goes = [await application.value(INSERT.decode(), *to, after) for after in ("0 s", "1 day")]
                assert await application.value("SELECT queue_message_cancel(%s)", goes)
                await connection.commit()
            except errors.SerializationFailure:
                await connection.rollback()
                refusals += 1
            else:
                sent.append(stays)
                taken_back.append(goes)
    return Done(sent, taken_back, refusals)


@pytest.mark.fault(19, repeats=20)
async def test_serializable_applications_disturb_no_relay(scene: Scene) -> None:
    """Who is refused is an application, because of another one; relays see nothing of it and send what was committed, once."""
    relays = [await scene.start(name, **SMALL) for name in ("one", "two")]
    async with producing(scene):
        done = await asyncio.gather(*(work(scene) for _ in range(APPLICATIONS)))
    await scene.queue.settled()
    assert [0, 0] == [await relay.stop() for relay in relays]

    sent = [id_ for each in done for id_ in each.sent]
    came = [str(message.message_id) for message in await scene.topology.drain(scene.inbox.queue)]
    assert len(came) == len({*came}) == scene.producer.committed + len(sent)
    results = await scene.queue.results()
    assert {"success"} == {results[id_] for id_ in sent}
    assert {"discarded"} == {results[id_] for each in done for id_ in each.taken_back}
    assert 0 < sum(each.refusals for each in done)
    for relay in relays:
        assert [] == relay.of("database_down") + relay.of("settle_failed") + relay.of("maintenance_failed") + relay.of("lock_lost")
