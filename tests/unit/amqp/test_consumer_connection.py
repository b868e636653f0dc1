"""What the receiver's side of the broker writes and keeps: channels, epochs, acknowledgements, pauses, and too many bytes; no server."""

from __future__ import annotations

import asyncio

import pytest

from relay.amqp import frames
from relay.amqp.consuming import deliveries as incoming
from relay.amqp.frames import ReplyReason
from relay.events.inbox import QueueNarrowed, QueueOpened, QueueRefused
from relay.inbox.ports import Taken
from tests.support.fakes.consumer_harness import HEADER, Rig, settle, take


@pytest.fixture
async def rig() -> Rig:
    """Two queues, consumed."""
    made = Rig("a", "b")
    await settle()
    for channel in (1, 2):
        made.socket.handlers[channel].replied(incoming.CONSUME_OK)
    assert [("open", 1, 0), ("qos", 1, 4), ("consume", 1, 0), ("open", 2, 0), ("qos", 2, 4), ("consume", 2, 0)] == made.socket.flush()
    assert [QueueOpened("a"), QueueOpened("b")] == made.events
    made.events.clear()
    return made


async def test_each_channel_is_acknowledged_up_to_its_last_tag(rig: Rig) -> None:
    """Of those that are in the handful, however the queues took turns."""
    rig.deliver(1, 1, 2)
    rig.deliver(2, 1)
    rig.deliver(1, 3)
    first, rest = await take(rig, 3), await take(rig)

    rig.source.acknowledge(first)
    assert [("ack", 1, 2), ("ack", 2, 1)] == rig.socket.flush()
    rig.source.acknowledge(rest)
    assert [("ack", 1, 3)] == rig.socket.flush()


async def test_a_delivery_that_is_still_to_be_written_is_not_acknowledged_with_its_neighbours(rig: Rig) -> None:
    """Those before it go in one frame, those behind it each in its own; its own says it of all again."""
    rig.deliver(1, 1, 2, 3, 4)
    one, two, held, four = await take(rig)
    for each in (one, two, four):
        rig.source.acknowledge([each])
    assert [("ack", 1, 1), ("ack", 1, 2), ("ack one", 1, 4)] == rig.socket.flush()
    rig.deliver(1, 5, 6, 7)
    rig.source.acknowledge(await take(rig))
    assert [("ack one", 1, 5), ("ack one", 1, 6), ("ack one", 1, 7)] == rig.socket.flush()

    rig.source.acknowledge([held])
    rig.deliver(1, 8, 9)
    rig.source.acknowledge(await take(rig))
    assert [("ack", 1, 3), ("ack", 1, 9)] == rig.socket.flush()


async def test_a_channel_that_was_closed_is_not_acknowledged_on(rig: Rig) -> None:
    """Its tags mean others on the next one; the other channel's are acknowledged, and the handful is not lost before both are."""
    rig.deliver(1, 1)
    rig.deliver(2, 1)
    handful = await take(rig)
    rig.socket.handlers[1].closed(ReplyReason(404, "NOT_FOUND"))
    assert not rig.source.is_lost(handful)

    rig.source.acknowledge(handful)
    assert [("close-ok", 1, 0), ("ack", 2, 1)] == rig.socket.flush()
    await settle()
    assert [QueueRefused] == [type(event) for event in rig.events]

    rig.socket.handlers[2].closed(ReplyReason(404, "NOT_FOUND"))
    assert rig.source.is_lost(handful)


async def test_what_came_on_a_lost_connection_is_forgotten(rig: Rig) -> None:
    """It comes again on the next, and acknowledgements of what was being written go nowhere."""
    rig.deliver(1, 1)
    handful = await take(rig)
    rig.deliver(1, 2)
    rig.down()
    rig.up()
    await settle()
    rig.socket.flush()
    assert rig.source.is_lost(handful)
    rig.source.acknowledge(handful)
    assert [] == rig.socket.flush()

    rig.deliver(1, 1)
    assert [1] == [each.tag for each in await take(rig)]


async def test_a_pause_cancels_and_goes_on_where_it_was(rig: Rig) -> None:
    """Once each, however often it is said; what is here can be acknowledged meanwhile."""
    rig.deliver(1, 1)
    for _ in range(2):
        rig.source.pause()
    rig.source.acknowledge(await take(rig))
    for _ in range(2):
        rig.source.resume()

    assert [("cancel", 1, 0), ("cancel", 2, 0), ("ack", 1, 1), ("consume", 1, 0), ("consume", 2, 0)] == rig.socket.flush()


async def test_a_connection_that_comes_up_during_a_pause_takes_nothing() -> None:
    """The queue is consumed and cancelled at once, so that a missing queue is reported all the same."""
    rig = Rig("a", paused=True)
    await settle()
    assert ["open", "qos", "consume", "cancel"] == [name for name, _, _ in rig.socket.flush()]
    rig.source.resume()
    assert ["consume"] == [name for name, _, _ in rig.socket.flush()]


async def test_a_pause_while_the_broker_cancels_writes_nothing_behind_the_close(rig: Rig) -> None:
    """The broker would close the connection over a frame after it; the next channel is paused too."""
    rig.socket.handlers[1].replied(incoming.CANCEL)
    rig.source.pause()
    rig.source.resume()
    rig.source.pause()
    rig.deliver(1, 9)
    assert [("close", 1, 0), ("cancel", 2, 0), ("consume", 2, 0), ("cancel", 2, 0)] == rig.socket.flush()
    rig.socket.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    await settle()

    assert [QueueRefused] == [type(event) for event in rig.events]
    rig.deliver(2, 1)
    assert 1 == len(await take(rig))


@pytest.mark.parametrize("note", [0, 29_000])
async def test_more_bytes_than_may_be_here_go_back_and_fewer_come(rig: Rig, note: int) -> None:
    """Nothing is being written, so the channel is closed at once, and opened again. The other queue continues."""
    rig.deliver(2, 1)
    rig.deliver(1, 1, size=25_000)
    taken = await take(rig)
    taking = asyncio.create_task(take(rig))
    await settle()
    rig.deliver(1, 2, 3, 4, size=30_000, note=note)

    [narrowed] = rig.events
    assert isinstance(narrowed, QueueNarrowed)
    assert ("a", 2) == (narrowed.queue, narrowed.prefetch)
    assert 115_000 < narrowed.size < 130_000
    assert [("close", 1, 0)] == rig.socket.flush()
    rig.deliver(1, 5, size=30_000)
    assert not rig.source.is_lost(taken)
    rig.deliver(2, 2)
    assert [b"x"] == [each.delivery.payload for each in await taking]

    rig.socket.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    await settle()
    assert [("open", 1, 0), ("qos", 1, 2), ("consume", 1, 0)] == rig.socket.flush()
    rig.deliver(1, 1, size=30_000)
    assert [b"x" * (30_000 - len(HEADER))] == [each.delivery.payload for each in await take(rig)]
    rig.source.acknowledge(taken)
    assert [("ack", 2, 1)] == rig.socket.flush()
    assert [QueueNarrowed] == [type(event) for event in rig.events]


async def too_many(rig: Rig) -> list[Taken]:
    """Take a delivery, and let too many bytes come while it is being written."""
    rig.deliver(1, 1, size=25_000)
    taken: list[Taken] = await take(rig)
    rig.deliver(1, 2, 3, 4, size=30_000)
    assert [] == rig.socket.flush()
    return taken


async def test_what_is_being_written_is_acknowledged_before_more_bytes_than_may_be_here_go_back(rig: Rig) -> None:
    """A message without an id would be written twice. What comes meanwhile goes back too, and is not acknowledged."""
    taken = await too_many(rig)
    rig.deliver(1, 5, size=15)
    rig.source.acknowledge(taken)
    assert [("ack", 1, 1)] == rig.socket.flush()
    assert not rig.source.is_lost(taken)

    rig.deliver(2, 1)
    assert ["b"] == [each.delivery.queue for each in await take(rig)]
    assert [("close", 1, 0)] == rig.socket.flush()
    rig.socket.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    await settle()
    assert [("open", 1, 0), ("qos", 1, 2), ("consume", 1, 0)] == rig.socket.flush()


async def test_a_delivery_that_is_tried_again_is_acknowledged_before_more_bytes_go_back_too(rig: Rig) -> None:
    """The receiver ends its wait for new deliveries, and writes one that it holds."""
    taking = asyncio.create_task(take(rig))
    await settle()
    taking.cancel()
    await settle()
    await too_many(rig)


async def test_a_delivery_that_is_held_goes_back_with_more_bytes_than_may_be_here(rig: Rig) -> None:
    """Nothing acknowledges it for as long as it is held, and the queue must not wait for it."""
    taken = await too_many(rig)
    rig.deliver(2, 1)
    await take(rig)
    assert [("close", 1, 0)] == rig.socket.flush()
    assert rig.source.is_lost(taken)


async def test_a_pause_cancels_no_queue_that_has_more_bytes_than_may_be_here(rig: Rig) -> None:
    """Nothing is taken from it anyway, and a quorum queue would have what is on its way at its end."""
    await too_many(rig)
    rig.source.pause()
    rig.source.resume()
    assert [("cancel", 2, 0), ("consume", 2, 0)] == rig.socket.flush()


async def test_a_channel_that_dies_with_more_bytes_than_may_be_here_is_not_closed_again(rig: Rig) -> None:
    """Its messages have gone back; the next channel takes what comes."""
    await too_many(rig)
    rig.socket.handlers[1].closed(ReplyReason(404, "NOT_FOUND"))
    rig.deliver(2, 1)
    await take(rig)
    assert [("close-ok", 1, 0)] == rig.socket.flush()
