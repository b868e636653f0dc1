"""A publication FOR ALL TABLES, which some replication tools make, hinders nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from relay.errors import StoreError
from relay.message import Archive, Result
from relay.ports import SettleRow
from relay.postgres.maintenance_store import PostgresMaintenance
from tests.support.database.queue import MadeStore, Queue


@pytest.fixture
async def published(queue: Queue) -> AsyncIterator[Queue]:
    """A queue whose every table is published."""
    await queue.sql("SET client_min_messages = error")  # The servers of tests write no WAL that could be decoded.
    await queue.sql("CREATE PUBLICATION everything FOR ALL TABLES")
    yield queue
    await queue.sql("DROP PUBLICATION everything")


async def test_every_table_can_say_which_row_it_lost(queue: Queue) -> None:
    """By its key, or by the whole row; days made later too."""
    await queue.sql("SELECT queue_message_ensure_partitions(12)")
    found = """SELECT relname FROM pg_class c WHERE relkind = 'r' AND relname LIKE 'queue%' AND relreplident <> 'f'
        AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)"""
    assert [] == await queue.sql(found)


async def test_everything_that_is_deleted_can_be(published: Queue, store: MadeStore) -> None:
    """Settled messages, dead ones past their retention, old days, receipts."""
    await published.insert(2)
    batch = await store.batch()
    outcomes = (Archive(Result.SUCCESS), Archive(Result.FAILED, "x", "x"))
    rows = [SettleRow(claim, outcome, None, None) for claim, outcome in zip(batch.claims, outcomes, strict=True)]
    assert [] == await store.archive(batch, rows, again=False)
    await published.sql("INSERT INTO queue_message_receipt (message_id) VALUES (gen_random_uuid())")

    actions = await published.sql("SELECT action, messages FROM queue_message_retain(now() + interval '400 days')")
    assert [("deleted", 1), ("dropped", None)] == actions
    await published.sql("DELETE FROM queue_message_receipt")
    assert 0 == await published.value("SELECT count(*) FROM queue_message_receipt")


async def test_days_are_made_although_retention_fails(queue: Queue, upkeep: PostgresMaintenance) -> None:
    """They are statements of their own, so neither takes back what the other did."""
    days = "SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'queue_message_archive_daily'::regclass"
    day = await queue.value(days)
    await queue.sql(f"DROP TABLE {day}")
    await queue.sql("DROP FUNCTION queue_message_delete_dead")

    with pytest.raises(StoreError):
        await upkeep.retain()
    assert 1 == await upkeep.ensure_partitions()
    assert await queue.value("SELECT to_regclass(%s) IS NOT NULL", day)
