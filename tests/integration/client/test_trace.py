"""The W3C trace context at enqueue: from SQL in any language, and from the client to the consumer."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from relay.client import Message, enqueue, enqueue_async, enqueue_copy, enqueue_many
from relay.client.message import HEADERS_LIMIT
from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue
from tests.support.relays.processes import Relays
from tests.support.relays.traces import BAD_PARENTS, BAD_STATES, GOOD_PARENTS, GOOD_STATES, PARENT, STATE
from tests.support.servers.logins import login

OTHER = GOOD_PARENTS[1]


async def _options(queue: Queue, options: object = None, *, parent: str | None = PARENT, state: str | None = None) -> Any:
    """What a plain INSERT with these settings of its transaction makes of the options."""
    async with queue.connection.transaction():
        for name, value in (("traceparent", parent), ("tracestate", state)):
            if value is not None:
                await queue.sql("SELECT set_config(%s, %s, true)", f"relay.{name}", value)
        statement = "INSERT INTO queue_message (exchange, options) VALUES ('e', %s) RETURNING options"
        return await queue.value(statement, Jsonb({} if options is None else options))


@pytest.mark.parametrize("parent", GOOD_PARENTS)
async def test_a_plain_insert_carries_the_trace_of_its_transaction(queue: Queue, parent: str) -> None:
    """`SET LOCAL relay.traceparent` is all that it takes; the transaction after it has none."""
    assert {"headers": {"traceparent": parent}} == await _options(queue, parent=parent)
    assert {} == await _options(queue, parent=None)


async def test_other_options_and_headers_stay(queue: Queue) -> None:
    """The trace is added to them, and a state goes with it."""
    given = {"priority": 3, "headers": {"tenant": "a"}}

    expected = {"priority": 3, "headers": {"tenant": "a", "traceparent": PARENT, "tracestate": STATE}}
    assert expected == await _options(queue, given, state=STATE)
    assert {"type": "x", "headers": {"traceparent": PARENT}} == await _options(queue, {"type": "x", "headers": None})


async def test_malformed_and_hostile_traces_are_left_out(queue: Queue) -> None:
    """The INSERT continues as if they were absent."""
    for parent in ["", *BAD_PARENTS]:
        assert {} == await _options(queue, parent=parent, state=STATE), parent[:80]
    assert {} == await _options(queue, parent=None, state=STATE)


async def test_a_malformed_state_is_left_out_alone(queue: Queue) -> None:
    """As the client judges it."""
    for state in ["", *BAD_STATES]:
        assert {"headers": {"traceparent": PARENT}} == await _options(queue, state=state), state
    for state in GOOD_STATES:
        assert {"headers": {"traceparent": PARENT, "tracestate": state}} == await _options(queue, state=state), state


@pytest.mark.parametrize("own", [{"traceparent": OTHER}, {"traceparent": "mine"}, {"traceparent": None}, {"tracestate": "mine"}])
async def test_what_the_application_put_there_itself_stays(queue: Queue, own: dict[str, str | None]) -> None:
    """Whatever it is."""
    assert {"headers": own} == await _options(queue, {"headers": own}, state=STATE)


async def test_where_headers_would_be_too_large_the_trace_is_left_out(queue: Queue) -> None:
    """The message goes without it; what was wrong before is refused as before."""
    large = {"headers": {"a": "x" * (HEADERS_LIMIT - 10)}}
    assert large == await _options(queue, large)
    for wrong, sentence in (({"headers": 7}, "options.headers must be an object"), ([], "must be a JSON object"), ({"x": 1}, "unknown")):
        with pytest.raises(psycopg.errors.CheckViolation, match=sentence):
            await _options(queue, wrong)


async def test_every_message_of_a_statement_is_traced(queue: Queue) -> None:
    """Many rows, the view for applications, a body, and COPY."""
    async with queue.connection.transaction():
        await queue.sql(f"SET LOCAL relay.traceparent = '{PARENT}'")
        await queue.sql("INSERT INTO queue_message (exchange, content) SELECT 'e', to_jsonb(n) FROM generate_series(1, 3) n")
        await queue.sql("INSERT INTO queue_message_app (exchange) VALUES ('e')")
        await queue.sql("INSERT INTO queue_message (exchange, body, expires_at) VALUES ('e', '', now() + interval '1 hour')")
        async with queue.connection.cursor().copy(b"COPY queue_message (exchange) FROM STDIN") as copy:
            await copy.write_row(("e",))

    assert [({"headers": {"traceparent": PARENT}},)] == await queue.sql("SELECT DISTINCT options FROM queue_message")
    assert 6 == await queue.waiting()


async def test_what_was_refused_is_refused_with_a_trace(queue: Queue) -> None:
    """The trace takes the message past no check."""
    await queue.sql(f"SET relay.traceparent = '{PARENT}'")
    for column, value in (("exchange", "x" * 256), ("ordering_key", "x" * 1025), ("expires_at", "infinity")):
        with pytest.raises(psycopg.errors.CheckViolation, match=column):
            await queue.insert(**{column: value})


async def test_a_replayed_message_keeps_its_trace(queue: Queue) -> None:
    """It is another delivery of the same business."""
    async with queue.connection.transaction():
        await queue.sql(f"SET LOCAL relay.traceparent = '{PARENT}'")
        [id_] = await queue.insert()
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'discarded', 'cancelled', 'x', 'x')", id_)
    async with queue.connection.transaction():
        await queue.sql(f"SET LOCAL relay.traceparent = '{OTHER}'")
        await queue.sql("SELECT queue_message_replay(%s::uuid)", id_)

    assert {"headers": {"traceparent": PARENT}} == await queue.value("SELECT options FROM queue_message")


async def test_the_clients_trace_goes_before_the_settings(queue: Queue) -> None:
    """Message, argument, then what the transaction says."""
    with psycopg.connect(queue.url) as connection:
        connection.execute(f"SET LOCAL relay.traceparent = '{PARENT}'".encode())
        enqueue(connection, Message(exchange="e", content=1, options={"headers": {"traceparent": "mine"}}), traceparent=OTHER)  # type: ignore[arg-type]
        enqueue_many(connection, [{"exchange": "e", "content": 2}], traceparent=OTHER, tracestate=STATE)
        enqueue_copy(connection, [{"exchange": "e", "content": 3}], traceparent=OTHER)
        enqueue(connection, {"exchange": "e", "content": 4}, traceparent="malformed")

    found = [options["headers"] for (options,) in await queue.sql("SELECT options FROM queue_message ORDER BY seq")]
    with_state = {"traceparent": OTHER, "tracestate": STATE}
    assert [{"traceparent": "mine"}, with_state, {"traceparent": OTHER}, {"traceparent": PARENT}] == found


async def test_a_producer_and_a_relay_need_no_more_for_it(queue: Queue, relays: Relays, topology: Topology, amqp_url: str) -> None:
    """The consumer and the archive have the trace, from SQL and from the client."""
    made = await topology.declare()
    to = {"exchange": made.exchange, "routing_key": made.routing_key}
    with login(queue.url, "queue_message_producer") as url:
        async with await psycopg.AsyncConnection.connect(url) as producer:
            await enqueue_async(producer, to, traceparent=PARENT, tracestate=STATE)
            await producer.execute(f"SET LOCAL relay.traceparent = '{PARENT}'".encode())
            await producer.execute(f"SET LOCAL relay.tracestate = '{STATE}'".encode())
            await producer.execute(b"INSERT INTO queue_message (exchange, routing_key) VALUES (%(exchange)s, %(routing_key)s)", to)
        await relays.start(database=queue.url, broker=amqp_url)
        came = await topology.drain(made.queue, 2)
        await queue.settled()

    trace = {"traceparent": PARENT, "tracestate": STATE}
    assert [trace, trace] == [{name: message.headers[name] for name in trace} for message in came]
    assert [({"headers": trace},)] * 2 == await queue.sql("SELECT options FROM queue_message_archive")
