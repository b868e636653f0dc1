"""`relay receive` under large messages: its memory is bounded by bytes, and nothing is lost or doubled for it."""

from __future__ import annotations

import psycopg
import pytest
from aio_pika.abc import AbstractChannel

from relay.queries.statements import Statements
from tests.support.broker.raw_amqp import RawClient
from tests.support.broker.topology import Declared, Topology
from tests.support.database.inboxes import Start, emptied, publish, publish_without_id, received
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import peak_memory
from tests.support.servers.shared import Say

pytestmark = pytest.mark.ids("C16")
MIB = 1 << 20
SMALL, LARGE = 400, 100
FEW = 40
BOUND = 4 * MIB
ROOM = 60 * MIB
"""What a bound of 4 MiB may cost: twice that, a write of 8 MiB with its copies, and what Python keeps."""

WAITS = """CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP PERFORM pg_sleep(0.02); END LOOP; RETURN NEW; END $$"""
"""A write waits as long as another session likes, and for no lock: it would be given up after a second."""


async def test_large_messages_do_not_fill_the_memory_while_nothing_can_be_written(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue, say: Say
) -> None:
    """Behind many small ones, for which many may come at a time; the queue has back what is too much, and all is written once."""
    relay = await start_receive(inbox.queue, settings={"RELAY_RECEIVE_BYTES": str(BOUND)})
    await publish(channel, inbox, [b"%d" % number for number in range(SMALL)], ids=[f"s{number}" for number in range(SMALL)])
    await received(inbox_queue, SMALL)
    before = peak_memory(relay.pid)
    async with await psycopg.AsyncConnection.connect(inbox_queue.url) as other:
        await other.execute("LOCK TABLE queue_message")
        bodies = [bytes([number]) * MIB for number in range(LARGE)]
        await publish(channel, inbox, bodies, ids=[f"l{number}" for number in range(LARGE)], content_type="application/octet-stream")
        narrowed = await relay.logged("queue_narrowed")
        during = peak_memory(relay.pid)
    await received(inbox_queue, SMALL + LARGE)
    await emptied(channel, inbox.queue)
    peak = peak_memory(relay.pid)

    assert peak - before < ROOM
    sent = "SELECT count(*), count(DISTINCT body), bool_and(octet_length(body) = %s) FROM queue_message WHERE body IS NOT NULL"
    assert [(LARGE, LARGE, True)] == await inbox_queue.sql(sent, MIB)
    say(f"{LARGE} MiB waited under a bound of {BOUND >> 20} MiB: {(during - before) >> 20} MiB more, {(peak - before) >> 20} in the end; "
        f"{len(relay.of('queue_narrowed'))} times given back, {narrowed['prefetch']} at a time then")  # fmt: skip


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_too_many_bytes_double_nothing_that_is_being_written(
    start_receive: Start, topology: Topology, channel: AbstractChannel, inbox_queue: Queue, amqp_url: str, kind: str
) -> None:
    """No message has an id by which a second delivery would be recognised; each is there once, in the order of the queue."""
    inbox = await topology.declare(arguments={"x-queue-type": kind})
    await inbox_queue.sql(WAITS)
    await inbox_queue.sql("CREATE TRIGGER waits BEFORE INSERT ON queue_message FOR EACH ROW EXECUTE FUNCTION waits()")
    relay = await start_receive(inbox.queue, settings={"RELAY_RECEIVE_BYTES": str(MIB)})
    async with await psycopg.AsyncConnection.connect(inbox_queue.url) as other, RawClient(amqp_url) as client:
        await other.execute("SELECT pg_advisory_xact_lock(1)")
        await publish_without_id(client, inbox, b"first")

        async def is_being_written() -> bool:
            return bool(
                await inbox_queue.value(
                    "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
                )
            )

        await until(is_being_written)
        for number in range(FEW):
            await publish_without_id(client, inbox, bytes([number]) * (MIB // 10))
        await relay.logged("queue_narrowed")
    await received(inbox_queue, 1 + FEW)
    await emptied(channel, inbox.queue)
    assert 0 == await relay.stop()

    assert 0 == await topology.waiting(inbox.queue)
    written = [body[:5] for (body,) in await inbox_queue.sql("SELECT substr(body, 1, 5) FROM queue_message ORDER BY xid, seq")]
    assert [b"first", *(bytes([number]) * 5 for number in range(FEW))] == written


async def test_what_is_too_long_goes_to_the_dead_side_with_a_mark(inbox_queue: Queue) -> None:
    """Cut rather than refused, in whole characters; two long ids are still two."""
    reject = Statements("public")["reject_delivery"].decode()
    values = {
        "queue": "q" * 300,
        "exchange": "é" * 300,
        "routing_key": "k" * 256,
        "payload": b"x",
        "code": "c" * 64,
        "sentence": "s" * 9000,
        "handled_by": "r" * 256,
        "patience": "1s",
    }
    for id_ in ("i" * 300 + "1", "i" * 300 + "2", "i" * 300 + "1"):
        async with await psycopg.AsyncConnection.connect(inbox_queue.url) as other:
            await other.execute(reject.encode(), {**values, "message_id": id_})

    rows = await inbox_queue.sql("SELECT exchange, routing_key, error_detail, error_code, handled_by FROM queue_message_dead")
    assert [("é" * 63 + "...", "k" * 63 + "...", "s" * 999 + "...", "c" * 15 + "...", "r" * 63 + "...")] * 2 == rows
    [(queue,)] = set(await inbox_queue.sql("SELECT options->'headers'->>'x-relay-queue' FROM queue_message_dead"))
    assert [(queue,)] == list(set(await inbox_queue.sql("SELECT consumer FROM queue_message_received")))
    assert queue.startswith("q" * 30 + "... sha256:")
    ids = [id_ for (id_,) in await inbox_queue.sql("SELECT message_id FROM queue_message_received")]
    assert [True, True] == [id_.startswith("i" * 30 + "... sha256:") for id_ in ids]


async def test_of_a_payload_no_more_is_kept_than_the_archive_can_give_back(inbox_queue: Queue) -> None:
    """Of a row of a gigabyte no export gets a copy; a delivery that is refused would block its queue for ever."""
    statement = "SELECT queue_message_reject_delivery('q', 'i', 'e', 'r', convert_to(repeat('a', %s), 'UTF8'), 'c', %s, 'h')"
    await inbox_queue.sql(statement, 500_000_001, "s" * 9000)

    [(kept, said)] = await inbox_queue.sql("SELECT octet_length(body), error_detail FROM queue_message_archive")
    assert (500_000_000, "... (the first 500000000 of 500000001 bytes are kept)") == (kept, said[-53:])
