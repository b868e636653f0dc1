"""faststream-outbox, as its documentation relays to RabbitMQ."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from relay.devservers.process import Say
from tests.bench.rivals import environments
from tests.bench.rivals.misfits import CASES
from tests.bench.rivals.rival import Start, Statements
from tests.bench.speed.kinds import QUEUE, ROUTING_KEY

_VALUE = "(convert_from(payload, 'UTF8')::jsonb->>'value')::integer"
_WAYS = ((QUEUE, ROUTING_KEY), *CASES.values())
"""A queue of the outbox for each exchange and routing key: this is how its relays know where to send."""


class FaststreamOutbox:
    """`programs/faststream_relay.py`."""

    name = "faststream-outbox"
    version = "0.19.0, faststream 0.7.8"
    settings = (
        "64 workers, fetches of 500, deletes in batches of 100, leases of 30 s, LISTEN, autovacuum as it recommends, a dead-letter table, "
        "a channel that raises on returns, no log line for a success, uvloop"
    )
    rows = 20_000
    server: Mapping[str, str] = {}
    statements = Statements(
        insert="""
            WITH added AS (
                INSERT INTO outbox (queue, payload, headers)
                SELECT %(exchange)s || '/' || %(routing_key)s,
                    convert_to(jsonb_build_object('value', n, 'pad', %(pad)s::text)::text, 'UTF8'),
                    '{"content-type": "application/json"}'
                FROM generate_series(%(first)s::integer, %(last)s::integer) AS n RETURNING id
            )
            SELECT pg_notify('outbox_outbox', %(exchange)s || '/' || %(routing_key)s) FROM (SELECT count(*) FROM added) AS one
        """,
        waits="SELECT EXISTS (SELECT FROM outbox)",
        waiting=f"SELECT {_VALUE} FROM outbox",
        dead=f"SELECT {_VALUE} FROM outbox_dlq",
        why=f"SELECT concat_ws(': ', failure_reason, last_exception) FROM outbox_dlq WHERE {_VALUE} = %(value)s",
        tables=("outbox", "outbox_dlq"),
    )

    def install(self, say: Say) -> None:
        """Its packages, pinned."""
        environments.python(self.name, say)

    def prepare(self, database: str) -> None:
        """Its tables as it declares them, with the settings of autovacuum that it recommends."""
        subprocess.run(self._command("schema"), env={"DATABASE_URL": database}, check=True)

    def start(self, database: str, broker: str) -> Start:
        """One process, with a subscriber for each way."""
        ways = " ".join("/".join(way) for way in _WAYS)
        return Start(self._command("relay"), "ready", {"DATABASE_URL": database, "AMQP_URL": broker, "WAYS": ways})

    def _command(self, word: str) -> tuple[str, ...]:
        return str(environments.interpreter(self.name)), str(environments.PROGRAMS / "faststream_relay.py"), word
