"""`relay receive` takes from no stream, where it would lose what came while it was away; it says so, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from aio_pika.abc import AbstractChannel

from tests.support.broker.topology import Declared, Topology
from tests.support.database.inboxes import Start, emptied, publish, received
from tests.support.database.queue import Queue

pytestmark = pytest.mark.ids("C16")

STREAM: dict[str, Any] = {"x-queue-type": "stream"}
ADVICE = "is a stream, which would lose what comes while no receiver is connected: name a classic or quorum queue that is bound as it is"


@pytest.mark.parametrize("name", ["stream", "stream" * 35], ids=["short", "longer than the broker quotes"])
async def test_a_stream_is_refused_at_the_start(
    start_receive: Start, topology: Topology, channel: AbstractChannel, inbox_queue: Queue, unique: str, name: str
) -> None:
    """With one sentence and the exit code of a wrong setting, whatever is in it and whichever other queues there are."""
    inbox = await topology.declare(queue=f"{unique}.{name}", arguments=STREAM)
    other = await topology.declare(f"{unique}.other", f"{unique}.other")
    await publish(channel, inbox, [b"1", b"2"])

    receiver = await start_receive(other.queue, inbox.queue, ready=False)

    assert 2 == await receiver.ended()
    assert f"Queue '{inbox.queue}' {ADVICE} (RELAY_RECEIVE_QUEUES)." in receiver.lines[-1]["text"]
    assert 0 == await inbox_queue.value("SELECT count(*) FROM queue_message")


@pytest.mark.parametrize("before", ["taken from", "missing"])
async def test_a_queue_that_becomes_a_stream_is_left_alone_until_it_is_none_again(
    start_receive: Start, topology: Topology, channel: AbstractChannel, inbox_queue: Queue, unique: str, before: str
) -> None:
    """It is deleted and declared again, or declared late. Log and probe say what to do, and the other queues continue."""
    name = f"{unique}.changing"
    other = await topology.declare(f"{unique}.other", f"{unique}.other")
    if before == "taken from":
        await channel.declare_queue(name, durable=True)
    receiver = await start_receive(name, other.queue)
    await receiver.logged("queue_opened", 2 if before == "taken from" else 1)
    if before == "taken from":
        await channel.queue_delete(name)
    await receiver.logged("queue_refused")
    await channel.declare_queue(name, durable=True, arguments=STREAM)

    while ADVICE not in (await receiver.logged("queue_refused", len(receiver.of("queue_refused"))))["error"]:
        await receiver.logged("queue_refused", len(receiver.of("queue_refused")) + 1)
    await publish(channel, Declared("", name, name), [b"1"])
    await publish(channel, other, [b"2"])
    await received(inbox_queue, 1)
    opened = len(receiver.of("queue_opened"))
    await channel.queue_delete(name)
    await channel.declare_queue(name, durable=True)
    await receiver.logged("queue_opened", opened + 1)
    await publish(channel, Declared("", name, name), [b"3"])
    await received(inbox_queue, 2)

    assert [(2,), (3,)] == await inbox_queue.sql("SELECT content FROM queue_message ORDER BY content::text")
    assert 0 == await receiver.stop()
    await channel.queue_delete(name)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_queue_of_any_other_kind_is_taken_from(
    start_receive: Start, topology: Topology, channel: AbstractChannel, inbox_queue: Queue, kind: str
) -> None:
    """What came before the receiver too, also with one consumer at a time."""
    inbox = await topology.declare(arguments={"x-queue-type": kind, "x-single-active-consumer": True})
    await publish(channel, inbox, [b"1"])
    await start_receive(inbox.queue)
    await publish(channel, inbox, [b"2"])
    await received(inbox_queue, 2)
    await emptied(channel, inbox.queue)
