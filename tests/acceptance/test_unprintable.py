"""A content that PostgreSQL stores and cannot print must not stop the queue."""

from __future__ import annotations

import psycopg

from tests.support.broker.topology import Topology
from tests.support.relays.processes import Relays


async def test_a_content_that_cannot_be_printed_is_rejected_and_its_neighbours_arrive(
    database_url: str, amqp_url: str, topology: Topology, relays: Relays
) -> None:
    """9,000 numbers of 131,072 digits each take little room and are a gigabyte as text: a claim that meets them fails as a whole."""
    made = await topology.declare()
    with psycopg.connect(database_url, autocommit=True) as connection:
        for _ in range(3):
            connection.execute("INSERT INTO queue_message (exchange, routing_key) VALUES (%s, %s)", (made.exchange, made.routing_key))
        # The triggers would refuse it, but a queue older than the triggers may contain it.
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "INSERT INTO queue_message (exchange, routing_key, content) "
            "SELECT %s, %s, jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000)",
            (made.exchange, made.routing_key),
        )
        connection.execute("INSERT INTO queue_message (exchange, routing_key) VALUES (%s, %s)", (made.exchange, made.routing_key))
    await relays.start("relay", database=database_url, broker=amqp_url)

    assert 4 == len(await topology.drain(made.queue, count=4, seconds=90))
    with psycopg.connect(database_url) as connection:
        found = connection.execute("SELECT result, error_code FROM queue_message_dead").fetchall()
    assert [("rejected", "content_unprintable")] == found
