"""How a publisher lets something look at messages before they are written, with a scripted broker on the other side of a pipe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from relay.amqp.connection import BrokerConnection
from relay.amqp.publishing import publisher as module
from relay.amqp.publishing.publisher import RabbitPublisher
from relay.message import Batch, Portion, PublishResult, Verdict
from tests.support.broker.publishing import Seen, batch, claim, plain_encoder
from tests.support.fakes.channel_pool_harness import Pipe
from tests.support.fakes.steps import steps

HandOver = Callable[[Sequence[int], Mapping[int, PublishResult]], None]


class Checks:
    """Has a say on all messages; the test says it."""

    def __init__(self) -> None:
        self.asked: asyncio.Future[HandOver] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = False

    def concerned(self, batch: Batch) -> list[int]:
        """See `relay.amqp.publishing.publisher.Checks`."""
        return list(range(len(batch.claims)))

    async def check(self, batch: Batch, places: Sequence[int], hand_over: HandOver) -> None:  # noqa: ARG002 - the protocol's
        """See `relay.amqp.publishing.publisher.Checks`."""
        self.asked.set_result(hand_over)
        await self.over

    async def aclose(self) -> None:
        """See `relay.amqp.publishing.publisher.Checks`."""
        self.ended = True


class Checked:
    """A publisher with checks, on a pipe instead of a connection."""

    def __init__(self) -> None:
        self.checks = Checks()
        self.pipe = Pipe()
        self.publisher = RabbitPublisher(
            urls=["amqp://nowhere"], name="test", encoder=plain_encoder, emit=Seen(), checks=self.checks, patience=0.01
        )
        self.publisher.up(cast("BrokerConnection", SimpleNamespace(tap=self.pipe, user="guest", frame_max=4096, channel_max=100)))

    @contextmanager
    def sending(self, sent: Batch) -> Iterator[None]:
        """Publish a batch meanwhile."""
        task = asyncio.ensure_future(self.portions(sent))
        yield
        task.cancel()

    async def portions(self, sent: Batch) -> list[Portion]:
        """Publish a batch; return its portions."""
        async with aclosing(self.publisher.publish(sent)) as portions:
            return [portion async for portion in portions]


@pytest.fixture
async def checked() -> AsyncIterator[Checked]:
    """Nothing is in flight."""
    checked = Checked()
    yield checked
    await checked.publisher.aclose()


async def test_an_exchange_is_silent_until_its_last_message_is_checked(checked: Checked) -> None:
    """One that waits for its check keeps its exchange from being called well; another exchange's does not count."""
    with checked.sending(batch([claim("x"), claim("y"), claim("x")])):
        hand_over = await checked.checks.asked
        assert {"x", "y"} == {*checked.publisher.silent()}
        for places, waiting in (([0], {"x", "y"}), ([1], {"x"}), ([2], set())):
            hand_over(places, dict.fromkeys(places, PublishResult(Verdict.INVALID, "contract", "It breaks a contract.")))
            assert waiting == {*checked.publisher.silent()}


async def test_the_work_of_a_check_does_not_grow_with_the_exchanges_of_its_batch() -> None:
    """As many steps for a message among a hundred exchanges as among thousands."""
    few, many = await steps_of_handing_over(100), await steps_of_handing_over(3000)
    assert few == many > 0


async def test_checks_that_break_give_their_messages_back(checked: Checked) -> None:
    """They were not written, nothing waits for them, and the error is not hidden."""
    found: list[Portion] = []

    async def publish() -> None:
        async with aclosing(checked.publisher.publish(batch([claim("x"), claim("y")]))) as portions:
            async for portion in portions:
                found.append(portion)  # noqa: PERF401 - what came before the error is looked at

    async with asyncio.timeout(5):
        sent = asyncio.create_task(publish())
        await checked.checks.asked
        checked.checks.over.set_exception(RuntimeError("broken"))
        with pytest.raises(RuntimeError, match="broken"):
            await sent
    assert [Verdict.UNWRITTEN] * 2 == [result.verdict for portion in found for result in portion.results]
    assert {} == checked.publisher.silent()


async def test_checks_end_with_their_publisher() -> None:
    """Their processes would stay behind."""
    checked = Checked()
    await checked.publisher.aclose()
    assert checked.checks.ended


async def steps_of_handing_over(exchanges: int) -> int:
    """Steps of the interpreter in the publisher's own code for one checked message."""
    checked = Checked()
    with checked.sending(batch([claim(f"exchange {number}") for number in range(exchanges)])):
        hand_over = await checked.checks.asked
        return steps(lambda: hand_over([7], {}), module)
