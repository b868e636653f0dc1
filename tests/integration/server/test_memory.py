"""Memory of `relay run`, `receive` and `work` for messages, apart from payloads: the bound of docs/operations/deployment.md."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from aio_pika.abc import AbstractChannel

from relay.codec.option_rules import LONGEST
from relay.memory import KEPT
from tests.support.broker.topology import Declared, Topology
from tests.support.database.inboxes import Start, publish, received
from tests.support.database.queue import Queue, unchecked, until
from tests.support.relays.processes import RelayProcess, Relays, peak_memory
from tests.support.servers.shared import Say

pytestmark = pytest.mark.ids("C9")
MIB = 1 << 20
WINDOW_BYTES = MIB
REASON = 4096
"""Bytes of a reason in a row, at the most: the sentence about a routing key and an exchange of 255 bytes that no terminal prints."""
OWN = 20 * MIB
"""What a relay takes in addition to the messages in flight: caches, buffers, and what Python keeps."""
COPIES = 5
"""Times that a message may be in memory, as in tests/faults/test_large.py."""
HEADERS = "jsonb_build_object('headers', jsonb_build_object('n', n, 'a', {}))"
NUMBERS = HEADERS.format("(SELECT jsonb_agg((m || 'e-{}')::numeric) FROM generate_series(1, {}) AS m)")
DIGITS = "(SELECT string_agg(md5((n * m)::text), '') FROM generate_series(1, 3950) AS m)"
INSERT = (
    "INSERT INTO queue_message (exchange, routing_key, content, options, ordering_key)"
    " SELECT %s, %s, '{{}}', {}, {} FROM generate_series(1, {}) AS n"
)
ROWS = {
    "large headers": (400, HEADERS.format("repeat('x', 127000)"), "NULL", 128_000, 0),
    "large headers with a wide letter": (400, HEADERS.format("repeat('x', 126900) || '\U0001f600'"), "NULL", 128_000, 0),
    "headers that hardly compress": (400, HEADERS.format(DIGITS), "NULL", 128_000, 0),
    "many different headers": (5000, HEADERS.format("repeat('x', 3900) || '\U0001f600'"), "NULL", 4000, 0),
    "doubles with many zeros": (20, NUMBERS.format(385, 7900), "NULL", 3_100_000, 0),
    "wide keys": (5000, "'{}'", "n || repeat('x', 1000) || '\U0001f600'", 6000, 5000 * 4100),
}  # fmt: skip
"""How many, their options and their key, the bytes of one, and the bytes that are read in addition to claims: a page of keys."""


QUOTES = """
    CREATE FUNCTION quote() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '%', coalesce(NEW.content::text, ''); END $$;
    CREATE TRIGGER quote BEFORE {} ON queue_message FOR EACH ROW WHEN (length(NEW.content::text) > 1000) EXECUTE FUNCTION quote();
"""
"""A trigger of the application's that repeats a content in its error."""
QUOTED = "jsonb_build_object('a', repeat('://', {}))"
"""What it repeats: the beginning of many connection strings without an end."""


def used(process: RelayProcess, rest: int, say: Say) -> int:
    """Bytes at the peak, in addition to those at rest."""
    more = peak_memory(process.pid) - rest
    say(f"{rest >> 20} MiB at rest, {more / MIB:.1f} MiB more at the peak")
    return more


@pytest.mark.parametrize("kind", ROWS)
async def test_a_relay_holds_no_more_than_its_window(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say, kind: str
) -> None:
    """Whatever fills it; each message arrives."""
    count, options, key, largest, beside = ROWS[kind]
    inbox = await topology.declare()
    relay = await relays.start(database=queue.url, broker=amqp_url, settings={"RELAY_WINDOW_BYTES": str(WINDOW_BYTES)})
    rest = peak_memory(relay.pid)
    async with unchecked(queue) if kind == "doubles with many zeros" else nullcontext():
        # Those that are longer as text were taken before a check was made.
        await queue.sql(INSERT.format(options, key, count), inbox.exchange, inbox.routing_key)
    await queue.settled(seconds=60)

    assert used(relay, rest, say) < OWN + COPIES * (WINDOW_BYTES + largest) + beside
    assert [("success", count)] == await queue.sql("SELECT result, count(*) FROM queue_message_archive GROUP BY 1")
    assert [(True,)] == await queue.sql("SELECT bool_and(attempts = 1) FROM queue_message_archive")


async def test_options_that_no_relay_can_hold_are_rejected(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say
) -> None:
    """Some kilobytes in the database, megabytes as text: no more of them is read than shows that; neighbours arrive."""
    inbox = await topology.declare()
    relay = await relays.start(database=queue.url, broker=amqp_url, settings={"RELAY_WINDOW_BYTES": str(WINDOW_BYTES)})
    rest = peak_memory(relay.pid)
    async with queue.connection.transaction():
        # The INSERT refuses them, so they bypass its triggers.
        await queue.sql("SET LOCAL session_replication_role = replica")
        await queue.sql(INSERT.format(NUMBERS.format(16_000, 1500), "NULL", 4), inbox.exchange, inbox.routing_key)
    await queue.sql(INSERT.format("'{}'", "NULL", 4), inbox.exchange, inbox.routing_key)
    assert LONGEST < await queue.value("SELECT max(octet_length(options::text)) FROM queue_message")
    await queue.settled(seconds=60)

    assert used(relay, rest, say) < OWN + COPIES * (WINDOW_BYTES + LONGEST)
    results = "SELECT result, error_code, count(*) FROM queue_message_archive GROUP BY 1, 2 ORDER BY 1"
    assert [("rejected", "headers_too_large", 4), ("success", None, 4)] == await queue.sql(results)


async def test_a_receiver_holds_no_more_than_its_bound(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue, say: Say
) -> None:
    """Headers count as what they take as text, in whatever alphabet."""
    bound = 4 * MIB
    headers = {"a": "x" * 120_000 + "\U0001f600"}
    receiver = await start_receive(inbox.queue, settings={"RELAY_RECEIVE_BYTES": str(bound)})
    rest = peak_memory(receiver.pid)
    await publish(channel, inbox, [b"{}"] * 400, ids=[f"m{number}" for number in range(400)], headers=headers)
    await received(inbox_queue, 400)

    assert used(receiver, rest, say) < OWN + COPIES * 2 * bound


@pytest.mark.parametrize(("one", "times"), [(b'{"":0}', COPIES + 4), (b"[]", COPIES + 27)])
async def test_a_receiver_takes_no_more_than_is_stated_while_it_checks_json(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue, say: Say, *, one: bytes, times: int
) -> None:
    """It checks the smallest objects and arrays, which take the most memory in addition to their text."""
    payload = b"[" + b",".join([one] * (8 * MIB // len(one) - len(one))) + b"]"
    receiver = await start_receive(inbox.queue, settings={"RELAY_RECEIVE_BYTES": str(4 * MIB)})
    rest = peak_memory(receiver.pid)
    await publish(channel, inbox, [payload], ids=["m"], content_type="application/json")
    await received(inbox_queue, 1)

    assert used(receiver, rest, say) < OWN + times * len(payload)


async def test_a_worker_holds_no_more_answers_than_its_window(relays: Relays, inbox_queue: Queue, tmp_path: Path, say: Say) -> None:
    """However many handlers return at once: an answer becomes text in its turn."""
    size, count = 8 * MIB, 10
    (tmp_path / "handlers.py").write_text(
        f"""
import asyncio
ANSWER, READY = {{"data": b"x" * {size}}}, asyncio.Barrier({count})

async def handle(message):
    await READY.wait()
    return ANSWER
"""
    )
    await inbox_queue.sql("CREATE TABLE page (id bigint PRIMARY KEY, url text, data bytea)")
    await inbox_queue.sql("SELECT queue_message_request('page', '{data}')")
    await inbox_queue.sql(f"INSERT INTO page SELECT n, 'u' FROM generate_series(1, {count}) AS n")
    settings = {"RELAY_WINDOW_BYTES": str(WINDOW_BYTES), "RELAY_WORK_CONCURRENCY": str(count)}
    command = ("work", "handlers:handle")
    worker = await relays.start(database=inbox_queue.url, broker="amqp://nobody:x@127.0.0.1:1/", settings=settings, command=command)
    rest = peak_memory(worker.pid)

    async def answered() -> bool:
        return bool(await inbox_queue.value("SELECT count(data) = %s FROM page", count))

    await until(answered, 60)
    assert used(worker, rest, say) < OWN + COPIES * (WINDOW_BYTES + 2 * size)
    assert [(True,)] == await inbox_queue.sql("SELECT bool_and(octet_length(data) = %s) FROM page", size)


async def longest(queue: Queue) -> int:
    """Bytes of the longest reason in a row."""
    return int(await queue.value("SELECT max(octet_length(error_detail)) FROM queue_message_archive"))


async def test_reasons_that_names_of_a_message_make_long_take_little(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say
) -> None:
    """A window of messages that no queue takes, whose keys are written with four characters for each byte."""
    inbox, count = await topology.declare(), 4000
    await queue.sql("SELECT queue_message_config_set('unroutable', 'reject')")
    relay = await relays.start(database=queue.url, broker=amqp_url)
    rest = peak_memory(relay.pid)
    insert = "INSERT INTO queue_message (exchange, routing_key, content) SELECT %s, repeat(chr(1), 255), '{}' FROM generate_series(1, %s)"
    await queue.sql(insert, inbox.exchange, count)
    await queue.settled(seconds=60)

    assert used(relay, rest, say) < OWN + COPIES * count * (KEPT + REASON)
    assert [("rejected", "unroutable", count)] == await queue.sql(
        "SELECT result, error_code, count(*) FROM queue_message_archive GROUP BY 1, 2"
    )
    assert await longest(queue) < REASON


async def test_a_relay_keeps_little_of_what_a_trigger_quotes(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, say: Say
) -> None:
    """Refused claims of 40 contents of 3 MB; neighbours go out."""
    inbox = await topology.declare()
    relay = await relays.start(database=queue.url, broker=amqp_url, settings={"RELAY_WINDOW_BYTES": str(WINDOW_BYTES)})
    rest = peak_memory(relay.pid)
    await queue.sql(QUOTES.format("UPDATE"))
    await queue.sql(
        INSERT.format("'{}'", "NULL", 40).replace("'{}', '{}'", f"{QUOTED.format(MIB)}, '{{}}'"), inbox.exchange, inbox.routing_key
    )
    await queue.insert(20, exchange=inbox.exchange, routing_key=inbox.routing_key)
    await queue.settled(40, seconds=60)
    told = await relay.logged("message_refused")

    assert used(relay, rest, say) < OWN + COPIES * WINDOW_BYTES
    assert len(str(told)) < REASON


async def test_a_receiver_keeps_little_of_what_a_trigger_quotes(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue, say: Say
) -> None:
    """Ten payloads of 3 MB end on the dead side, each with a short reason."""
    bound = 4 * MIB
    receiver = await start_receive(inbox.queue, settings={"RELAY_RECEIVE_BYTES": str(bound)})
    rest = peak_memory(receiver.pid)
    await inbox_queue.sql(QUOTES.format("INSERT"))
    await publish(channel, inbox, [b'"%s"' % (b"://" * MIB)] * 10, ids=[f"m{number}" for number in range(10)])

    async def dead() -> bool:
        return bool(await inbox_queue.value("SELECT count(*) = 10 FROM queue_message_dead WHERE error_code = 'row_refused'"))

    await until(dead, 60)
    assert used(receiver, rest, say) < OWN + COPIES * 2 * bound
    assert await longest(inbox_queue) < REASON


async def test_a_worker_keeps_little_of_what_handlers_raise(relays: Relays, inbox_queue: Queue, tmp_path: Path, say: Say) -> None:
    """Texts of 8 MB, of exceptions that handlers raise at once again and again; one of them is in memory for each handler that runs."""
    size, count, at_once = 8 * MIB, 60, 5
    (tmp_path / "handlers.py").write_text(
        f"""
from relay.worker import Reject, Retry

async def handle(message):
    text = "x" * {size} if message.content % 2 else "\\x01\\n" * {size // 2}
    raise (Reject, Retry, ValueError)[message.content % 3](text)
"""
    )
    await inbox_queue.sql("SELECT queue_message_config_set('max_attempts', '1')")
    await inbox_queue.sql(
        "INSERT INTO queue_message (exchange, routing_key, content) SELECT '', '', n::text::jsonb FROM generate_series(1, %s) n", count
    )
    settings = {"RELAY_WORK_CONCURRENCY": str(at_once)}
    command = ("work", "handlers:handle")
    worker = await relays.start(database=inbox_queue.url, broker="amqp://nobody:x@127.0.0.1:1/", settings=settings, command=command)
    rest = peak_memory(worker.pid)
    await inbox_queue.settled(seconds=60)

    assert used(worker, rest, say) < OWN + COPIES * at_once * size
    codes = "SELECT error_code, count(*) FROM queue_message_dead GROUP BY 1 ORDER BY 1"
    assert [("handler_failed", 40), ("handler_rejected", 20)] == await inbox_queue.sql(codes)
    assert await longest(inbox_queue) < REASON
