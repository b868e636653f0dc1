"""`relay receive`: messages from real queues in a real inbox, each once, and what can never be one on the dead side."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from aio_pika.abc import AbstractChannel
from pamqp import commands

from tests.support.broker.raw_amqp import RawClient, raw_publish
from tests.support.broker.topology import Declared
from tests.support.database.inboxes import Start, emptied, publish, publish_without_id, received
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays
from tests.support.servers.logins import login
from tests.support.servers.shared import Declare, Drain

pytestmark = pytest.mark.ids("C16")

MOST_BYTES = 1 << 20
"""Of a payload, so that the largest is no larger than any version of the broker takes."""


async def test_a_message_of_a_queue_becomes_a_message_of_the_inbox(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue
) -> None:
    """Exchange, routing key, content and every property arrive; what PostgreSQL knows as JSON is JSON."""
    await start_receive(inbox.queue)
    given: dict[str, Any] = {
        "headers": {"x-relay-id": "0190", "tenant": "a", "tries": 3}, "priority": 5, "correlation_id": "c", "reply_to": "answers",
        "expiration": 60, "type": "paid", "app_id": "shop", "timestamp": datetime(2031, 1, 2, 3, 4, 5, tzinfo=UTC),
    }  # fmt: skip
    await publish(channel, inbox, [b'{"order": 7}'], ids=["m-1"], **given)
    await received(inbox_queue, 1)

    [row] = await inbox_queue.sql("SELECT exchange, routing_key, content, body, options FROM queue_message")
    assert (inbox.exchange, inbox.routing_key, {"order": 7}, None) == row[:4]
    assert {
        "app_id": "shop", "content_type": "application/json", "correlation_id": "c", "delivery_mode": 2, "expiration": "60000",
        "headers": {"tenant": "a", "tries": 3, "x-relay-id": "0190"}, "message_id": "m-1", "priority": 5, "reply_to": "answers",
        "timestamp": 1_925_089_445, "type": "paid",
    } == row[4]  # fmt: skip
    assert [(inbox.queue, "0190")] == await inbox_queue.sql("SELECT consumer, message_id FROM queue_message_received")


async def test_a_message_that_comes_twice_is_in_the_inbox_once(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue
) -> None:
    """The relay's header tells which message it is, else the property message_id; also within one batch, and after the first has left."""
    await publish(channel, inbox, [b"1", b"1", b"2"], ids=["a", "a", "b"])
    await start_receive(inbox.queue)
    await received(inbox_queue, 2)
    await emptied(channel, inbox.queue)
    await inbox_queue.sql("DELETE FROM queue_message")
    await publish(channel, inbox, [b"1", b"3"], ids=["a", "c"])
    await received(inbox_queue, 1)

    assert [(3,)] == await inbox_queue.sql("SELECT content FROM queue_message")


async def test_the_same_message_through_two_queues_is_two_messages(
    start_receive: Start, declare: Declare, unique: str, channel: AbstractChannel, inbox_queue: Queue
) -> None:
    """Each queue is a consumer of its own."""
    first = await declare(f"{unique}.fan", f"{unique}.one", kind="fanout")
    await declare(f"{unique}.fan", f"{unique}.two", kind="fanout")
    await start_receive(f"{unique}.one", f"{unique}.two")
    await publish(channel, first, [b"1"], ids=["a"])
    await received(inbox_queue, 2)

    assert [(f"{unique}.one",), (f"{unique}.two",)] == await inbox_queue.sql("SELECT consumer FROM queue_message_received ORDER BY 1")


async def test_messages_without_an_id_are_all_kept(start_receive: Start, inbox: Declared, amqp_url: str, inbox_queue: Queue) -> None:
    """It is unknown whether two of them are the same message, so none is dropped."""
    await start_receive(inbox.queue)
    async with RawClient(amqp_url) as client:
        for _ in range(2):
            await publish_without_id(client, inbox, b"1")
    await received(inbox_queue, 2)


@pytest.mark.parametrize(
    ("payload", "properties"),
    [
        (b"\x00\xff", {"content_type": "application/octet-stream"}),
        (b'{"a": 1}', {"content_type": None}),
        (b"\x1f\x8b", {"content_encoding": "gzip"}),
        (b'{"a": "\\u0000"}', {}),
        (b'"\\ud800"', {}),
        (b"[" * 5000 + b"]" * 5000, {}),
        (json.dumps(dict.fromkeys(map(str, range(40_000)))).encode(), {}),
        (b"", {"content_type": "text/plain"}),
    ],
    ids=["octets", "no type", "compressed", "NUL in JSON", "half a surrogate pair", "nested deep", "many names", "empty"],
)
async def test_what_is_no_json_for_postgresql_stays_byte_for_byte(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue, payload: bytes, properties: dict[str, Any]
) -> None:
    """It is a message like any other, with its payload in body."""
    await start_receive(inbox.queue)
    await publish(channel, inbox, [payload], **properties)
    await received(inbox_queue, 1)

    assert [(payload, {})] == await inbox_queue.sql("SELECT body, content FROM queue_message")


@pytest.mark.parametrize(
    ("payload", "properties", "code", "words"),
    [
        (b"{", {}, "content_invalid", "says it is JSON: content is not JSON"),
        (b"\xff", {}, "content_invalid", "not valid UTF-8"),
        (b"1" + b"0" * MOST_BYTES, {}, "body_too_large", f"the limit is {MOST_BYTES} bytes"),
        (b"1", {"headers": {"": 1}}, "row_refused", "a name that is empty"),
        (b"1", {"headers": {"n": [None] * 8000}}, "row_refused", "more than 8000 values"),
    ],
    ids=["no JSON", "no UTF-8", "too large", "empty name", "too many values"],
)
async def test_poison_goes_to_the_dead_side_with_its_reason(
    start_receive: Start,
    inbox: Declared,
    channel: AbstractChannel,
    inbox_queue: Queue,
    payload: bytes,
    properties: dict[str, Any],
    code: str,
    words: str,
) -> None:
    """Its neighbours come in, its payload is kept, and the queue is rid of it."""
    await inbox_queue.sql("SELECT queue_message_config_set('max_body_bytes', %s)", str(MOST_BYTES))
    receiver = await start_receive(inbox.queue)
    await publish(channel, inbox, [b'"before"'], ids=["before"])
    await publish(channel, inbox, [payload], ids=["poison"], **properties)
    await publish(channel, inbox, [b'"after"'], ids=["after"])
    await received(inbox_queue, 2)
    await receiver.logged("delivery_rejected")

    [dead] = await inbox_queue.sql(
        "SELECT body, result, error_code, error_detail, options->'headers'->>'x-relay-queue' FROM queue_message_dead"
    )
    assert (payload, "rejected", code, inbox.queue) == (*dead[:3], dead[4])
    assert words in dead[3]
    assert 0 == await receiver.stop()
    await emptied(channel, inbox.queue)


async def test_a_queue_that_is_missing_troubles_no_other_and_is_taken_from_when_it_is_there(
    start_receive: Start, inbox: Declared, declare: Declare, unique: str, channel: AbstractChannel, inbox_queue: Queue
) -> None:
    """One sentence says what to do, and nothing has to be restarted."""
    receiver = await start_receive(inbox.queue, f"{unique}.late")
    line = await receiver.logged("queue_refused")
    assert f"Queue '{unique}.late' does not exist: declare it." == line["error"]
    await publish(channel, inbox, [b"1"], ids=["a"])
    await received(inbox_queue, 1)
    late = await declare("", f"{unique}.late")
    await publish(channel, late, [b"2"], ids=["b"])
    await received(inbox_queue, 2)


async def test_a_queue_that_is_deleted_and_declared_again_is_taken_from(
    start_receive: Start, declare: Declare, unique: str, channel: AbstractChannel, inbox_queue: Queue
) -> None:
    """The broker ends the consumer; another one begins."""
    await channel.declare_queue(f"{unique}.gone")
    receiver = await start_receive(f"{unique}.gone")
    await receiver.logged("queue_opened")
    await channel.queue_delete(f"{unique}.gone")
    await receiver.logged("queue_refused")
    again = await declare("", f"{unique}.gone")
    await publish(channel, again, [b"1"], ids=["a"])
    await received(inbox_queue, 1)


async def test_a_full_inbox_stops_the_queues_and_goes_on_when_there_is_room(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue
) -> None:
    """What is above the limit stays in the queue, safe and in order; no more than the prefetch comes in beyond it."""
    await publish(channel, inbox, [b"%d" % number for number in range(200)], ids=[str(number) for number in range(200)])
    receiver = await start_receive(
        inbox.queue, settings={"RELAY_INBOX_LIMIT": "10", "RELAY_RECEIVE_PREFETCH": "20", "RELAY_BATCH_SIZE": "5"}
    )
    await receiver.logged("inbox_full")
    left = await channel.declare_queue(inbox.queue, passive=True)

    async def taken() -> bool:
        await inbox_queue.sql("WITH gone AS (DELETE FROM queue_message RETURNING content) INSERT INTO taken SELECT content::int FROM gone")
        return bool(await inbox_queue.value("SELECT count(*) = 200 FROM taken"))

    await inbox_queue.sql("CREATE TABLE taken (number int)")
    await until(taken)
    assert (left.declaration_result.message_count or 0) >= 200 - 10 - 20 - 5
    assert receiver.of("inbox_open")
    assert (200, 0, 199) == (await inbox_queue.sql("SELECT count(DISTINCT number), min(number), max(number) FROM taken"))[0]


@pytest.mark.parametrize("prepare", ["true", "false"])
@pytest.mark.parametrize("body", [b"1", b"{"], ids=["message", "poison"])
async def test_what_arrives_is_durable_before_it_is_acknowledged(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue, prepare: str, body: bytes
) -> None:
    """Also where the database commits without waiting for the disk, also behind a pooler, which keeps no settings."""
    await inbox_queue.sql("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$")
    await inbox_queue.sql("CREATE TABLE seen (mode text)")
    await inbox_queue.sql(
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS "
        "$$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"
    )
    await inbox_queue.sql(
        "CREATE CONSTRAINT TRIGGER see AFTER INSERT ON queue_message_received INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()"
    )
    await start_receive(inbox.queue, settings={"RELAY_PREPARE": prepare})
    await publish(channel, inbox, [body], ids=["a"])
    await emptied(channel, inbox.queue)
    await until(lambda: _one(inbox_queue))

    assert [("on",)] == await inbox_queue.sql("SELECT DISTINCT mode FROM seen")


async def _one(queue: Queue) -> bool:
    return bool(await queue.value("SELECT count(*) = 1 FROM seen"))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("RAISE EXCEPTION 'not that one'", "not that one"),
        ("RAISE EXCEPTION 'not that one' USING ERRCODE = 'feature_not_supported'", "not that one"),
        ("RETURN NULL", "skips the INSERT without an error"),
    ],
    ids=["raises", "has-a-state-of-its-own", "skips"],
)
async def test_what_the_database_refuses_for_its_own_reasons_stops_nobody(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue, act: str, words: str
) -> None:
    """A trigger of somebody's raises its own error for one message, or skips it: it is put aside; the others come in."""
    await inbox_queue.sql(
        f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.content = '2' THEN {act}; END IF; RETURN NEW; END $$"
    )
    await inbox_queue.sql("CREATE TRIGGER refuse BEFORE INSERT ON queue_message FOR EACH ROW EXECUTE FUNCTION refuse()")
    receiver = await start_receive(inbox.queue)
    await publish(channel, inbox, [b"1", b"2", b"3"], ids=["a", "b", "c"])
    await received(inbox_queue, 2)
    line = await receiver.logged("delivery_rejected")
    assert ("row_refused", True) == (line["code"], words in line["detail"])


async def test_a_relay_leaves_when_its_schema_becomes_an_inbox(relays: Relays, queue: Queue, inbox: Declared, amqp_url: str) -> None:
    """Within seconds, and claims nothing more: what is received there from now on is not its own."""
    relay = await relays.start(database=queue.url, broker=amqp_url)
    await queue.sql("SELECT queue_message_config_set('direction', 'inbox')")
    assert 0 == await relay.ended()
    assert "direction" == relay.of("stopping")[0]["reason"]


async def test_an_inbox_that_becomes_an_outbox_gets_nothing_more(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue
) -> None:
    """What comes is held, unacknowledged, until somebody says what the schema is."""
    receiver = await start_receive(inbox.queue)
    await receiver.logged("queue_opened")
    await inbox_queue.sql("SELECT queue_message_config_set('direction', 'outbox')")

    async def refused() -> bool:
        await publish(channel, inbox, [b"1"])
        return bool(receiver.of("receive_failed"))

    await until(refused)
    count = await inbox_queue.value("SELECT count(*) FROM queue_message")
    await inbox_queue.sql("SELECT queue_message_config_set('direction', 'inbox')")
    await received(inbox_queue, count + 1)


async def test_an_outbox_is_not_received_into(start_receive: Start, inbox: Declared, inbox_queue: Queue) -> None:
    """The sentence says how to make an inbox. The receiver continues as soon as there is one."""
    await inbox_queue.sql("SELECT queue_message_config_set('direction', 'outbox')")
    receiver = await start_receive(inbox.queue, ready=False)
    line = await receiver.logged("database_down")
    assert "holds an outbox" in line["error"]
    await inbox_queue.sql("SELECT queue_message_config_set('direction', 'inbox')")
    await receiver.logged("receiving")


async def test_what_was_taken_and_not_written_goes_back(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue, drain: Drain
) -> None:
    """The end of the process, in order, leaves each message in the queue or in the inbox."""
    await inbox_queue.sql("BEGIN; LOCK TABLE queue_message_received IN EXCLUSIVE MODE")
    receiver = await start_receive(inbox.queue)
    await publish(channel, inbox, [b"%d" % number for number in range(50)], ids=[str(number) for number in range(50)])
    await receiver.logged("receive_failed")
    assert 0 == await receiver.stop()
    await inbox_queue.sql("ROLLBACK")

    left = {int(json.loads(message.body)) for message in await drain(inbox.queue, 50)}
    assert set(range(50)) == left


@pytest.mark.parametrize(
    ("routing_key", "header"),
    [
        (b"\xff\xfe", b""),
        (b"key", b"\x80\x00\x02\xff\xfe"),
        (b"key", b"\x20\x00\x00\x00\x00\x04\x02\xff\xfeV"),
        (b"a\x00b", b""),
    ],
    ids=["routing key", "content type", "header name", "NUL"],
)
async def test_bytes_that_no_client_library_reads_end_no_connection(
    start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue, amqp_url: str, unique: str,
    routing_key: bytes, header: bytes,
) -> None:  # fmt: skip
    """RabbitMQ passes them on unread; they go to the dead side with their payload, once, and their neighbours come in."""
    fan = await channel.declare_exchange(f"{unique}.fan", "fanout", auto_delete=True)
    await (await channel.get_queue(inbox.queue)).bind(fan)
    receiver = await start_receive(inbox.queue)
    async with RawClient(amqp_url) as client:
        for _ in range(2):
            client.write(raw_publish(f"{unique}.fan".encode(), routing_key, header or b"\x00\x00", b"payload"))
            await client._expect(commands.Basic.Ack)
    await publish(channel, inbox, [b"1"], ids=["a"])
    await received(inbox_queue, 1)
    await receiver.logged("delivery_rejected")

    assert 0 == await receiver.stop()
    await emptied(channel, inbox.queue)
    dead = await inbox_queue.sql("SELECT body, result, error_code FROM queue_message_dead")
    assert {(b"payload", "rejected", "text_invalid" if b"\0" in routing_key else "properties_invalid")} == set(dead)
    assert 1 == len(receiver.of("broker_up"))


async def test_times_and_numbers_that_json_does_not_have_reject_nothing(
    start_receive: Start, inbox: Declared, inbox_queue: Queue, amqp_url: str
) -> None:
    """A timestamp of every unit, numbers beyond 64 bits, decimals and NUL, through a real broker into a real table.

    NaN and infinities are among tests/unit/inbox/test_fields.py: RabbitMQ 3.10 ends the connection of a client that publishes one.
    """
    fields = (
        b"\x01aD\x02\x00\x00\x04\xce", b"\x01bi\xff\xff\xff\xff", b"\x01cd" + struct.pack(">d", 1e300), b"\x01dT" + b"\xff" * 8,
        b"\x01eT" + (1_700_000_000_000).to_bytes(8, "big"), b"\x01fS\x00\x00\x00\x01\x00", b"\x01gl\x80" + bytes(7),
    )  # fmt: skip
    table = b"".join(fields)
    times = (1_700_000_000, 5_000_000_000, 1_700_000_000_000, 1_700_000_000_000_000, (1 << 64) - 1)
    await start_receive(inbox.queue)
    async with RawClient(amqp_url) as client:
        for seconds in times:
            header = b"\x20\x40" + len(table).to_bytes(4, "big") + table + seconds.to_bytes(8, "big")
            client.write(raw_publish(inbox.exchange.encode(), inbox.routing_key.encode(), header, b"payload"))
            await client._expect(commands.Basic.Ack)
    await received(inbox_queue, len(times))

    kept = {"a": "12.30", "b": (1 << 32) - 1, "c": "1e+300", "d": str((1 << 64) - 1), "e": 1_700_000_000_000, "f": "AA==", "g": -(1 << 63)}
    rows = await inbox_queue.sql("SELECT options FROM queue_message ORDER BY xid, seq")
    assert [{**kept, **beyond} for beyond in ({}, {}, *({"x-relay-timestamp": each} for each in (*times[2:4], str(times[4]))))] == [
        options["headers"] for (options,) in rows
    ]
    assert [*times[:2], None, None, None] == [options.get("timestamp") for (options,) in rows]


async def test_no_relay_publishes_what_was_received(relays: Relays, inbox_queue: Queue, inbox: Declared, amqp_url: str) -> None:
    """Pointed at an inbox, `relay run` says so and claims nothing."""
    await inbox_queue.insert(1, exchange=inbox.exchange, routing_key=inbox.routing_key)
    relay = await relays.start(database=inbox_queue.url, broker=amqp_url, ready=False)
    line = await relay.logged("database_down", 2)
    assert "holds an inbox" in line["error"]
    assert [(0,)] == await inbox_queue.sql("SELECT attempts FROM queue_message")


@pytest.mark.ids("A23")
async def test_the_receivers_role_is_enough(start_receive: Start, inbox: Declared, channel: AbstractChannel, inbox_queue: Queue) -> None:
    """A login of it writes messages, marks and the dead side, counts, and wakes workers."""
    await inbox_queue.sql("SELECT queue_message_config_set('notify', 'always')")
    with login(inbox_queue.url, "queue_message_receiver") as url:
        receiver = await start_receive(inbox.queue, database=url)
        await publish(channel, inbox, [b"1", b"{"], ids=["a", "b"])
        await received(inbox_queue, 1)
        await receiver.logged("delivery_rejected")
        await receiver.stop()
        assert [] == receiver.of("receive_failed") + receiver.of("maintenance_failed")
