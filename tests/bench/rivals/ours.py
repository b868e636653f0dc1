"""This relay, with the settings that it has by itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from relay import __version__
from relay.devservers.process import Say
from tests.bench.rivals.rival import Start, Statements


class OutboxRelay:
    """`relay run` of this checkout."""

    name = "outbox-relay"
    version = __version__
    settings = "all by default: batches of 1,000, a window of 4,000, locks of 30 s, every message archived"
    rows = 20_000
    server: Mapping[str, str] = {}
    statements = Statements(
        insert="""
            INSERT INTO queue_message (exchange, routing_key, content)
            SELECT %(exchange)s, %(routing_key)s, jsonb_build_object('value', n, 'pad', %(pad)s::text)
            FROM generate_series(%(first)s::integer, %(last)s::integer) AS n
        """,
        waits="SELECT EXISTS (SELECT FROM queue_message)",
        waiting="SELECT (content->>'value')::integer FROM queue_message",
        dead="SELECT (content->>'value')::integer FROM queue_message_archive WHERE result <> 'success'",
        why="""
            SELECT concat_ws(': ', 'attempt ' || attempts, last_error) FROM queue_message
            WHERE (content->>'value')::integer = %(value)s
            UNION ALL
            SELECT concat_ws(': ', result, error_code, error_detail) FROM queue_message_archive
            WHERE (content->>'value')::integer = %(value)s AND result <> 'success'
        """,
        tables=("queue_message",),
    )

    def install(self, say: Say) -> None:
        """Nothing to do: this is its environment."""

    def prepare(self, database: str) -> None:
        """Nothing to do: a database of the stage has the schema."""

    def start(self, database: str, broker: str) -> Start:
        """As in production; probes and scrapes are off, like those of the others."""
        own = {"RELAY_DATABASE_URL": database, "RELAY_AMQP_URL": broker, "RELAY_LOG_FORMAT": "json", "RELAY_HTTP_PORT": ""}
        return Start((sys.executable, "-m", "relay", "run"), '"broker_up"', own)
