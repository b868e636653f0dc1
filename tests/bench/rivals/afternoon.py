"""A plain loop of aio-pika and psycopg, as it is written in an afternoon."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from relay.devservers.process import Say
from tests.bench.rivals import environments
from tests.bench.rivals.rival import Start, Statements

_TABLE = """
    CREATE TABLE outbox (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, exchange text NOT NULL, routing_key text NOT NULL, payload jsonb NOT NULL,
        attempts integer NOT NULL DEFAULT 0, due_at timestamptz NOT NULL DEFAULT now(), dead boolean NOT NULL DEFAULT false, error text
    );
    CREATE FUNCTION outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN NOTIFY outbox; RETURN NULL; END $body$;
    CREATE TRIGGER outbox_notify AFTER INSERT ON outbox EXECUTE FUNCTION outbox_notify();
"""


class Afternoon:
    """`programs/afternoon.py`."""

    name = "afternoon"
    version = "aio-pika 10.2.1, psycopg 3.3.9"
    settings = "batches of 500 under FOR UPDATE SKIP LOCKED, all published at once on one channel, uvloop, LISTEN, dead after 5 attempts"
    rows = 20_000
    server: Mapping[str, str] = {}
    statements = Statements(
        insert="""
            INSERT INTO outbox (exchange, routing_key, payload)
            SELECT %(exchange)s, %(routing_key)s, jsonb_build_object('value', n, 'pad', %(pad)s::text)
            FROM generate_series(%(first)s::integer, %(last)s::integer) AS n
        """,
        waits="SELECT EXISTS (SELECT FROM outbox WHERE NOT dead)",
        waiting="SELECT (payload->>'value')::integer FROM outbox WHERE NOT dead",
        dead="SELECT (payload->>'value')::integer FROM outbox WHERE dead",
        why="SELECT concat_ws(': ', 'attempt ' || attempts, error) FROM outbox WHERE (payload->>'value')::integer = %(value)s",
        tables=("outbox",),
    )

    def install(self, say: Say) -> None:
        """Its two libraries."""
        environments.python(self.name, say)

    def prepare(self, database: str) -> None:
        """One table, with a notification for each INSERT."""
        with psycopg.connect(database) as connection:
            connection.execute(_TABLE)

    def start(self, database: str, broker: str) -> Start:
        """One process."""
        command = (str(environments.interpreter(self.name)), str(environments.PROGRAMS / "afternoon.py"))
        return Start(command, "ready", {"DATABASE_URL": database, "AMQP_URL": broker})
