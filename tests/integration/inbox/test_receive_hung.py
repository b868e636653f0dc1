"""A delivery that PostgreSQL does not come to an end with, and a database that ends nothing: which is which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from relay import events
from relay.events.inbox import ReceiveFailed
from relay.inbox import receiver
from relay.inbox.blame import SILENCES
from relay.postgres import inbox as of_inbox
from relay.postgres import session
from relay.postgres.inbox import Inbox
from relay.postgres.schema.sql_files import migrations
from relay.postgres.session_settings import OWN
from tests.support.database.queue import Queue, until
from tests.support.fakes.given_source import given, receive

pytestmark = pytest.mark.ids("C16")
POISON = b'"poison"'
SLEEPS = """CREATE FUNCTION sleeps() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF {when} THEN PERFORM pg_sleep(600); END IF; RETURN NEW; END $$"""
HUNG = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%%receive' AND state = 'active'"


@pytest.fixture(params=[True, False], ids=["prepared", "by a pooler"])
async def inbox(request: pytest.FixtureRequest, inbox_queue: Queue, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Inbox]:
    """An inbox that waits one second for an answer, and whose server looks after as long whether its client is there."""
    monkeypatch.setattr(of_inbox, "ANSWER", 1.0)
    monkeypatch.setattr(receiver, "pause", lambda _, longest: longest / 50)
    monkeypatch.setattr(session, "OWN", OWN.replace(b"'10s'", b"'1s'"))
    if not request.param:
        # Behind a pooler nothing is set in a session, and the pooler ends what it has lost.
        await inbox_queue.sql(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET client_connection_check_interval = 1000', current_database()); END $$"
        )
    made = Inbox(conninfo=inbox_queue.url, schema="public", name="receiver", prepare=request.param)
    await made.check(migrations()[-1].version)
    yield made
    await made.aclose()


async def sleeping(queue: Queue, when: str) -> None:
    """Let a trigger hold up what is inserted."""
    await queue.sql(SLEEPS.format(when=when))
    await queue.sql("CREATE TRIGGER sleeps BEFORE INSERT ON queue_message FOR EACH ROW EXECUTE FUNCTION sleeps()")


async def test_a_delivery_that_takes_for_ever_is_rejected_and_its_neighbours_come_in(inbox: Inbox, inbox_queue: Queue) -> None:
    """Neighbours in all queues come in once and in order. The hung payload is kept, and no statement for it is left running."""
    await sleeping(inbox_queue, f"NEW.content = '{POISON.decode()}'")
    deliveries = [given(b"%d" % number, queue=f"q{number % 2}", message_id=str(number)) for number in range(1, 7)]
    await receive(inbox, [*deliveries[:3], given(POISON, message_id="poison"), *deliveries[3:]])

    assert [(number,) for number in range(1, 7)] == await inbox_queue.sql("SELECT content FROM queue_message ORDER BY xid, seq")
    [dead] = await inbox_queue.sql("SELECT body, result, error_code, error_detail, options->'headers' FROM queue_message_dead")
    assert (POISON, "rejected", "write_unanswered") == dead[:3]
    assert dead[3].startswith(f"PostgreSQL never finished writing it, {SILENCES} times")
    assert {"x-relay-queue": "q", "x-relay-message-id": "poison"} == dead[4]

    async def none_left() -> bool:
        return bool(await inbox_queue.value(HUNG) == 0)

    await until(none_left)


@pytest.mark.parametrize("trouble", ["a lock", "a slow trigger"])
async def test_a_database_that_ends_nothing_rejects_nothing(inbox: Inbox, inbox_queue: Queue, trouble: str) -> None:
    """One delivery alone, and several: however long it lasts, each comes in once it is over."""
    failed = asyncio.Semaphore(0)

    def emit(event: events.Event) -> None:
        if isinstance(event, ReceiveFailed):
            failed.release()

    async with await psycopg.AsyncConnection.connect(inbox_queue.url) as other:
        await inbox_queue.sql("CREATE TABLE slow ()")
        await sleeping(inbox_queue, "to_regclass('public.slow') IS NOT NULL")
        if trouble == "a lock":
            await inbox_queue.sql("DROP TABLE slow")
            await other.execute("LOCK TABLE queue_message")
        deliveries = [given(b"%d" % number, message_id=str(number)) for number in range(3)]
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(receive(inbox, deliveries, emit, batch_size=2))
            for _ in range(2 * SILENCES):
                await failed.acquire()
            assert not receiving.done()
            await other.execute("DROP TABLE IF EXISTS slow")
            await other.commit()

    assert [(0,), (1,), (2,)] == await inbox_queue.sql("SELECT content FROM queue_message ORDER BY xid, seq")
    assert 0 == await inbox_queue.value("SELECT count(*) FROM queue_message_dead")


async def test_a_try_leaves_nothing(inbox: Inbox, inbox_queue: Queue) -> None:
    """Neither a message nor a mark; what a trigger refuses is an answer too, and a lock is none."""
    assert await inbox.takes_others()
    assert 0 == await inbox_queue.value("SELECT (SELECT count(*) FROM queue_message) + (SELECT count(*) FROM queue_message_received)")
    async with await psycopg.AsyncConnection.connect(inbox_queue.url) as other:
        await other.execute("LOCK TABLE queue_message")
        assert not await inbox.takes_others()
    await inbox_queue.sql("ALTER TABLE queue_message ADD CONSTRAINT named CHECK (exchange <> '')")
    assert await inbox.takes_others()
