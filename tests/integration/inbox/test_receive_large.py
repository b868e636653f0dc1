"""`relay receive` under large messages: its memory is bounded by bytes, and nothing is lost or doubled for it."""

from __future__ import annotations

import psycopg
import pytest
from aio_pika.abc import AbstractChannel

from relay.queries.statements import Statements
from tests.support.broker.topology import Declared
from tests.support.database.inboxes import Start, emptied, publish, received
from tests.support.database.queue import Queue
from tests.support.relays.processes import peak_memory
from tests.support.servers.shared import Say

pytestmark = pytest.mark.ids("C16")
MIB = 1 << 20
SMALL, LARGE = 400, 100
BOUND = 4 * MIB
ROOM = 60 * MIB
"""What a bound of 4 MiB may cost: twice that, a write of 8 MiB with its copies, and what Python keeps."""


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
