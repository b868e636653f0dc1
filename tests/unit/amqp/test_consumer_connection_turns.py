"""Queues of which there are more than channels take turns: each leaves with everything acknowledged, on a channel that stays open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relay.amqp import frames
from relay.amqp.connection import ConnectionLost
from relay.amqp.consuming import deliveries as incoming
from relay.amqp.consuming import queue_consumer
from relay.amqp.frames import ReplyReason
from relay.events.broker import ChannelsLimited
from relay.events.inbox import QueueOpened, QueueRefused
from tests.support.database.queue import until
from tests.support.fakes.consumer_harness import Rig, settle, take


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn ends as soon as nothing came in a hundredth of a second."""
    monkeypatch.setattr(queue_consumer, "IDLE", 0.01)
    monkeypatch.setattr(queue_consumer, "COUNTED", 0.0)


@pytest.fixture
async def rig() -> Rig:
    """Three queues and one channel, consumed by the first."""
    made = Rig("a", "b", "c", channel_max=1)
    await settle()
    assert [("open", 1, 0), ("qos", 1, 4), ("consume", 1, 0)] == made.socket.flush()
    made.socket.handlers[1].replied(incoming.CONSUME_OK)
    return made


async def asks_to_leave(rig: Rig) -> None:
    """Wait until the queue that has the channel cancels."""

    async def cancelled() -> bool:
        return ("cancel", 1, 0) in rig.socket.written

    await until(cancelled)
    assert [("cancel", 1, 0)] == rig.socket.flush()


async def test_a_queue_leaves_when_all_that_came_is_acknowledged(rig: Rig) -> None:
    """Also what was on its way when it was cancelled; only then the next one consumes, on the same channel."""
    rig.deliver(1, 1)
    await asks_to_leave(rig)
    rig.deliver(1, 2)
    rig.socket.handlers[1].replied(incoming.CANCEL_OK)
    await settle()
    assert [] == rig.socket.flush()

    handful = await take(rig)
    rig.source.acknowledge(handful)
    await settle()
    assert ["a", "a"] == [each.delivery.queue for each in handful]
    assert [("ack", 1, 2), ("qos", 1, 4), ("consume", 1, 0)] == rig.socket.flush()
    rig.deliver(1, 3)
    assert ["b"] == [each.delivery.queue for each in await take(rig)]


async def test_what_is_on_its_way_is_waited_for(rig: Rig) -> None:
    """All is acknowledged, but until the broker has answered the cancel something of the first queue may still come."""
    rig.deliver(1, 1)
    handful = await take(rig)
    await asks_to_leave(rig)
    rig.source.acknowledge(handful)
    await settle()
    assert [("ack", 1, 1)] == rig.socket.flush()
    rig.deliver(1, 2)
    assert ["a"] == [each.delivery.queue for each in await take(rig)]


async def test_a_connection_that_is_lost_at_a_turns_end_is_forgotten_like_any_other(rig: Rig) -> None:
    """What was being written then is acknowledged in vain, and comes again on the next connection."""
    rig.deliver(1, 1)
    handful = await take(rig)
    await asks_to_leave(rig)
    rig.socket.handlers[1].replied(incoming.CANCEL_OK)
    rig.down()
    await settle()
    rig.source.acknowledge(handful)
    rig.up()
    await settle()
    assert [("open", 1, 0), ("qos", 1, 4), ("consume", 1, 0)] == rig.socket.flush()


async def test_every_queue_has_its_turn_again(rig: Rig) -> None:
    """The order is fixed, and each queue is reported once."""
    for _ in range(4):
        await asks_to_leave(rig)
        rig.socket.handlers[1].replied(incoming.CANCEL_OK)
        await settle()
        assert [("qos", 1, 4), ("consume", 1, 0)] == rig.socket.flush()
        rig.socket.handlers[1].replied(incoming.CONSUME_OK)
    assert [ChannelsLimited(1, 3), QueueOpened("a"), QueueOpened("b"), QueueOpened("c")] == rig.events


async def test_a_pause_during_a_turns_end_does_not_mix_queues_up(rig: Rig) -> None:
    """Each cancel is answered; the next queue consumes after the last answer, and not at all while the source is paused."""
    rig.source.pause()
    await asks_to_leave(rig)
    await asks_to_leave(rig)
    rig.socket.handlers[1].replied(incoming.CANCEL_OK)
    await settle()
    assert [] == rig.socket.flush()
    rig.socket.handlers[1].replied(incoming.CANCEL_OK)
    await settle()
    assert [("qos", 1, 4), ("consume", 1, 0), ("cancel", 1, 0)] == rig.socket.flush()
    rig.source.resume()
    assert [("consume", 1, 0)] == rig.socket.flush()


async def test_a_channel_is_not_left_with_more_bytes_than_may_be_here(rig: Rig) -> None:
    """They go back when it is closed; on a channel that stays open they would wait for ever."""
    rig.deliver(1, 1, size=60_000)
    handful = await take(rig)
    rig.deliver(1, 2, size=60_000)
    await asks_to_leave(rig)
    rig.socket.handlers[1].replied(incoming.CANCEL_OK)
    rig.source.acknowledge(handful)
    await settle()
    assert [("ack", 1, 1)] == rig.socket.flush()

    taking = asyncio.create_task(take(rig))
    await settle()
    assert [("close", 1, 0)] == rig.socket.flush()
    rig.socket.handlers[1].replied(frames.CHANNEL_CLOSE_OK)

    async def opened() -> bool:
        return ("open", 1, 0) in rig.socket.written

    await until(opened)
    rig.deliver(1, 1)
    assert ["b"] == [each.delivery.queue for each in await taking]


async def test_a_queue_that_is_missing_gives_its_channel_to_the_next(rig: Rig) -> None:
    """The broker has closed the channel, so it is opened again."""
    rig.socket.handlers[1].closed(ReplyReason(404, "NOT_FOUND - no queue 'a' in vhost '/'"))

    async def opened() -> bool:
        return ("open", 1, 0) in rig.socket.written

    await until(opened)
    assert ["close-ok", "open", "qos", "consume"] == [name for name, _, _ in rig.socket.flush()]
    assert [QueueRefused("a", "Queue 'a' does not exist: declare it.")] == [one for one in rig.events if isinstance(one, QueueRefused)]


async def test_a_channel_that_the_broker_closed_is_opened_anew_only_when_it_is_counted_no_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened earlier, it would be one too many, over which the broker ends the connection."""
    due: list[tuple[float, Any]] = []
    monkeypatch.setattr(queue_consumer, "COUNTED", 60.0)
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda seconds, *call: due.append((seconds, call)), raising=False)
    rig.socket.handlers[1].closed(ReplyReason(404, "NOT_FOUND - no queue 'a' in vhost '/'"))
    await settle()
    assert [("close-ok", 1, 0)] == rig.socket.flush()
    monkeypatch.undo()
    [(give, channel)] = [call for seconds, call in due if seconds == 60.0]
    give(channel)
    await settle()
    assert ["open", "qos", "consume"] == [name for name, _, _ in rig.socket.flush()]


async def test_a_limit_that_the_broker_tells_is_kept_on_the_next_connection() -> None:
    """It is learned once; a number that does not explain the refusal halves what is asked for."""
    rig = Rig("a", "b", "c", "d", "e")
    await settle()
    opened = []
    for lost in (ConnectionLost("over", allowed=4), ConnectionLost("gone"), ConnectionLost("over", allowed=4)):
        rig.socket.flush()
        rig.down(lost)
        rig.up()
        await settle()
        opened.append(len([one for one in rig.socket.flush() if one[0] == "open"]))
    assert [4, 4, 2] == opened
    assert [ChannelsLimited(4, 5), ChannelsLimited(2, 5)] == rig.events
