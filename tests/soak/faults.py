"""The faults of a soak. Each coroutine function here is one: it breaks something, repairs it, and returns what was in flight.

Where a relay died or was suspended, messages in flight are named by id. Where a server or the network broke, the number is an upper bound:
the windows of both relays. Where the broker died, it includes what the consumer may not have acknowledged for good.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction

from tests.soak.fleet import VICTIM, Life
from tests.soak.load import PREFETCH
from tests.soak.shards import InFlight
from tests.soak.stage import EXCHANGES, LOCK_SECONDS, WINDOW, Stage
from tests.support.database.queue import until

WINDOWS = 2 * WINDOW
WITH_CONSUMER = WINDOWS + 2 * PREFETCH
OURS = "application_name LIKE 'outbox-relay/%'"
Fault = Callable[[Stage], Awaitable[InFlight]]


async def relay_killed(stage: Stage) -> InFlight:
    """Kill -9, and another process of that name."""
    killed = stage.victim
    async with _something_in_hand(stage, killed):
        await killed.process.kill()
    await asyncio.sleep(0.5)  # its last statement may still be on its way through the proxy
    held = await stage.held_by(killed)
    await stage.fleet.start(VICTIM)
    return held


async def relay_stopped_in_order(stage: Stage) -> InFlight:
    """SIGTERM, and another process of that name; what was in flight is finished."""
    if code := await stage.fleet.end(VICTIM):
        stage.problems.append(f"A relay that got SIGTERM ended with {code}.")
    await stage.fleet.start(VICTIM)
    return []


async def relay_frozen_beyond_its_locks(stage: Stage) -> InFlight:
    """SIGSTOP of either relay, until the other has what it held."""
    frozen = stage.chance.choice([*stage.fleet.lives.values()])
    try:
        async with _something_in_hand(stage, frozen):
            frozen.process.send(signal.SIGSTOP)
        await asyncio.sleep(0.5)  # its last statement may still be on its way through the proxy
        held = await stage.held_by(frozen)
        await stage.wait(LOCK_SECONDS + 2, LOCK_SECONDS + 8)
    finally:
        frozen.process.send(signal.SIGCONT)
    return held


async def postgres_killed(stage: Stage) -> InFlight:
    """Kill -9 of every process of PostgreSQL."""
    await asyncio.to_thread(stage.postgres.crash)
    return await _postgres_back(stage)


async def postgres_shut_down_immediately(stage: Stage) -> InFlight:
    """Immediate shutdown, and recovery at the start."""
    await asyncio.to_thread(stage.postgres.stop, "immediate")
    return await _postgres_back(stage)


async def postgres_restarted(stage: Stage) -> InFlight:
    """Fast shutdown and start."""
    await asyncio.to_thread(stage.postgres.stop, "fast")
    return await _postgres_back(stage)


async def postgres_connections_reset(stage: Stage) -> InFlight:
    """RST on every connection to PostgreSQL, some times in a row."""
    for _ in range(stage.chance.randint(1, 4)):
        stage.towards_postgres.reset()
        await stage.wait(0.1, 2)
    return WINDOWS


async def postgres_swallows_everything(stage: Stage) -> InFlight:
    """A black hole towards PostgreSQL, which no error tells of."""
    stage.towards_postgres.black_hole()
    await stage.wait(3, 2 * LOCK_SECONDS)
    return _postgres_heard(stage)


async def postgres_answers_lost(stage: Stage) -> InFlight:
    """PostgreSQL does what it is asked, and its answers, also that to COMMIT, come late or never."""
    stage.towards_postgres.hold_answers()
    await stage.wait(1, LOCK_SECONDS)
    return _postgres_heard(stage)


async def backends_terminated(stage: Stage) -> InFlight:
    """Every backend of both relays, some times in a row."""
    for _ in range(stage.chance.randint(1, 4)):
        await stage.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
        await stage.wait(0.1, 2)
    return WINDOWS


async def listeners_terminated(stage: Stage) -> InFlight:
    """The backends that LISTEN, and no other."""
    await stage.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS} AND application_name LIKE '% listen'")
    return []


async def rabbitmq_killed(stage: Stage) -> InFlight:
    """Kill -9 of the broker."""
    await asyncio.to_thread(stage.broker.crash)
    await stage.wait(0, 5)
    await asyncio.to_thread(stage.broker.start)
    return WITH_CONSUMER


async def rabbitmq_restarted(stage: Stage) -> InFlight:
    """The broker is shut down in order, and started."""
    await asyncio.to_thread(stage.broker.stop)
    await stage.wait(0, 5)
    await asyncio.to_thread(stage.broker.start)
    return WITH_CONSUMER


async def rabbitmq_connections_reset(stage: Stage) -> InFlight:
    """RST on the relays' connections to the broker, some times in a row."""
    for _ in range(stage.chance.randint(1, 4)):
        stage.towards_broker.reset()
        await stage.wait(0.1, 2)
    return 4 * WINDOWS


async def rabbitmq_connections_closed(stage: Stage) -> InFlight:
    """The broker closes every connection, the consumer's too."""
    await asyncio.to_thread(stage.broker.ctl, "close_all_connections", "soak")
    return WITH_CONSUMER


async def rabbitmq_swallows_everything(stage: Stage) -> InFlight:
    """A black hole towards the broker, shorter or longer than its heartbeats take to notice."""
    stage.towards_broker.black_hole()
    await stage.wait(3, 40)
    return _broker_heard(stage)


async def rabbitmq_answers_lost(stage: Stage) -> InFlight:
    """The broker takes messages, and its confirms come late or never."""
    stage.towards_broker.hold_answers()
    await stage.wait(1, 2 * LOCK_SECONDS)
    return _broker_heard(stage)


async def rabbitmq_out_of_memory(stage: Stage) -> InFlight:
    """A memory alarm, shorter or longer than the locks: publishers are blocked."""
    await asyncio.to_thread(stage.broker.ctl, "set_vm_memory_high_watermark", "0.000001")
    try:
        await stage.wait(3, 2 * LOCK_SECONDS)
    finally:
        await asyncio.to_thread(stage.broker.ctl, "set_vm_memory_high_watermark", "absolute", "2GB")
    return []


async def exchange_paused(stage: Stage) -> InFlight:
    """An operator pauses an exchange and resumes it."""
    exchange = stage.chance.choice(EXCHANGES)
    await stage.sql("SELECT queue_message_pause(%s)", exchange)
    await stage.wait(5, 2 * LOCK_SECONDS)
    await stage.sql("SELECT queue_message_resume(%s)", exchange)
    return []


@asynccontextmanager
async def _something_in_hand(stage: Stage, life: Life) -> AsyncIterator[None]:
    """Half of the times confirms are held back first, so that a relay has sent messages in flight."""
    if stage.chance.random() < 0.5:
        stage.towards_broker.hold_answers()
        await until(lambda: stage.holds(life), LOCK_SECONDS / 2)
    try:
        yield
    finally:
        stage.towards_broker.heal()


async def _postgres_back(stage: Stage) -> InFlight:
    await stage.wait(0, 5)
    await asyncio.to_thread(stage.postgres.start)
    return WINDOWS


def _postgres_heard(stage: Stage) -> InFlight:
    """The connections continue, or are found to be broken."""
    if stage.chance.random() < 0.5:
        stage.towards_postgres.reset()
    stage.towards_postgres.heal()
    return WINDOWS


def _broker_heard(stage: Stage) -> InFlight:
    if stage.chance.random() < 0.5:
        stage.towards_broker.reset()
    stage.towards_broker.heal()
    return 2 * WINDOWS


def _is_fault(made: object) -> bool:
    return iscoroutinefunction(made) and made.__module__ == __name__ and not made.__name__.startswith("_")


FAULTS: Mapping[str, Fault] = {name.replace("_", " "): made for name, made in list(globals().items()) if _is_fault(made)}
"""Every fault by its name."""
