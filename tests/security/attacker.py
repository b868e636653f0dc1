"""An attacker with a producer's login, which does harm at random as far as the login allows."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import errors, sql

from tests.security.attacks import CHANNELS, COLUMNS, HOSTILE, KEYS, LARGE, LOCKS, PATHS, READS, WITH_ID, WRITES

INSERT: Final = sql.SQL("INSERT INTO public.{} ({}) SELECT {} FROM generate_series(1, {}) AS n")
SIGNED: Final = """'{"from": "attacker"}'::jsonb"""
NOWHERE: Final = ("amq.fanout", "amq.direct", "no.such.exchange")
"""Exchanges that lead to no queue."""
Connection = psycopg.AsyncConnection[Any]


class Attacker:
    """One connection that does something random until it is stopped.

    Args:
        url: login with the role of a producer alone.
        victims: exchanges of another producer, to which its messages go.
        guessed: ids that another producer will give its messages.
        dead: the id of another producer's dead message.
        chance: what is done.
    """

    def __init__(self, url: str, victims: Sequence[str], guessed: Sequence[UUID], dead: UUID, chance: random.Random) -> None:
        self._url, self._victims, self._guessed, self._dead, self._chance = url, victims, guessed, dead, chance
        self._seen: list[UUID] = []
        self.broke_in: list[str] = []
        """What should have been refused and was not."""
        self.did: dict[str, int] = {}
        """How often it did what, and was not refused."""
        self._actions: list[Callable[[Connection], Awaitable[None]]] = [
            self._flood, self._miss, self._spoil, self._swell, self._take_ids, self._use_ids_again, self._guess_ids, self._shape,
            self._take_a_dead_one, self._use_keys, self._hold, self._hold_many, self._lock, self._queue_up, self._read_serializable,
            self._borrow_role, self._shout, self._redirect, self._break_in,
        ]  # fmt: skip

    async def run(self) -> None:
        """Do harm, on a new connection now and then, until cancelled."""
        while True:
            async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
                for _ in range(self._chance.randint(1, 20)):
                    await self._try(connection, self._chance.choice(self._actions))

    async def _try(self, connection: Connection, action: Callable[[Connection], Awaitable[None]]) -> None:
        try:
            await action(connection)
            self.did[action.__name__] = self.did.get(action.__name__, 0) + 1
        except* psycopg.Error:
            await connection.rollback()

    async def _insert(
        self, connection: Connection, exchange: str, count: int, *, table: str = "queue_message", given: Mapping[str, str] | None = None
    ) -> None:
        """Insert messages; the exchange and what else is given are SQL expressions of their number `n`."""
        columns = {"exchange": exchange, "routing_key": "'key'", "content": SIGNED, **(given or {})}
        names, values = [sql.SQL(", ").join(map(sql.SQL, each)) for each in (columns.keys(), columns.values())]
        await connection.execute(INSERT.format(sql.SQL(table), names, values, sql.Literal(count)))

    def _one_of(self, *exchanges: str) -> str:
        return f"'{self._chance.choice(exchanges)}'"

    async def _flood(self, connection: Connection) -> None:
        await self._insert(connection, self._one_of(*NOWHERE), self._chance.choice([300, 300, 3000]))

    async def _miss(self, connection: Connection) -> None:
        await self._insert(connection, f"'missing.{self._chance.randint(0, 99)}.' || n", 100)

    async def _spoil(self, connection: Connection) -> None:
        options = f"'{json.dumps(self._chance.choice(HOSTILE))}'"
        await self._insert(connection, self._one_of(*self._victims, "amq.headers", "", "amq.topic"), 5, given={"options": options})

    async def _swell(self, connection: Connection) -> None:
        exchange = self._one_of(*self._victims, *NOWHERE)
        await self._insert(connection, exchange, 3, given={"content": self._chance.choice(LARGE)})

    async def _take_ids(self, connection: Connection) -> None:
        """Messages with the ids of others: refused while those wait, and under a key sent with a new id."""
        rows = await (await connection.execute("SELECT id FROM public.queue_message LIMIT 50")).fetchall()
        self._seen = [*self._seen, *(id_ for (id_,) in rows)][-1000:]
        await self._insert_ids(connection, [id_ for (id_,) in rows[:5]], *WITH_ID)

    async def _use_ids_again(self, connection: Connection) -> None:
        """Ids of messages that have left the queue by now, and the ids of the attacker's own among them."""
        await self._insert_ids(connection, self._chance.sample(self._seen, min(5, len(self._seen))), *WITH_ID)

    async def _guess_ids(self, connection: Connection) -> None:
        """Ids that a message will have which waits under its key: it is sent with a new one."""
        await self._insert_ids(connection, self._chance.sample(self._guessed, min(5, len(self._guessed))), WITH_ID[0])

    async def _take_a_dead_one(self, connection: Connection) -> None:
        """The id of a dead message, in the queue and under a key: what is sent with a new id counts as no replay of it."""
        for statement in WITH_ID[:2]:
            await self._insert_ids(connection, [self._dead], statement)

    async def _insert_ids(self, connection: Connection, ids: Sequence[UUID], *statements: str) -> None:
        for id_ in ids:
            await connection.execute(self._chance.choice(statements).encode(), (id_, self._chance.choice(self._victims)))

    async def _shape(self, connection: Connection) -> None:
        await self._insert(connection, self._one_of(*self._victims, *NOWHERE), 20, given=self._chance.choice(COLUMNS))

    async def _use_keys(self, connection: Connection) -> None:
        exchange = self._one_of(*self._victims, *NOWHERE)
        await self._insert(connection, exchange, 50, table="queue_message_keyed", given=self._chance.choice(KEYS))

    async def _hold(self, connection: Connection) -> None:
        async with connection.transaction(force_rollback=self._chance.random() < 0.5):
            await self._insert(connection, self._one_of(*self._victims), 3)
            await asyncio.sleep(self._chance.random() * 2)

    async def _hold_many(self, connection: Connection) -> None:
        """So many that claims must go past them, while the transaction is open and after its rollback."""
        async with connection.transaction(force_rollback=True):
            await self._insert(connection, self._one_of(*self._victims, *NOWHERE), 5000, given=self._chance.choice(COLUMNS))
            await asyncio.sleep(self._chance.random())

    async def _lock(self, connection: Connection) -> None:
        async with connection.transaction():
            await connection.execute(self._chance.choice(LOCKS).encode())
            await asyncio.sleep(self._chance.random())

    async def _queue_up(self, connection: Connection) -> None:
        """Hold up everybody for a moment: a second session asks for the table alone, and is refused when the first one ends."""
        connect = psycopg.AsyncConnection.connect
        async with await connect(self._url, autocommit=True) as second, asyncio.TaskGroup() as group, connection.transaction():
            await connection.execute("SELECT count(id) FROM public.queue_message")
            group.create_task(self._ask_for_the_table(second))
            await asyncio.sleep(self._chance.random() / 2)

    async def _ask_for_the_table(self, connection: Connection) -> None:
        try:
            await connection.execute("CREATE RULE mine AS ON INSERT TO public.queue_message DO INSTEAD NOTHING")
        except errors.InsufficientPrivilege:
            return
        self.broke_in.append("CREATE RULE")

    async def _read_serializable(self, connection: Connection) -> None:
        async with connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            await connection.execute("SELECT count(id) FROM public.queue_message")
            await asyncio.sleep(self._chance.random() * 2)

    async def _borrow_role(self, connection: Connection) -> None:
        """Change the role itself as its members may; the role belongs to the server, so this is undone."""
        async with connection.transaction(force_rollback=True):
            await connection.execute("SELECT set_config('role', public.queue_message_role('producer'), true)")
            await connection.execute("ALTER ROLE CURRENT_USER SET statement_timeout = '1ms'")
            await connection.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC")

    async def _shout(self, connection: Connection) -> None:
        channel, count = self._chance.choice(CHANNELS), self._chance.choice([300, 300, 30_000])
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        await connection.execute("SELECT pg_notify(%s, n::text) FROM generate_series(1, %s) AS n", (channel, count))

    async def _redirect(self, connection: Connection) -> None:
        for statement in self._chance.sample(PATHS, 3):
            await connection.execute(statement.encode())
        await self._insert(connection, "'amq.fanout'", 1)

    async def _break_in(self, connection: Connection) -> None:
        """What must be refused for want of a right; a statement that the attacker's own settings spoil says nothing."""
        await connection.execute("RESET ALL")
        for statement in self._chance.sample([*READS, *WRITES], 5):
            try:
                await connection.execute(statement.encode())
            except (errors.InsufficientPrivilege, errors.UndefinedTable, errors.GeneratedAlways):
                continue
            self.broke_in.append(statement)
