"""Nothing is stranded, claimed twice or made up while writers begin early, commit late, roll back and prepare."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from contextlib import suppress

import psycopg
import pytest

from relay.claims.flood_control import FloodControl
from relay.claims.streams import Streams
from tests.support.database.queue import PLENTY, MadeStore
from tests.support.database.writers import Writer

SECONDS = 8.0
WRITERS = 12
CLAIMERS = 3


def fair(store: MadeStore) -> Streams:
    """Streams that step over so few messages at once that it is seen, and split off what floods."""
    return Streams(store, FloodControl(window=40, in_flight=lambda exchange: 0))


async def claim_all(streams: Streams, chance: random.Random, ended: asyncio.Event) -> Counter[str]:
    """Claim in batches of changing size until the writers have ended and nothing is pending or found."""
    claimed: Counter[str] = Counter()
    while True:
        last = ended.is_set()
        batch = await streams.claim(limit=chance.randint(1, 60), limit_bytes=PLENTY)
        if batch:
            claimed.update(claim.id for claim in batch.claims)
        elif last and not (streams.unfinished or streams.pending or streams.going):
            return claimed
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0.005)  # as a relay that found nothing rests


@pytest.mark.slow
@pytest.mark.ids("A6", "B3", "C11", "D3")
async def test_every_committed_message_is_claimed_once_and_nothing_else_is(
    preparing_url: str, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early transactions, sleeps, savepoints, rollbacks and two-phase commits: nothing is lost, claimed twice or made up."""
    monkeypatch.setattr("relay.claims.stream.WALK", 40)
    chances = (random.Random(chance.getrandbits(32)) for _ in itertools.count())
    stores = [MadeStore(conninfo=preparing_url, schema="public", name=f"claimer-{n}") for n in range(CLAIMERS)]
    ended = asyncio.Event()
    connections = [await psycopg.AsyncConnection.connect(preparing_url) for _ in range(WRITERS)]
    writers = [Writer(connection, f"writer-{n}", next(chances)) for n, connection in enumerate(connections)]
    async with asyncio.TaskGroup() as tasks:
        claims = [tasks.create_task(claim_all(fair(store), next(chances), ended)) for store in stores]
        await asyncio.gather(*(writer.write(time.monotonic() + SECONDS) for writer in writers))
        ended.set()
    for store in stores:
        await store.aclose()
    for connection in connections:
        await connection.close()

    claimed = sum((task.result() for task in claims), Counter[str]())
    committed = {id_ for writer in writers for id_ in writer.committed}
    print(f"committed {len(committed)}, claimed {claimed.total()}")  # noqa: T201 - the size of the experiment
    assert len(committed) > 500
    assert {"stranded": set(), "twice": set(), "phantom": set()} == {
        "stranded": committed - {*claimed},
        "twice": {id_ for id_, times in claimed.items() if times > 1},
        "phantom": {*claimed} - committed,
    }
