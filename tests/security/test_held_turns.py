"""A login with the relay's or the operator's role keeps the turn of a maintenance task for as long as its transaction is open."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.database.keyed import contents, fold, keyed
from tests.support.database.queue import Queue
from tests.support.servers.logins import login


async def test_a_fold_steps_over_a_turn_that_another_transaction_holds(queue: Queue) -> None:
    """It waits for nothing; how long messages under a key have been due is seen, and they go when the turn is free."""
    await queue.sql("SET lock_timeout = '2s'")
    await keyed(queue, coalesce_key="c", content=1)
    with login(queue.url, "queue_message_relay") as url, psycopg.connect(url) as holder:
        holder.execute("SELECT queue_message_fold()")
        await keyed(queue, coalesce_key="d", content=2)

        assert 0 == await fold(queue)
        assert [] == await contents(queue)
        assert 2 == await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE due_at <= now()")
        holder.rollback()

    assert 2 == await fold(queue)


async def test_no_partition_is_made_while_another_transaction_has_the_turn(queue: Queue) -> None:
    """Nor does anything wait for that; there are days ahead, and status names the day that is missing."""
    with login(queue.url, "queue_message_relay") as url, psycopg.connect(url) as holder:
        holder.execute("SELECT queue_message_ensure_partitions(7)")

        assert 0 == await queue.value("SELECT queue_message_ensure_partitions(9)")
        holder.rollback()

    assert 2 == await queue.value("SELECT queue_message_ensure_partitions(9)")


async def test_replays_by_id_wait_for_an_operators_transaction(queue: Queue) -> None:
    """One at a time, so that the second sees what the first has replayed."""
    await queue.sql("SET lock_timeout = '100ms'")
    with login(queue.url, "queue_message_operator") as url, psycopg.connect(url) as holder:
        holder.execute("SELECT queue_message_lock_replays()")

        with pytest.raises(psycopg.errors.LockNotAvailable):
            await queue.sql("SELECT queue_message_lock_replays()")
        holder.rollback()

    await queue.sql("SELECT queue_message_lock_replays()")
