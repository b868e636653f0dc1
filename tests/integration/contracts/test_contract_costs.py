"""What the content of a message may cost a relay that checks it against a contract: no neighbour's time, no lock, bounded memory."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.contracts.registry import MAX_TOTAL
from relay.memory import of_check
from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import RelayProcess, Relays, peak_memory, queued_seconds
from tests.support.servers.shared import Say

pytestmark = [pytest.mark.ids("A37"), pytest.mark.slow]
HOSTILE = (
    "INSERT INTO queue_message (exchange, routing_key, content)"
    " SELECT %s, %s, jsonb_agg(repeat('9', 60)::numeric + n) FROM generate_series(1, %s) n"
)
"""Many long integers, all different: by `uniqueItems` each is compared with each. 8,000 of them take about two minutes."""
COMPILING = """
    SELECT count(*) > 0 FROM pg_stat_activity
    WHERE application_name LIKE 'outbox-relay/%' AND state = 'idle' AND query LIKE '%queue_message_contract ORDER BY%'
"""
"""Whether a relay has read its contracts and asked for nothing since."""
LATE = 0.2
"""Seconds that at most one neighbour in twenty may take. On 2 cores that others keep busy: 0.03 to 0.08."""
LOCK_SECONDS = 3
MIB = 1 << 20


async def enforce(queue: Queue, exchange: str, schema: object, mode: str = "enforce") -> None:
    """Have a contract hold for all messages of an exchange."""
    await queue.sql("SELECT queue_message_contract_add(%s, '#', %s)", exchange, json.dumps(schema))
    await queue.sql("SELECT queue_message_contract_mode(%s, '#', %s)", exchange, mode)


def checking(relay: RelayProcess) -> list[int]:
    """Processes in which this relay checks contents."""
    return [int(pid) for pid in Path(f"/proc/{relay.pid}/task/{relay.pid}/children").read_text().split()]


def is_busy(pid: int) -> bool:
    """Whether a process has taken half a second of a processor, more than its start takes."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) >= os.sysconf("SC_CLK_TCK") / 2


def runs(pid: int) -> bool:
    """Whether a process exists and has not ended. The parent that inherited it may never ask for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.timeout(180)
async def test_neighbours_go_out_while_the_worst_content_is_checked(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say
) -> None:
    """Each within two seconds and under locks that hold, also where such contents fill the window; these end at their first attempt."""
    await queue.sql("SELECT queue_message_config_set('lock_seconds', %s)", str(LOCK_SECONDS))
    slow, quick = await topology.declare(), await topology.declare(f"quick {queue.url.rpartition('/')[2]}", routing_key="quick")
    await enforce(queue, slow.exchange, {"uniqueItems": True})
    relay = await relays.start(database=queue.url, broker=amqp_url, settings={"RELAY_WINDOW_BYTES": str(MIB)})
    for _ in range(3):
        await queue.sql(HOSTILE, slow.exchange, slow.routing_key, 8000)
    await until(lambda: bool(checking(relay)))
    # Now the window is full, and the relay has yet to notice that an exchange is silent.
    await queue.insert(exchange=quick.exchange, routing_key=quick.routing_key)
    await until(lambda: delivered(queue, quick.exchange, 1))
    took: list[float] = []
    while await queue.waiting():
        began = time.monotonic()
        await queue.insert(exchange=quick.exchange, routing_key=quick.routing_key)
        await until(lambda: delivered(queue, quick.exchange, len(took) + 2))
        took.append(time.monotonic() - began)
    say(f"{len(took)} neighbours meanwhile, the slowest took {max(took):.2f} s")

    assert len(took) > 10
    assert max(took) < 2
    assert [] == relay.of("lock_lost") + relay.of("locks_swept")
    sentence = f'content was not checked against contract "{slow.exchange}" "#" version 1: its check takes too much time'
    assert [("rejected", "contract_unchecked", 1, sentence)] * 3 == await queue.sql(
        "SELECT result, error_code, attempts, error_detail FROM queue_message_archive WHERE exchange = %s", slow.exchange
    )


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("last", "count"), [(12000, 6), (10150, 60)], ids=["12 KB", "900 bytes"])
async def test_neighbours_go_out_while_hundreds_of_contents_are_checked(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say, last: int, count: int
) -> None:
    """Checks of what breaks a contract leave half of the time to everything else, however many batches are checked at once."""
    busy, quick = await topology.declare("busy"), await topology.declare("quick", routing_key="quick")
    await enforce(queue, busy.exchange, {"items": {"type": "integer"}})
    await relays.start(database=queue.url, broker=amqp_url)
    content = f"(SELECT jsonb_agg(n) || '[\"\"]' FROM generate_series(10000, {last}) n)"
    insert = f"INSERT INTO queue_message (exchange, routing_key, content) SELECT %s, %s, {content} FROM generate_series(1, {count})"
    for _ in range(200):
        await queue.sql(insert, busy.exchange, busy.routing_key)
    took: list[float] = []
    while await queue.waiting() > count and len(took) < 100:
        began = time.monotonic()
        await queue.insert(exchange=quick.exchange, routing_key=quick.routing_key)
        await topology.drain(quick.queue, 1)
        took.append(time.monotonic() - began)
    p95 = sorted(took)[int(len(took) * 0.95)]
    say(f"{len(took)} neighbours: median {statistics.median(took):.3f} s, p95 {p95:.3f} s, slowest {max(took):.3f} s")

    assert p95 < LATE
    assert max(took) < 2


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("schemas", "patterns"), [(1, 5500), (40, 3)], ids=["one far beyond the bound", "forty just below it"])
async def test_neighbours_go_out_while_schemas_are_compiled(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say, schemas: int, patterns: int
) -> None:
    """A relay refuses what takes too much, keeps what it has memory for, and compiles it between everything else."""
    quick = await topology.declare("quick", routing_key="quick")
    relay = await relays.start(database=queue.url, broker=amqp_url)
    rest = peak_memory(relay.pid)
    large = [json.dumps({"allOf": [{"pattern": rf"\p{{L}}{{120}}{number}x{n}"} for n in range(patterns)]}) for number in range(schemas)]
    await queue.sql("SELECT queue_message_contract_add('large', md5(schema), schema::jsonb) FROM unnest(%s::text[]) schema", large)
    took: list[float] = []
    while not relay.of("contract_unusable"):
        began, queued = time.monotonic(), queued_seconds(relay.pid)
        await queue.insert(exchange=quick.exchange, routing_key=quick.routing_key)
        await topology.drain(quick.queue, 1)
        took.append(time.monotonic() - began - (queued_seconds(relay.pid) - queued))
    more = peak_memory(relay.pid) - rest
    say(f"{len(took)} neighbours; without the relay's wait for a processor the slowest took {max(took):.2f} s")
    say(f"the relay took {more / MIB:.0f} MiB more than at rest")

    assert max(took) < 2
    assert more < 1.5 * MAX_TOTAL


@pytest.mark.timeout(240)
async def test_a_relay_that_starts_leaves_while_schemas_are_compiled(relays: Relays, queue: Queue, amqp_url: str) -> None:
    """It holds nothing yet, so it ends without the rest of them."""
    large = [json.dumps({"allOf": [{"pattern": rf"\p{{L}}{{120}}{number}x{n}"} for n in range(3)]}) for number in range(40)]
    await queue.sql("SELECT queue_message_contract_add('large', md5(schema), schema::jsonb) FROM unnest(%s::text[]) schema", large)
    relay = await relays.start(database=queue.url, broker=amqp_url, ready=False)
    await until(lambda: queue.value(COMPILING))

    assert 0 == await relay.stop()
    assert ["stopping"] == [line["event"] for line in relay.lines]


async def delivered(queue: Queue, exchange: str, count: int) -> bool:
    """Whether so many messages of an exchange went out."""
    arrived = "SELECT count(*) >= %s FROM queue_message_archive WHERE result = 'success' AND exchange = %s"
    return bool(await queue.value(arrived, count, exchange))


@pytest.mark.timeout(180)
async def test_what_is_only_on_trial_goes_out_however_long_its_check_takes(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str
) -> None:
    """The relay also logs that its check took too long."""
    inbox = await topology.declare()
    await enforce(queue, inbox.exchange, {"uniqueItems": True}, "warn")
    relay = await relays.start(database=queue.url, broker=amqp_url)
    await queue.sql(HOSTILE, inbox.exchange, inbox.routing_key, 8000)
    await queue.settled(seconds=120)

    assert [("success", 1)] == await queue.sql("SELECT result, attempts FROM queue_message_archive")
    assert "its check takes too much time" in (await relay.logged("contract_broken"))["detail"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("moment", [bool, is_busy], ids=["as it starts", "as it checks"])
async def test_a_process_that_checks_may_be_killed_and_nothing_is_lost(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, moment: Callable[[int], bool]
) -> None:
    """It counts as an attempt; a stop of the relay ends the process, and counts as none."""
    await queue.sql("SELECT queue_message_config_set('backoff_base', '1')")
    inbox = await topology.declare()
    await enforce(queue, inbox.exchange, {"uniqueItems": True})
    relay = await relays.start(database=queue.url, broker=amqp_url)
    [id_] = [str(row[0]) for row in await queue.sql(HOSTILE + " RETURNING id", inbox.exchange, inbox.routing_key, 8000)]
    await until(lambda: any(map(moment, checking(relay))), 30)
    os.kill(checking(relay)[0], signal.SIGKILL)

    async def waits() -> bool:
        return "contract_unchecked" in str((await queue.row(id_))["last_error"])

    await until(waits, 30)
    await until(lambda: bool(checking(relay)), 30)
    [process] = checking(relay)
    assert 0 == await relay.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert [(1, None)] == await queue.sql("SELECT attempts, lock_expires_at FROM queue_message")


@pytest.mark.timeout(180)
async def test_the_process_that_checks_ends_with_a_relay_that_is_killed(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say
) -> None:
    """It also ends in the middle of a check, which would otherwise continue until its processor time is over."""
    inbox = await topology.declare()
    await enforce(queue, inbox.exchange, {"uniqueItems": True})
    relay = await relays.start(database=queue.url, broker=amqp_url)
    await queue.sql(HOSTILE, inbox.exchange, inbox.routing_key, 8000)
    await until(lambda: any(map(is_busy, checking(relay))), 30)
    [process] = checking(relay)
    began = time.monotonic()
    await relay.kill()
    await until(lambda: not runs(process), 5)
    say(f"ended after {time.monotonic() - began:.2f} s")


@pytest.mark.timeout(180)
async def test_checks_take_no_more_memory_than_the_formula_says(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say
) -> None:
    """However many large contents are due at once: the relay itself parses none, and one process does it one at a time."""
    inbox = await topology.declare()
    await enforce(queue, inbox.exchange, {"items": {"type": "object"}})
    relay = await relays.start(database=queue.url, broker=amqp_url, settings={"RELAY_WINDOW_BYTES": str(8 * MIB)})
    rest = peak_memory(relay.pid)
    content = "SELECT %s, %s, jsonb_agg(jsonb_build_object('', 0)) FROM generate_series(1, 400000)"
    for _ in range(6):
        await queue.sql(f"INSERT INTO queue_message (exchange, routing_key, content) {content}", inbox.exchange, inbox.routing_key)
    size, peak = await queue.value("SELECT max(octet_length(content::text)) FROM queue_message"), 0
    while await queue.waiting():
        peak = max([peak, *(peak_memory(process) for process in checking(relay))])
    more = peak_memory(relay.pid) - rest
    say(f"{size / MIB:.1f} MiB each: the relay {more / MIB:.0f} MiB more than at rest, the process {peak / MIB:.0f} MiB")

    assert [("success", 6)] == await queue.sql("SELECT result, count(*) FROM queue_message_archive GROUP BY 1")
    assert more < 20 * MIB + 5 * (8 * MIB + size)
    assert 0 < peak < of_check(size)
