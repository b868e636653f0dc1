"""What a publisher reports of channels that exchanges wait for, on a pipe instead of a connection and on a loop that never waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from relay.amqp import frames
from relay.amqp.channel_limit import HOLDS
from relay.amqp.connection import BrokerConnection
from relay.amqp.publishing.publisher import LOOKS, RabbitPublisher
from relay.events.broker import ChannelsLimited, ChannelsUnlimited
from tests.support.broker.publishing import Seen, batch, claim, plain_encoder
from tests.support.fakes.channel_pool_harness import Pipe
from tests.support.fakes.virtual_time import timeless


@timeless
async def test_a_connection_reports_few_channels_until_nothing_has_waited_for_one_for_long() -> None:
    """As long as an exchange waits the report stays; afterwards it ends without another connection."""
    seen, pipe, clock = Seen(), Pipe(), asyncio.get_running_loop().time
    publisher = RabbitPublisher(urls=["amqp://nowhere"], name="test", encoder=plain_encoder, emit=seen, clock=clock)
    publisher.up(cast("BrokerConnection", SimpleNamespace(tap=pipe, user="guest", frame_max=4096, channel_max=1)))
    publisher.publish(batch([claim("x"), claim("y")], seconds=10 * HOLDS, now=clock()))
    await asyncio.sleep(2 * HOLDS)
    assert [ChannelsLimited(1, 2)] == seen.events

    pipe.handlers[1].acked(1, multiple=False)
    pipe.handlers[1].replied(frames.CHANNEL_CLOSE_OK)
    await asyncio.sleep(HOLDS - LOOKS)
    assert [] == seen.of(ChannelsUnlimited)
    await asyncio.sleep(2 * LOOKS)
    assert [ChannelsUnlimited()] == seen.of(ChannelsUnlimited)
    assert 1 == len(seen.of(ChannelsLimited))
