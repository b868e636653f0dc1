"""The events of the demo, in order: schema, relays, a shop that sells, a crash, and the settling of every message."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Final

from relay.demo import ledger
from relay.demo.broker import Consumer
from relay.demo.crash import crash_a_holder
from relay.demo.journal import Journal
from relay.demo.observer import Observer
from relay.demo.oddities import ATTEMPTS, BODY_LIMIT, DYING, insert_oddities
from relay.demo.polling import until
from relay.demo.scenes import chapter as scenes
from relay.demo.scenes.stage import Check
from relay.demo.screen import Screen
from relay.demo.shop import Shop
from relay.demo.sidecars import Sidecars

LOCK_SECONDS: Final = 10
RECOVERY_SECONDS: Final = LOCK_SECONDS + 5
"""Seconds within which another relay settles the messages of a killed one."""
_RELAYS: Final = ("relay-1", "relay-2")
_SELLERS: Final = 3
_MOST_SALES: Final = 1200
_BURSTS: Final = 3
_BURST_SECONDS: Final = 2.0
"""Seconds that the demo waits for the crash after one burst, before the next burst."""
_DYING_SECONDS: Final = 15.0
_END_SECONDS: Final = 45.0
"""Generous time limits in seconds: until messages are dead, and until all messages are settled."""
_LOOK: Final = 0.1


def settings(database_url: str, amqp_url: str) -> dict[str, str]:
    """Environment variables of every relay command in the demo. The first command writes some of them into the policy in the database."""
    return {
        "RELAY_DATABASE_URL": database_url,
        "RELAY_AMQP_URL": amqp_url,
        "RELAY_LOCK_SECONDS": str(LOCK_SECONDS),
        "RELAY_DRAIN_SECONDS": "5",
        "RELAY_MAX_ATTEMPTS": str(ATTEMPTS),
        "RELAY_BACKOFF_BASE": "0.5",
        "RELAY_MAX_BODY_BYTES": str(BODY_LIMIT),
        "RELAY_LOG_FORMAT": "json",
    }


class Story:
    """One run of the demo on running servers; the ledger is written to a folder.

    Args:
        database_url: an empty database.
        amqp_url: a broker that does not know the demo's exchanges.
        folder: the folder for the ledger.
        messages: about how many valid messages are sent.
        screen: shows the progress.
    """

    def __init__(self, *, database_url: str, amqp_url: str, folder: Path, messages: int, screen: Screen) -> None:
        self._database_url = database_url
        self._amqp_url = amqp_url
        self._folder = folder
        self._messages = messages
        self._screen = screen

    async def tell(self) -> list[Check]:
        """Play all events, and end every process that was started. Return the findings of the scenes after the shop.

        Raises:
            RelayError: a step failed; the message says which.
        """
        async with AsyncExitStack() as stack:
            self._sidecars = stack.enter_context(Sidecars(settings(self._database_url, self._amqp_url)))
            await self._sidecars.command("migrate")
            self._screen.say("relay migrate: the schema is up to date")
            self._observer = await stack.enter_async_context(aclosing(await Observer.connect(self._database_url)))
            produced, consumed, self._faults = (
                stack.enter_context(Journal(self._folder / name)) for name in (ledger.PRODUCER, ledger.CONSUMER, ledger.FAULTS)
            )
            self._shop = await Shop(self._database_url, produced).open()
            self._consumer = await stack.enter_async_context(Consumer(self._amqp_url, consumed, self._observer.clock))
            self._screen.say("consumer: declared exchanges and a bound queue (the relay declares nothing) and consumes")
            await self._sidecars.start(*_RELAYS)
            self._screen.say(f"relay run: {' and '.join(_RELAYS)} are ready, lock time {LOCK_SECONDS} s")
            await self._play()
            return await scenes.play(self._database_url, self._amqp_url, self._sidecars, self._screen.say)

    async def explain(self, id_: str) -> str:
        """The output of `relay show` for a message."""
        with Sidecars(settings(self._database_url, self._amqp_url)) as sidecars:
            return await sidecars.command("show", id_)

    async def _play(self) -> None:
        with self._screen.progress():
            watch = asyncio.create_task(self._watch())
            try:
                await self._trade()
                await self._wait_for_the_end()
            finally:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch
        await self._sidecars.stop()
        self._screen.say("relay run: SIGTERM, drained, exit code 0")
        await self._consumer.finish()
        await self._observer.write_ledger(self._folder)

    async def _trade(self) -> None:
        sales = min(self._messages // 2, _MOST_SALES)
        self._screen.say(f"shop: {_SELLERS} sellers begin; some of their transactions are rolled back, some undo a savepoint")
        try:
            async with asyncio.TaskGroup() as group:
                for seller in range(_SELLERS):
                    group.create_task(self._shop.sell(seller, sales // _SELLERS))
                group.create_task(insert_oddities(self._shop, self._screen.say))
                group.create_task(self._crash(after=sales // 2, burst=self._messages - sales))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        archived = await self._observer.sweep()
        self._screen.say(f"sweep: {archived} message of the worker that crashed is dead")

    async def _crash(self, *, after: int, burst: int) -> None:
        """Half-way through the sales, commit many messages at once, and kill a relay that has some in flight."""
        await self._shop.sold(after)
        # A message on its last attempt would correctly be archived as lock_expired, but the ledger expects another result.
        with suppress(TimeoutError):
            async with asyncio.timeout(_DYING_SECONDS):
                await until(self._has_dead, every=_LOOK)
        caught = asyncio.create_task(crash_a_holder(self._observer, self._sidecars))
        # On a busy machine the relays may empty the queue between two checks, so there are several bursts.
        for _ in range(_BURSTS):
            await self._shop.burst(burst // _BURSTS)
            await asyncio.wait({caught}, timeout=_BURST_SECONDS)
        crash = await caught
        self._faults.note(relay=crash.name, at=crash.at, in_flight=crash.in_flight)
        self._screen.say(f"kill -9: {crash.name}, while it held {len(crash.in_flight)} messages of a burst of {burst}")

    async def _has_dead(self) -> bool:
        return (await self._observer.progress()).dead >= DYING

    async def _wait_for_the_end(self) -> None:
        """Return when no message waits, or after a generous time limit."""
        self._screen.say(f"shop: closed; the locks of the killed relay expire after {LOCK_SECONDS} s, then its messages go out again")
        try:
            async with asyncio.timeout(_END_SECONDS):
                await until(self._observer.is_empty, every=_LOOK)
        except TimeoutError:
            self._screen.say(f"after {_END_SECONDS:g} s some messages still wait; the summary counts them")

    async def _watch(self) -> None:
        observer = await Observer.connect(self._database_url)
        async with aclosing(observer):
            while True:
                now = await observer.progress()
                self._screen.update(
                    f"{self._shop.committed} committed, {self._consumer.deliveries} delivered, {now.dead} dead, {now.waiting} waiting"
                )
                await asyncio.sleep(_LOOK * 3)
