"""An attacker with a producer's login, which does harm at random as far as the login allows."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import psycopg
from psycopg import errors, sql

INSERT: Final = (
    "INSERT INTO public.queue_message (exchange, routing_key, content, options) SELECT {}, {}, {}, {} FROM generate_series(1, {}) AS n"
)
READS: Final = (
    "SELECT content FROM public.queue_message",
    "SELECT content FROM public.queue_message_archive",
    "COPY public.queue_message TO STDOUT",
    "SELECT * FROM public.queue_message_state",
    "SELECT content FROM public.queue_message_app",
    "SELECT * FROM public.queue_message_audit",
    "SELECT * FROM page",
    "TABLE public.queue_message_request_row",
)
WRITES: Final = (
    "DELETE FROM public.queue_message",
    "UPDATE public.queue_message SET lock_expires_at = 'infinity'",
    "INSERT INTO public.queue_message (exchange, locked_by) VALUES ('e', 1)",
    "SELECT id FROM public.queue_message FOR UPDATE",
    "SELECT id FROM public.queue_message FOR KEY SHARE",
    "LOCK TABLE public.queue_message IN ACCESS EXCLUSIVE MODE",
    "LOCK TABLE public.queue_message IN SHARE MODE",
    "TRUNCATE public.queue_message",
    "SELECT public.queue_message_pause('{exchange}')",
    "SELECT public.queue_message_cancel(id) FROM public.queue_message",
    "SELECT public.queue_message_answer(id, id, '{{}}') FROM public.queue_message",
    "SET session_replication_role = replica",
    "CREATE TRIGGER mine BEFORE INSERT ON public.queue_message FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'",
    "UPDATE page SET answer = 'forged'",
)
"""What a producer may never do."""
WITH_ID = [
    "INSERT INTO public.queue_message (id, exchange, routing_key, content) VALUES (%s, %s, 'key', '{}') ON CONFLICT DO NOTHING",
    "INSERT INTO public.queue_message_keyed (id, exchange, routing_key, content, coalesce_key) VALUES (%s, %s, 'key', '{}', 'evil')",
    "INSERT INTO public.queue_message_keyed (id, exchange, routing_key, content, bundle_key) VALUES (%s, %s, 'key', '{}', 'evil')",
]
"""Ways to insert with an id of one's choice."""
LOCKS: Final = (
    "SELECT pg_try_advisory_lock(hashtextextended('queue_message gate of public', 0))",
    "SELECT pg_try_advisory_lock_shared(hashtextextended('queue_message gate of public', 0))",
    "SELECT pg_try_advisory_lock(n, hashtext('public')) FROM generate_series(724017720, 724017740) AS n",
    "LOCK TABLE public.queue_message IN ROW EXCLUSIVE MODE",
)
PATHS: Final = (
    "CREATE TEMP TABLE queue_message (id uuid, exchange text)",
    "CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'",
    "SET search_path = pg_temp, public",
    "SET search_path = public, pg_temp",
    "SET relay.notify = 'always'",
    "SET relay.traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'",
    "SET statement_timeout = '1ms'",
    "SET default_transaction_isolation = serializable",
    "RESET ALL",
)
HOSTILE: Final[tuple[dict[str, Any], ...]] = (
    {"headers": {"x-death": 7, "x-delivery-count": "many", "x-received-from": ["text"]}},
    {"headers": {"x-basic-type": 7, "x-cc": 7}},
    {"userId": "somebody"},
    {"CC": ["a"] * 20},
    {"expiration": 0},
    {"mandatory": False, "priority": 255},
    {"replyTo": "x", "messageId": "x"},
    {"headers": {"long": "x" * 100_000}},
    {"headers": {str(number): number for number in range(2000)}},
)


class Attacker:
    """One connection that does something random until it is stopped.

    Args:
        url: login with the role of a producer alone.
        victim: exchange of another producer, to which its messages go.
        chance: what is done.
    """

    def __init__(self, url: str, victim: str, chance: random.Random) -> None:
        self._url, self._victim, self._chance = url, victim, chance
        self.broke_in: list[str] = []
        """What should have been refused and was not."""
        self._actions: list[Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]]] = [
            self._flood, self._miss, self._spoil, self._take_ids, self._hold, self._lock, self._shout, self._redirect, self._break_in,
        ]  # fmt: skip

    async def run(self) -> None:
        """Do harm, on a new connection now and then, until cancelled."""
        while True:
            async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
                for _ in range(self._chance.randint(1, 20)):
                    try:
                        await self._chance.choice(self._actions)(connection)
                    except psycopg.Error:
                        await connection.rollback()

    async def _insert(self, connection: psycopg.AsyncConnection[Any], exchange: str, options: dict[str, Any], count: int) -> None:
        literals = (sql.Literal("key"), sql.SQL("{}::jsonb").format(sql.Literal('{"from": "attacker"}')), sql.Literal(json.dumps(options)))
        name = sql.SQL(exchange) if exchange.startswith("'") else sql.Literal(exchange)
        await connection.execute(sql.SQL(INSERT).format(name, *literals, sql.Literal(count)))

    async def _flood(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await self._insert(connection, self._chance.choice(["amq.fanout", "amq.direct", "no.such.exchange"]), {}, 300)

    async def _miss(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await self._insert(connection, f"'missing.{self._chance.randint(0, 99)}.' || n", {}, 100)

    async def _spoil(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await self._insert(connection, self._chance.choice([self._victim, "amq.headers", "", "amq.topic"]), self._chance.choice(HOSTILE), 5)

    async def _take_ids(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Messages with the ids of others: refused while those wait, and under a key sent with a new id."""
        rows = await (await connection.execute("SELECT id FROM public.queue_message LIMIT 50")).fetchall()
        for (id_,) in rows[:5]:
            await connection.execute(self._chance.choice(WITH_ID).encode(), (id_, self._victim))

    async def _hold(self, connection: psycopg.AsyncConnection[Any]) -> None:
        async with connection.transaction(force_rollback=self._chance.random() < 0.5):
            await self._insert(connection, self._victim, {}, 3)
            await asyncio.sleep(self._chance.random() * 2)

    async def _lock(self, connection: psycopg.AsyncConnection[Any]) -> None:
        async with connection.transaction():
            await connection.execute(self._chance.choice(LOCKS).encode())
            await asyncio.sleep(self._chance.random())

    async def _shout(self, connection: psycopg.AsyncConnection[Any]) -> None:
        channel = self._chance.choice(["queue_message_notify", "dead_message", "queue_message_wake"])
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        await connection.execute("SELECT pg_notify(%s, n::text) FROM generate_series(1, 300) AS n", (channel,))

    async def _redirect(self, connection: psycopg.AsyncConnection[Any]) -> None:
        for statement in self._chance.sample(PATHS, 3):
            await connection.execute(statement.encode())
        await self._insert(connection, "amq.fanout", {}, 1)

    async def _break_in(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """What must be refused for want of a right; a statement that the attacker's own settings spoil says nothing."""
        await connection.execute("RESET ALL")
        for statement in self._chance.sample([*READS, *WRITES], 5):
            try:
                await connection.execute(statement.encode())
            except (errors.InsufficientPrivilege, errors.UndefinedTable, errors.GeneratedAlways):
                continue
            self.broke_in.append(statement)
