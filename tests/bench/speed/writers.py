"""What the queue costs an application: INSERT and COMMIT by pgbench, compared with the same table without trigger and CHECKs.

And, in mode `idle`, that table compared with one without any function of the relay's: built-in defaults, a random id, no generated column.

Mode `idle` also runs with a busy relay: one that was frozen (SIGSTOP) in the middle of a backlog. All that a writer sees of a relay is the
gate, an advisory lock that `queue_message_hint` tries to share. A writer that cannot share the gate notifies. A relay takes the gate when
it finds nothing due, and releases it when work is sustained. It asks for the gate again only when nothing is due. The relay's session stays
while its process is frozen. So the gate is as free as while the relay works, and the relay takes no CPU from either side. Before the first
run the benchmark checks that the gate is free and that the relay has no open transaction.

In mode `always` a writer does not ask for the gate, and each commit notifies. All commits take one lock of the whole server in turn, and
the listening session is woken. The listener is a relay's own (`NotificationListener`), which receives notifications and claims nothing. The
process of a frozen listener would soon read no more from its session, and would cost nothing. In mode `off` that listener is there too, and
receives nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg

from relay.postgres.notification_listener import NotificationListener
from relay.queries.statements import Statements
from tests.bench.figures import Figure, figure
from tests.bench.speed import kinds
from tests.bench.speed.stage import Stage
from tests.support.relays.processes import RelayProcess, Relays

CLIENTS = (1, 8, 32)
THREADS = 2
SECONDS = 3
"""Of a run."""
OTHER_SECONDS, OTHER_ROUNDS = 2, 2
"""Of the modes that have no goal: of a run, and at the most."""
GOAL = 0.9
PATIENCE = 30.0
PLAIN, BARE, QUEUE = "plain", "bare", "public"
"""Schemas: the same table without trigger and CHECKs, the barest one, and the queue."""
_MAKE_BARE = """
    CREATE SCHEMA plain;
    CREATE TABLE plain.queue_message (LIKE public.queue_message INCLUDING ALL EXCLUDING CONSTRAINTS);
    DO $$ BEGIN
        EXECUTE (SELECT format('ALTER TABLE plain.queue_message SET (%s)', array_to_string(reloptions, ', '))
            FROM pg_class WHERE oid = 'public.queue_message'::regclass);
    END $$;
    CREATE SCHEMA bare;
    CREATE TABLE bare.queue_message (LIKE public.queue_message INCLUDING IDENTITY INCLUDING INDEXES INCLUDING STORAGE);
    ALTER TABLE bare.queue_message ALTER xid SET DEFAULT pg_current_xact_id(), ALTER id SET DEFAULT gen_random_uuid(),
        ALTER routing_key SET DEFAULT '', ALTER content SET DEFAULT '{}', ALTER options SET DEFAULT '{}',
        ALTER created_at SET DEFAULT now(), ALTER attempts SET DEFAULT 0;
"""
_INSERT = """INSERT INTO {}.queue_message (exchange, routing_key, content) VALUES ('speed', 'k', '{{"n": 1}}');"""
_FREE = "SELECT pg_try_advisory_xact_lock_shared(queue_message_gate_key())"
_AMID = f"SELECT ({_FREE}) AND EXISTS (SELECT FROM queue_message) AND EXISTS (SELECT FROM queue_message_archive)"
_OPEN = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay/%' AND xact_start IS NOT NULL)"
_VARIABLES = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "dbname": "DATABASE"}
"""Of libpq, by the parts of a URL."""


class Run(NamedTuple):
    """Transactions a second of the tables, in turn."""

    plain: float
    bare: float
    queue: float

    @property
    def share(self) -> float:
        """What is left of that of the same table without trigger and CHECKs."""
        return self.queue / self.plain

    def __str__(self) -> str:
        return f"queue {self.queue:,.0f}/s, without trigger and CHECKs {self.plain:,.0f}/s: {self.share:.2f}; barest {self.bare:,.0f}/s"


async def measure_writers(stage: Stage, rounds: int) -> list[Figure]:
    """Each mode with each number of clients."""
    if not (stage.postgres.bin / "pgbench").exists():
        stage.say(
            f"{stage.postgres.bin} has no pgbench, so what the queue costs an application is not measured: install it beside postgres."
        )
        return []
    url, figures = stage.database(), list[Figure]()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_MAKE_BARE)
    async with stage.relays(url) as [relay]:
        await _freeze_amid_work(stage, url, relay)
        figures += await _mode(stage, url, "idle", rounds, SECONDS, least=GOAL)
    for mode in ("always", "off"):
        await Relays((sys.executable, "-m", "relay"), stage.folder).command("config", "set", "notify", mode, database=url)
        async with _heard(url):
            figures += await _mode(stage, url, mode, min(rounds, OTHER_ROUNDS), OTHER_SECONDS)
    return figures


async def _mode(stage: Stage, url: str, mode: str, rounds: int, seconds: int, *, least: float | None = None) -> list[Figure]:
    """So many rounds of each number of clients, and a run before them that is not counted."""
    await _run(stage, url, QUEUE, CLIENTS[-1], seconds)
    found: dict[int, list[Run]] = {clients: [] for clients in CLIENTS}
    for number in range(rounds):
        for clients, runs in found.items():
            order = (PLAIN, BARE, QUEUE) if number % 2 else (QUEUE, BARE, PLAIN)
            rates = {schema: await _run(stage, url, schema, clients, seconds) for schema in order}
            runs.append(Run(rates[PLAIN], rates[BARE], rates[QUEUE]))
            stage.say(f"notify {mode}, {clients} writing: {runs[-1]}")
    return [one for clients, runs in found.items() for one in _figures(f"notify {mode}, {clients} writing", runs, least)]


def _figures(name: str, runs: Sequence[Run], least: float | None) -> list[Figure]:
    return [
        figure(f"{name}: queue", "transactions/s", [one.queue for one in runs]),
        figure(f"{name}: without trigger and CHECKs", "transactions/s", [one.plain for one in runs]),
        figure(f"{name}: queue : without trigger and CHECKs", "times", [one.share for one in runs], least=least),
        figure(f"{name}: barest table", "transactions/s", [one.bare for one in runs]),
        figure(f"{name}: queue : barest table", "times", [one.queue / one.bare for one in runs]),
    ]


async def _run(stage: Stage, url: str, schema: str, clients: int, seconds: int) -> float:
    """Transactions a second of one run of pgbench on an empty table, right after a checkpoint."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("TRUNCATE plain.queue_message, bare.queue_message, public.queue_message")
        connection.execute("CHECKPOINT")
    command = _command(stage, schema, clients, seconds)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env={**os.environ, **_place(url)})
    told, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    [*_, rate] = [line.split()[2] for line in told.decode().splitlines() if line.startswith("tps = ")]
    return float(rate)


def _command(stage: Stage, schema: str, clients: int, seconds: int) -> list[str]:
    script = Path(stage.folder, f"{schema}.sql")
    script.write_text(_INSERT.format(schema))
    options = ("-n", "-f", script, "-c", clients, "-j", min(clients, THREADS), "-T", seconds)
    return [str(word) for word in (stage.postgres.bin / "pgbench", *options)]


def _place(url: str) -> dict[str, str]:
    """A URL as libpq's variables, so that no command line contains a password."""
    words = psycopg.conninfo.conninfo_to_dict(url)
    return {f"PG{variable}": str(words[name]) for name, variable in _VARIABLES.items()}


async def _freeze_amid_work(stage: Stage, url: str, relay: RelayProcess) -> None:
    """Give a relay a backlog, and freeze it once it has released the gate and before it has finished."""
    await stage.lay(kinds.PLAIN)
    relay.send(signal.SIGSTOP)
    kinds.PLAIN.insert(url)
    relay.send(signal.SIGCONT)
    with psycopg.connect(url, autocommit=True) as connection:
        await _until(connection, _AMID, wanted=True)
        relay.send(signal.SIGSTOP)
        await _until(connection, _OPEN, wanted=False)
        assert connection.execute(_AMID).fetchone() == (True,), "the relay was frozen when it was through: give it a larger backlog"
    await stage.purge()


async def _until(connection: psycopg.Connection, statement: str, *, wanted: bool) -> None:
    async with asyncio.timeout(PATIENCE):
        while connection.execute(statement).fetchone() != (wanted,):  # noqa: ASYNC110 - the relay is looked at from outside
            await asyncio.sleep(0.025)


@asynccontextmanager
async def _heard(url: str) -> AsyncIterator[None]:
    """Somebody listens as a relay does."""
    listener = NotificationListener(conninfo=url, application_name="speed listen", statements=Statements("public"), on_hint=lambda: None)
    await listener.open()
    listening = asyncio.create_task(_listen(listener))
    try:
        yield
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        await listener.aclose()


async def _listen(listener: NotificationListener) -> None:
    while True:
        await listener.wait(1)
