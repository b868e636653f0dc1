"""pg-transactional-outbox, a Node.js library with a polling and a replication listener, with amqplib as the publisher."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from typing import Literal

from relay.devservers.process import Say
from tests.bench.rivals import environments
from tests.bench.rivals.rival import Start, Statements

_ENVIRONMENT = "pg-transactional-outbox"
_WAITS = "processed_at IS NULL AND abandoned_at IS NULL"
_VALUE = "(payload->>'value')::integer"


class PgTransactionalOutbox:
    """`programs/pg_transactional_outbox.js`.

    Args:
        listener: how it learns of messages.
        about: what was chosen in addition to the settings that both have in common.
        parallel: how many messages it has in flight, each in a transaction of its own.
        server: settings of PostgreSQL.

    """

    version = "0.5.7, amqplib 2.3.1"
    statements = Statements(
        insert="""
            INSERT INTO outbox (id, aggregate_type, aggregate_id, message_type, concurrency, payload, metadata)
            SELECT gen_random_uuid(), 'bench', n::text, 'bench', 'parallel', jsonb_build_object('value', n, 'pad', %(pad)s::text),
                jsonb_build_object('exchange', %(exchange)s::text, 'routingKey', %(routing_key)s::text)
            FROM generate_series(%(first)s::integer, %(last)s::integer) AS n
        """,
        waits=f"SELECT EXISTS (SELECT FROM outbox WHERE {_WAITS})",
        waiting=f"SELECT {_VALUE} FROM outbox WHERE {_WAITS}",
        dead=f"SELECT {_VALUE} FROM outbox WHERE abandoned_at IS NOT NULL",
        why="SELECT NULL::text WHERE %(value)s::integer IS NULL",
        tables=("outbox",),
    )

    rows = 5_000

    def __init__(self, listener: Literal["polling", "replication"], about: str, *, parallel: int, server: Mapping[str, str]) -> None:
        self.name = f"{_ENVIRONMENT}-{listener}"
        self.settings = f"{listener} listener, {about}, {parallel} connections, no log line for a success"
        self.server: Mapping[str, str] = server
        self._listener, self._parallel = listener, parallel

    def install(self, say: Say) -> None:
        """Its packages, pinned; both listeners share them."""
        environments.node(_ENVIRONMENT, say)

    def prepare(self, database: str) -> None:
        """Its table, as its own setup makes it."""
        subprocess.run(self._command("schema"), env=self._environment(database), check=True)

    def start(self, database: str, broker: str) -> Start:
        """One process."""
        return Start(self._command("relay"), "ready", {**self._environment(database), "AMQP_URL": broker})

    def _command(self, word: str) -> tuple[str, ...]:
        return shutil.which("node") or "node", str(environments.PROGRAMS / "pg_transactional_outbox.js"), word

    def _environment(self, database: str) -> dict[str, str]:
        return {
            "DATABASE_URL": database,
            "LISTENER": self._listener,
            "PARALLEL": str(self._parallel),
            "NODE_PATH": str(environments.modules(_ENVIRONMENT)),
        }


def polling() -> PgTransactionalOutbox:
    """The listener that asks."""
    return PgTransactionalOutbox(
        "polling", "batches of 100, a look each 20 ms, processed rows deleted each second", parallel=100, server={}
    )


def replication() -> PgTransactionalOutbox:
    """The listener that PostgreSQL notifies by replication.

    It can learn of a message before other sessions see the row (MESSAGE_NOT_FOUND in its log), and then never sends that message. From
    0.6.0 on it can be set to try again; 0.5.7 is what could be installed when this was written.
    """
    server = {"wal_level": "logical"}
    return PgTransactionalOutbox("replication", "a semaphore of 50, wal_level = logical", parallel=50, server=server)
