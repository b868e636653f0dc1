"""A delivery that an open transaction of somebody else's holds up: it waits, and its neighbours come in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from aio_pika.abc import AbstractChannel

from relay import events
from relay.events.inbox import DeliveryRejected, ReceiveFailed
from relay.inbox.delivery import Delivery
from relay.inbox.receiver import Receiver
from relay.postgres import inbox as of_inbox
from relay.postgres.inbox import Inbox
from relay.postgres.schema.sql_files import migrations
from tests.support.broker.topology import Topology
from tests.support.database.inboxes import Start, emptied, publish, received
from tests.support.database.queue import Queue, until
from tests.support.fakes.given_source import GivenSource, given
from tests.support.relays.scrape import HTTP, page

pytestmark = pytest.mark.ids("C16")
MANY = 100
PREFETCH = 5
SECONDS = 10
"""In which what is free has to be there, on any machine; a lock is waited for up to a second, and of one delivery a tenth of that."""


@pytest.fixture(params=[True, False], ids=["prepared", "by a pooler"])
async def inbox(request: pytest.FixtureRequest, inbox_queue: Queue) -> AsyncIterator[Inbox]:
    """An inbox with settings of its session, and without."""
    made = Inbox(conninfo=inbox_queue.url, schema="public", name="receiver", prepare=request.param)
    await made.check(migrations()[-1].version)
    yield made
    await made.aclose()


@pytest.fixture
async def app(inbox_queue: Queue) -> AsyncIterator[psycopg.AsyncConnection[object]]:
    """A session that is not in autocommit; what it has begun is rolled back in the end."""
    async with await psycopg.AsyncConnection.connect(inbox_queue.url) as connection:
        yield connection
        await connection.rollback()


async def mark(app: psycopg.AsyncConnection[object], *ids: str, queue: str = "q") -> None:
    """Mark deliveries to come, in a transaction that stays open."""
    async with app.cursor() as cursor:
        await cursor.executemany("INSERT INTO queue_message_received (consumer, message_id) VALUES (%s, %s)", [(queue, id_) for id_ in ids])


@asynccontextmanager
async def receiving(inbox: Inbox, deliveries: Sequence[Delivery], emit: events.Sink = lambda _: None) -> AsyncIterator[GivenSource]:
    """A receiver of these that runs meanwhile; in the end each must have been acknowledged once."""
    source = GivenSource(deliveries)
    receiver = Receiver(source=source, inbox=inbox, batch_size=500, batch_bytes=1 << 22, limit=10_000, emit=emit)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(receiver.run())
        yield source
        await asyncio.wait_for(source.ended.wait(), 3 * SECONDS)
        receiver.stop()
    assert sorted(map(id, deliveries)) == sorted(map(id, source.acknowledged))


async def written(queue: Queue) -> list[int]:
    """What is in the inbox, in its order."""
    return [number for (number,) in await queue.sql("SELECT content::int FROM queue_message ORDER BY xid, seq")]


@pytest.mark.parametrize("end", ["rollback", "commit"])
async def test_an_open_mark_holds_up_its_own_delivery_alone(
    inbox: Inbox, inbox_queue: Queue, app: psycopg.AsyncConnection[object], end: str
) -> None:
    """Neighbours come in, in order, while the mark is open. After a rollback the delivery comes in; after a commit it counts as known."""
    deliveries = [given(b"%d" % number, queue=f"q{number % 2 or ''}", message_id=str(number)) for number in range(MANY)]
    await mark(app, "50")
    told: list[events.Event] = []
    async with receiving(inbox, deliveries, told.append) as source:
        await asyncio.wait_for(received(inbox_queue, MANY - 1), SECONDS)
        others = [number for number in range(MANY) if number != 50]
        assert others == await written(inbox_queue)
        await until(lambda: len(source.acknowledged) == MANY - 1)
        assert deliveries[50] not in source.acknowledged
        await until(lambda: any(isinstance(event, ReceiveFailed) and event.messages == 1 for event in told))
        await (app.rollback() if end == "rollback" else app.commit())
    assert [*others, 50][: MANY if end == "rollback" else MANY - 1] == await written(inbox_queue)
    assert 0 == await inbox_queue.value("SELECT count(*) FROM queue_message_dead")


async def test_an_open_mark_holds_up_what_can_be_no_message_alone(
    inbox: Inbox, inbox_queue: Queue, app: psycopg.AsyncConnection[object]
) -> None:
    """It goes to the dead side when the mark is taken back."""
    deliveries = [given(b"{", message_id="poison"), given(b"{", message_id="other"), *(given(b"1", message_id=str(n)) for n in range(MANY))]
    await mark(app, "poison")
    told: list[events.Event] = []
    async with receiving(inbox, deliveries, told.append):
        await asyncio.wait_for(received(inbox_queue, MANY), SECONDS)
        await until(lambda: any(isinstance(event, DeliveryRejected) for event in told))
        await app.rollback()
    assert [("content_invalid", 2)] == await inbox_queue.sql("SELECT error_code, count(*) FROM queue_message_dead GROUP BY 1")


async def test_what_the_dead_side_does_not_take_either_holds_up_nothing(inbox: Inbox, inbox_queue: Queue) -> None:
    """A trigger of the application's on the archive refuses it: its neighbours come in, and it is dead once it may be."""
    await inbox_queue.sql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no'; END$$")
    await inbox_queue.sql("CREATE TRIGGER refuse BEFORE INSERT ON queue_message_archive FOR EACH ROW EXECUTE FUNCTION refuse()")
    deliveries = [given(b"{", message_id="poison"), *(given(b"1", message_id=str(number)) for number in range(MANY))]
    async with receiving(inbox, deliveries):
        await asyncio.wait_for(received(inbox_queue, MANY), SECONDS)
        await inbox_queue.sql("DROP TRIGGER refuse ON queue_message_archive")
    assert [("content_invalid",)] == await inbox_queue.sql("SELECT error_code FROM queue_message_dead")


async def test_a_broken_trigger_holds_up_its_own_deliveries(inbox: Inbox, inbox_queue: Queue) -> None:
    """The error says nothing about the messages, so they are not rejected. They come in once the trigger is repaired."""
    await inbox_queue.sql("CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM FROM nowhere; RETURN NEW; END$$")
    await inbox_queue.sql(
        "CREATE TRIGGER broken BEFORE INSERT ON queue_message FOR EACH ROW WHEN (NEW.content = '0') EXECUTE FUNCTION broken()"
    )
    told: list[events.Event] = []
    async with receiving(inbox, [given(b"%d" % (number % 10), message_id=str(number)) for number in range(MANY)], told.append):
        await asyncio.wait_for(received(inbox_queue, 9 * MANY // 10), SECONDS)
        await until(lambda: any(isinstance(event, ReceiveFailed) and event.messages == MANY // 10 for event in told))
        await inbox_queue.sql("DROP TRIGGER broken ON queue_message")
    assert MANY == len(await written(inbox_queue))
    assert any(isinstance(event, ReceiveFailed) and event.error.startswith("A trigger of yours names something") for event in told)
    assert 0 == await inbox_queue.value("SELECT count(*) FROM queue_message_dead")


async def test_a_lock_on_the_marks_divides_nothing(
    inbox: Inbox, inbox_queue: Queue, app: psycopg.AsyncConnection[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one on the queue: every delivery waits for it, so they stay together and in their order."""
    # Behind a pooler a statement waits for the table before it can bound the wait.
    monkeypatch.setattr(of_inbox, "ANSWER", 3.0)
    await app.execute("LOCK TABLE queue_message_received IN EXCLUSIVE MODE")
    told: list[events.Event] = []
    async with receiving(inbox, [given(b"%d" % number, message_id=str(number)) for number in range(MANY)], told.append):
        await until(lambda: any(isinstance(event, ReceiveFailed) for event in told))
        await app.rollback()
    assert [*range(MANY)] == await written(inbox_queue)
    assert {MANY} == {event.messages for event in told if isinstance(event, ReceiveFailed)}


async def test_any_number_of_open_marks_leaves_time_for_the_others(
    inbox: Inbox, inbox_queue: Queue, app: psycopg.AsyncConnection[object]
) -> None:
    """Each of them is waited for a tenth of a second; in rounds that end, and not before what comes in."""
    held = [given(b"%d" % number, message_id=str(number)) for number in range(20)]
    free = [given(b"%d" % number, message_id=str(number)) for number in range(20, 6 * MANY)]
    await mark(app, *(each.message_id for each in held))
    async with receiving(inbox, [*held, *free]):
        await asyncio.wait_for(received(inbox_queue, len(free)), 2 * SECONDS)
        await app.rollback()
    assert [*range(6 * MANY)] == sorted(await written(inbox_queue))


async def test_a_receiver_waits_with_what_is_held_up_and_acknowledges_the_rest(
    start_receive: Start, topology: Topology, unique: str, channel: AbstractChannel, inbox_queue: Queue,
    app: psycopg.AsyncConnection[object],
) -> None:  # fmt: skip
    """It does so in both queues. When it stops, it returns the held delivery, and the next receiver writes it."""
    first, second = [await topology.declare(f"{unique}.{n}", f"{unique}.{n}") for n in range(2)]
    await mark(app, "50", queue=first.queue)
    ids = [str(number) for number in range(MANY)]
    for each in (first, second):
        await publish(channel, each, [id_.encode() for id_ in ids], ids=ids)
    receiver = await start_receive(first.queue, second.queue)
    await asyncio.wait_for(received(inbox_queue, 2 * MANY - 1), SECONDS)
    failed = await receiver.logged("receive_failed")
    assert (1, True) == (failed["messages"], failed["error"].startswith("Another session holds a lock"))
    await publish(channel, first, [b"100"], ids=["100"])
    await asyncio.wait_for(received(inbox_queue, 2 * MANY), SECONDS)
    assert 0 == await receiver.stop()
    assert 1 == (await channel.declare_queue(first.queue, passive=True)).declaration_result.message_count

    await start_receive(first.queue, second.queue, name="next")
    await app.rollback()
    await asyncio.wait_for(received(inbox_queue, 2 * MANY + 1), SECONDS)
    await emptied(channel, first.queue)
    rows = await inbox_queue.sql("SELECT content::int FROM queue_message WHERE exchange = %s ORDER BY xid, seq", first.exchange)
    assert [*range(50), *range(51, MANY + 1), 50] == [number for (number,) in rows]


@pytest.mark.parametrize(("count", "status"), [(PREFETCH - 1, "ready"), (PREFETCH, "not ready")])
async def test_readiness_says_what_a_broken_trigger_keeps_out(
    start_receive: Start, topology: Topology, unique: str, channel: AbstractChannel, inbox_queue: Queue, count: int, status: str
) -> None:
    """It is not ready once its queue sends nothing more. After the repair everything comes in, and it says nothing any more."""
    await inbox_queue.sql("CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM FROM nowhere; RETURN NEW; END$$")
    await inbox_queue.sql("CREATE TRIGGER broken BEFORE INSERT ON queue_message FOR EACH ROW EXECUTE FUNCTION broken()")
    declared = await topology.declare(unique, unique)
    receiver = await start_receive(declared.queue, settings={**HTTP, "RELAY_RECEIVE_PREFETCH": str(PREFETCH)})
    await publish(channel, declared, [b"1"] * count, ids=[str(number) for number in range(count)])

    async def state() -> dict[str, Any]:
        return dict(json.loads(await page(receiver, "/readyz")))

    async def held() -> bool:
        return f"unacknowledged: {count}. A trigger of yours" in (await state()).get("notes", {}).get("held", "")

    await until(held)
    assert status == (await state())["status"]
    assert ({f"queue {declared.queue}"} if status == "not ready" else set()) == (await state())["reasons"].keys()
    await inbox_queue.sql("DROP TRIGGER broken ON queue_message")
    await received(inbox_queue, count)

    async def well() -> bool:
        return {"ready", None} == {(await state())["status"], (await state()).get("notes")}

    await until(well)
