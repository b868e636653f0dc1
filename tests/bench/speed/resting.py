"""What a relay costs that has nothing to do, and how long one needs from its start to its first message.

Idle: its share of a core, its statements, its memory. Start: from before the process is made until the message that waits is published, by
the archive, and until a consumer has it; the clock is the machine's for all three.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from pamqp import commands
from pamqp.frame import marshal
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from tests.bench.figures import Figure, figure
from tests.bench.speed import kinds
from tests.bench.speed.counters import cpu, resident
from tests.bench.speed.kinds import CHANNEL, QUEUE
from tests.bench.speed.stage import Stage
from tests.bench.speed.wire import connect
from tests.support.relays.processes import Line, RelayProcess

SECONDS = 20.0
"""Of a round with nothing to do."""
IDLE_ROUNDS = 3
"""At the most: they are alike."""
SETTLED = 10.0
"""Seconds after a start in which a relay does what it does rarely, such as making the archive's days."""
PATIENCE = 60.0
IMPORTS = "import relay.cli.main, relay.app.outbox, uvloop"
_CALLS = "SELECT sum(calls)::bigint FROM pg_stat_statements JOIN pg_database AS its ON its.oid = dbid WHERE datname = %s"
_COMMITS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
_PUBLISHED = "SELECT extract(epoch FROM published_at)::float8 FROM queue_message_archive ORDER BY archived_xid DESC LIMIT 1"


class Idle(NamedTuple):
    """A time with nothing to do: percent of a core, statements a second, megabytes (MiB)."""

    cpu: float
    statements: float
    memory: float

    def __str__(self) -> str:
        return f"{self.cpu:.2f} % of a core, {self.statements:.2f} statements a second, {self.memory:.0f} MiB"


class Start(NamedTuple):
    """Seconds from before the process was made until so much was done."""

    started: float
    """The database knows the relay."""
    broker_up: float
    published: float
    consumed: float

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self._asdict().items())


async def measure_idle(stage: Stage, rounds: int) -> list[Figure]:
    """A relay with default settings and an empty queue."""
    url, found = stage.database(), list[Idle]()
    async with stage.relays(url) as [relay]:
        await asyncio.sleep(SETTLED)
        for _ in range(min(rounds, IDLE_ROUNDS)):
            found.append(await _idle(stage, url, relay))
            stage.say(f"idle for {SECONDS:g} s: {found[-1]}")
    return [
        figure("idle relay: CPU", "% of a core", [one.cpu for one in found], most=0.5),
        figure("idle relay: statements", "a second", [one.statements for one in found], most=4),
        figure("idle relay: memory", "MiB", [one.memory for one in found], most=80),
    ]


async def measure_start(stage: Stage, rounds: int) -> list[Figure]:
    """A relay is started while a message waits for it; a first start is not counted."""
    url, found = stage.database(), list[Start]()
    await stage.lay(kinds.SHORT)
    stage.say(await _imports())
    for number in range(rounds + 1):
        one = await _start(stage, url)
        stage.say(f"start: {one}{'' if number else ' (not counted)'}")
        found += [one] if number else []
    return [
        figure("start to registered", "s", [one.started for one in found]),
        figure("start to connected to the broker", "s", [one.broker_up for one in found]),
        figure("start to first publish", "s", [one.published for one in found], most=1.5),
        figure("start to consumer", "s", [one.consumed for one in found]),
    ]


async def _idle(stage: Stage, url: str, relay: RelayProcess) -> Idle:
    name = str(conninfo_to_dict(url)["dbname"])
    used, asked, began = cpu(relay.pid), _statements(stage, name), time.monotonic()
    await asyncio.sleep(SECONDS)
    passed = time.monotonic() - began
    statements = (_statements(stage, name) - asked) / passed
    return Idle((cpu(relay.pid) - used) / passed / 1e4, statements, resident(relay.pid))


def _statements(stage: Stage, database: str) -> int:
    """Count the statements that clients have sent to this database so far, else its transactions; another database answers."""
    missing = (errors.UndefinedFile, errors.FeatureNotSupported, errors.ObjectNotInPrerequisiteState)
    with psycopg.connect(stage.postgres.url, autocommit=True) as connection:
        with suppress(*missing):
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            return _number(connection, _CALLS, database)
        return _number(connection, _COMMITS, database)


def _number(connection: psycopg.Connection[Any], statement: str, *values: object) -> int:
    row = connection.execute(statement, values).fetchone()
    assert row is not None
    return int(row[0])


async def _start(stage: Stage, url: str) -> Start:
    came: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    channel = await connect(stage.rabbitmq.url, lambda _: None if came.done() else came.set_result(time.time()))
    await channel.call(marshal(commands.Basic.Consume(queue=QUEUE, no_ack=True), CHANNEL))
    kinds.SHORT.insert(url, 1)
    began = time.time()
    async with stage.relays(url) as [relay]:
        consumed = await asyncio.wait_for(came, PATIENCE)
        lines = [relay.of("started")[0], relay.of("broker_up")[0]]
        assert await relay.stop() == 0
    channel.close()
    moments = [*map(_moment, lines), _published(url), consumed]
    return Start(*(moment - began for moment in moments))


def _published(url: str) -> float:
    with psycopg.connect(url) as connection:
        row = connection.execute(_PUBLISHED).fetchone()
    assert row is not None
    return float(row[0])


def _moment(line: Line) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()


async def _imports() -> str:
    """How much of a start is Python's and goes into imports; it takes longer than usual because Python writes each one down."""
    command = (sys.executable, "-X", "importtime", "-c", IMPORTS)
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE)
    _, told = await process.communicate()
    return f"imports, the first time: {_own(told.decode().splitlines()):.2f} s"


def _own(lines: Sequence[str]) -> float:
    """Seconds of all modules' own, as `-X importtime` tells them: `import time: OWN | CUMULATIVE | NAME`, in microseconds."""
    own = [line.split(":")[1].split("|")[0].strip() for line in lines if line.startswith("import time:")]
    return sum(int(one) for one in own if one.isdigit()) / 1e6
