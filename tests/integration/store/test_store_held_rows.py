"""Rows that an application's session holds: what a relay writes meanwhile, and that no other rows are delayed by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import psycopg
import pytest

from relay import events
from relay.engine.policy import Policy
from relay.engine.settler import RetryingSettler
from relay.errors import StoreError
from relay.message import CONFIRMED, SUCCESS, Batch, Claim, Outcome, Portion, Retry
from relay.ports import SettleRow
from relay.postgres.store import Store
from tests.support.database.queue import MadeStore, Queue, busy, positions_of, until

NACKED = Retry(0.0, "nacked", "Full.")
STRENGTHS = ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE")


def rows(batch: Batch, outcome: Outcome = SUCCESS) -> list[SettleRow]:
    """A batch with one outcome."""
    return [SettleRow(claim, outcome, 1, 2) for claim in batch.claims]


def portion(claims: list[Claim]) -> Portion:
    """Claims that were all confirmed."""
    return Portion(claims, [CONFIRMED] * len(claims), [0.0] * len(claims), [0.0] * len(claims))


@pytest.fixture
async def app(queue: Queue) -> AsyncIterator[psycopg.AsyncConnection[object]]:
    """An application's session, not in autocommit; what it has begun is rolled back in the end."""
    async with await psycopg.AsyncConnection.connect(queue.url) as connection:
        yield connection
        await connection.rollback()


@pytest.mark.parametrize("strength", STRENGTHS)
async def test_no_strength_of_a_lock_holds_up_the_neighbours(
    queue: Queue, store: MadeStore, app: psycopg.AsyncConnection[object], strength: str
) -> None:
    """Whatever the application locked the row for: the others are settled, and their locks renewed."""
    ids = await queue.insert(4)
    batch = await store.batch()
    await app.execute(f"SELECT FROM queue_message WHERE id = %s FOR {strength}", [ids[2]])
    batch.deadline = 0.0

    assert 4 == await store.renew(batch, positions_of(batch))
    assert busy(ids[2]) == await store.archive(batch, rows(batch), again=False)

    assert {*ids} - {ids[2]} == {*await queue.results()}
    assert (strength != "KEY SHARE") == batch.is_overdue(batch.claims[2], 0.0)


async def test_a_foreign_key_holds_up_only_the_settle_of_its_own_row(
    queue: Queue, store: MadeStore, app: psycopg.AsyncConnection[object]
) -> None:
    """An open INSERT that names the message keeps it from leaving the queue; it is renewed and goes back as any other."""
    await queue.sql("CREATE TABLE delivery (message uuid REFERENCES queue_message (id) ON DELETE SET NULL)")
    ids = await queue.insert(3)
    batch = await store.batch()
    await app.execute("INSERT INTO delivery VALUES (%s)", [ids[0]])

    assert busy(ids[0]) == await store.archive(batch, rows(batch), again=False)
    assert 1 == await store.renew(batch, positions_of(batch)[:1])
    assert {} == batch.behind
    assert [] == await store.release(batch, rows(batch, NACKED)[:1], again=False)


async def test_without_settings_of_its_own_a_session_does_not_wait_for_a_row_either(
    queue: Queue, app: psycopg.AsyncConnection[object]
) -> None:
    """Behind PgBouncer no lock_timeout can be set for a session: the statement brings its own, and leaves none behind."""
    store = Store(conninfo=queue.url, schema="public", name="pooled", policy=Policy, prepare=False)
    await store.register()
    ids = await queue.insert(3)
    batch = (await MadeStore.take(store)).batch  # type: ignore[arg-type]
    assert batch is not None
    await app.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [ids[0]])
    before = await store._settles.fetch(b"SHOW lock_timeout", {})

    assert busy(ids[0]) == await asyncio.wait_for(store.archive(batch, rows(batch), again=False), 4)

    assert before == await store._settles.fetch(b"SHOW lock_timeout", {})
    await store.aclose()


async def test_an_application_that_locks_in_the_opposite_order_does_not_end_in_a_deadlock(
    queue: Queue, store: MadeStore, app: psycopg.AsyncConnection[object]
) -> None:
    """It holds the last row and wants the first; the relay has the first and wants the last, and lets go."""
    ids = await queue.insert(3)
    batch = await store.batch()
    await app.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [ids[2]])
    settle = asyncio.create_task(store.archive(batch, rows(batch), again=False))

    await app.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [ids[0]])

    left = await settle
    assert busy(ids[2]) == left[-1:]
    await app.commit()
    assert [] == await store.archive(batch, [row for row in rows(batch) if row.claim.id in {one.id for one in left}], again=False)
    assert dict.fromkeys(ids, "success") == await queue.results()


@pytest.mark.parametrize("first", ["application", "relay"])
async def test_a_serializable_application_fails_no_settle(
    queue: Queue, store: MadeStore, app: psycopg.AsyncConnection[object], first: str
) -> None:
    """In either order, the relay settles what it may. Only a change by the application that comes too late is refused."""
    await app.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
    ids = await queue.insert(3)
    batch = await store.batch()
    await app.execute("SELECT count(*) FROM queue_message")
    change = "UPDATE queue_message SET expires_at = now() + interval '1 day' WHERE id = %s"
    if first == "application":
        await app.execute(change, [ids[1]])
        assert busy(ids[1]) == await store.archive(batch, rows(batch), again=False)
        await app.commit()
        assert [] == await store.archive(batch, rows(batch)[1:2], again=False)
    else:
        assert [] == await store.archive(batch, rows(batch), again=False)
        with pytest.raises(psycopg.errors.SerializationFailure):
            await app.execute(change, [ids[1]])
    assert dict.fromkeys(ids, "success") == await queue.results()


async def test_a_trigger_on_the_archive_that_waits_loses_no_lock(
    queue: Queue, store: MadeStore, app: psycopg.AsyncConnection[object]
) -> None:
    """An application's own, for a row of a table of its own: the settle is tried again, and the locks are renewed between two tries."""
    await queue.sql("CREATE TABLE total (messages int)")
    await queue.sql("INSERT INTO total VALUES (0)")
    await queue.sql(
        "CREATE FUNCTION count_message() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN UPDATE public.total SET messages = messages + 1; RETURN NULL; END$$"
    )
    await queue.sql("CREATE TRIGGER counted AFTER INSERT ON queue_message_archive FOR EACH ROW EXECUTE FUNCTION count_message()")
    ids = await queue.insert(3)
    batch = await store.batch()
    await app.execute("SELECT FROM total FOR UPDATE")

    with pytest.raises(StoreError, match="Another session holds a lock") as caught:
        await store.archive(batch, rows(batch), again=False)
    assert not caught.value.row_is_guilty
    assert 3 == await store.renew(batch, positions_of(batch))
    assert {} == batch.behind

    await app.rollback()
    assert [] == await store.archive(batch, rows(batch), again=True)
    assert (3, dict.fromkeys(ids, "success")) == (await queue.value("SELECT messages FROM total"), await queue.results())


async def test_what_is_held_is_settled_as_soon_as_it_is_let_go(
    queue: Queue, store: MadeStore, app: psycopg.AsyncConnection[object]
) -> None:
    """Also after its lock has expired: the neighbours were settled long before, and nothing was lost."""
    ids = await queue.insert(4)
    batch = await store.batch()
    await queue.expire(ids[1])
    await app.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [ids[1]])
    told: list[events.Event] = []
    writing = aiter(RetryingSettler(store=store, emit=told.append).settle(batch, portion(batch.claims), [SUCCESS] * 4))

    first = await asyncio.wait_for(anext(writing), 20)
    assert [id_ for id_ in ids if id_ != ids[1]] == [claim.id for claim in first.portion.claims]
    rest = asyncio.ensure_future(anext(writing))
    await until(lambda: len(told) > 2)
    await store.sweep()
    await app.rollback()

    second = await rest
    assert ([ids[1]], []) == ([claim.id for claim in second.portion.claims], second.lost)
    assert dict.fromkeys(ids, "success") == await queue.results()
    assert {1} == {event.messages for event in told if isinstance(event, events.SettleFailed)}


async def test_while_a_row_is_held_no_other_settle_waits_for_it(
    queue: Queue, store: MadeStore, app: psycopg.AsyncConnection[object]
) -> None:
    """The first has found it out; those of the next seconds step over held rows at once."""
    ids = await queue.insert(20)
    batch = await store.batch()
    held = rows(batch)[:10]
    await app.execute("SELECT FROM queue_message WHERE id = ANY(%s::uuid[]) FOR UPDATE", [ids[:10]])
    assert busy(ids[0]) == await store.archive(batch, held[:1], again=False)

    began = time.monotonic()
    for row in held[1:]:
        assert busy(row.claim.id) == await store.archive(batch, [row], again=False)

    assert time.monotonic() - began < 0.9, "nine of them would have waited a tenth of a second each"
