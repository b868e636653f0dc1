"""A claim uses positions on another connection than the one that found them: a server behind it may number transactions again."""

from __future__ import annotations

import pytest

from relay.claims.intake import Intake
from relay.errors import NewConnectionError, StoreError
from relay.message import SUCCESS, Batch, Portion
from relay.ports import SettleRow
from tests.support.database.queue import PLENTY, MadeStore, Queue, ids_of, until

TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay/%' AND datname = current_database()
"""


@pytest.fixture
def intake(store: MadeStore) -> Intake:
    """What a relay claims by."""
    return Intake(store=store, poll_interval=0.05)


async def found(intake: Intake) -> Batch:
    """The next batch; where the connection is new the engine begins again, as `Claimer` does."""
    batches: list[Batch] = []

    async def some() -> bool:
        try:
            batch = await intake.claim(100, PLENTY)
        except NewConnectionError:
            intake.reset()
            await intake.keep_lanes()
            return False
        batches.extend([batch] if batch else [])
        return bool(batch)

    await until(some)
    return batches[0]


async def pass_one(queue: Queue, store: MadeStore, intake: Intake) -> int:
    """A message of the key goes through; return the transaction in which the relay looks next."""
    await intake.keep_lanes()
    await queue.insert(ordering_key="k")
    batch = await found(intake)
    assert [] == await store.archive(batch, [SettleRow(claim, SUCCESS, 1, 2) for claim in batch.claims], again=False)
    intake.settled(Portion(batch.claims, [], [], []), [SUCCESS] * len(batch.claims))
    return batch.claims[-1].xid


async def insert_below(queue: Queue, xid: int) -> str:
    """A message of the key as a promoted standby numbers it, whose counter is lower."""
    await queue.sql("SET session_replication_role = replica")
    [id_] = await queue.insert(ordering_key="k")
    await queue.sql("UPDATE queue_message SET xid = %s::text::xid8 WHERE id = %s", str(xid), id_)
    await queue.sql("SET session_replication_role = origin")
    return id_


async def test_a_loss_that_another_statement_meets_makes_claims_begin_again(queue: Queue, store: MadeStore, intake: Intake) -> None:
    """The heartbeat connected again: no claim uses older positions, so a key keeps its order on a server that went back."""
    last = await pass_one(queue, store, intake)
    await queue.sql(TERMINATE)
    with pytest.raises(StoreError):
        await store.heartbeat("{}")
    await store.heartbeat("{}")

    first = await insert_below(queue, last - 3)
    await queue.insert(ordering_key="k")
    intake.hint()

    assert [first] == ids_of(await found(intake))


async def test_a_counter_that_went_back_makes_claims_begin_again(queue: Queue, store: MadeStore, intake: Intake) -> None:
    """A pooler keeps the connection and changes the server: after a claim that sees an earlier transaction, positions are forgotten."""
    await pass_one(queue, store, intake)
    store._xmax = 2**62
    [id_] = await queue.insert()
    intake.hint()
    assert [id_] == ids_of(await found(intake))

    intake.hint()
    with pytest.raises(NewConnectionError):
        await intake.claim(100, PLENTY)
    intake.reset()
    assert None is await intake.claim(100, PLENTY)
