"""A connection that runs LISTEN: it receives notifications while it waits, and verifies by test notifications that it receives them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from psycopg.pq import PGnotify

from relay.net.secret_url import Conninfo
from relay.postgres.session import connect
from relay.postgres.session_settings import OWN, PIN, PIN_PATH, path_of
from relay.postgres.timeouts import HEARING, Connection, answered
from relay.queries.statements import Statements

HINTS = b"queue_message_notify"
PROOFS = b"queue_message_proof"
FLOOD = 20_000
"""More notifications than this in one second are too many. Any login may send notifications. libpq keeps all notifications that arrive
before a statement's answer: 2 million cost the relay's event loop three seconds and 100 MB."""


class ListenVerificationError(Exception):
    """A test notification was sent and did not arrive, so LISTEN does not work."""


class FloodError(Exception):
    """Too many notifications arrive."""


class NotificationListener:
    """One LISTEN connection from `open` to `aclose`; used by one task.

    Args:
        conninfo: where to connect. Behind a pooler, LISTEN works only if no other client shares the session.
        application_name: how an operator recognises the connection.
        statements: the relay's SQL.
        on_hint: called at once when a hint arrives.

    """

    def __init__(self, *, conninfo: Conninfo, application_name: str, statements: Statements, on_hint: Callable[[], None]) -> None:
        self._conninfo = conninfo
        self._application_name = application_name
        self._statements = statements
        self._on_hint = on_hint
        self._connection: Connection | None = None
        self._payload = secrets.token_hex(8)
        self._proved = asyncio.Event()
        self._signal = asyncio.Event()
        self._counted_from = 0.0
        self._count = 0

    async def open(self) -> None:
        """Connect, run LISTEN, and receive a first test notification.

        Raises:
            ListenVerificationError: a pooler lets other clients share the session.
            FloodError: there are too many notifications.
            psycopg.Error, TimeoutError: no connection.
        """
        self._connection = connection = await self._connect()
        # psycopg's own handler would decode notifications, which any login may send.
        connection.pgconn.notify_handler = self._heard_before_an_answer
        await self.run("listen_hints")
        await self.run("listen_proofs")
        if await self.run("read_backend") == connection.info.backend_pid:
            await self.prove()
        else:
            await self._prove_from_outside()
        # Not before: on a session that a pooler shares, other clients would get these settings too.
        with answered(connection, HEARING):
            await connection.execute(OWN)

    async def aclose(self) -> None:
        """Close the connection, which releases its locks."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def run(self, name: str, **values: object) -> Any:
        """Run a statement; return the first column of its first row, if any.

        Raises:
            FloodError: too many notifications arrive before the answer.
        """
        assert self._connection is not None
        self._read(self._connection)
        with answered(self._connection, HEARING):
            cursor = await self._connection.execute(self._statements[name], values)
            row = await cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    async def prove(self) -> None:
        """Send a test notification through this session and receive it, which proves that the connection works.

        Raises:
            ListenVerificationError: the test notification did not arrive.
            psycopg.Error, TimeoutError: the connection is lost.
        """
        self._proved.clear()
        await self.run("send_proof", payload=self._payload)
        await self._hear_proof()

    async def wait(self, seconds: float) -> None:
        """Receive notifications until `wake` is called or the time is over.

        Raises:
            FloodError: there are too many notifications.
        """
        assert self._connection is not None
        loop, descriptor = asyncio.get_running_loop(), self._connection.fileno()
        loop.add_reader(descriptor, self._signal.set)
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._signal.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(descriptor)
        self._signal.clear()
        self._read(self._connection)

    def wake(self) -> None:
        """End the current `wait`; without a current one, end the next `wait` at once."""
        self._signal.set()

    async def _connect(self) -> Connection:
        connection = await connect(self._conninfo, self._application_name, prepare_threshold=None)
        try:
            with answered(connection, HEARING):
                await connection.execute(PIN)
                await connection.execute(PIN_PATH, path_of(connection.info))
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _prove_from_outside(self) -> None:
        """Let another session notify while this session is idle: a pooler that shares sessions does not pass the notification on."""
        self._proved.clear()
        other = await self._connect()
        try:
            with answered(other, HEARING):
                await other.execute(self._statements["send_proof"], {"payload": self._payload})
            await self._hear_proof()
        except ListenVerificationError:
            await self.run("unlisten")
            raise
        finally:
            await other.close()

    async def _hear_proof(self) -> None:
        deadline = asyncio.get_running_loop().time() + HEARING
        while not self._proved.is_set():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise ListenVerificationError
            await self.wait(left)

    def _read(self, connection: Connection) -> None:
        connection.pgconn.consume_input()
        hinted = False
        while heard := connection.pgconn.notifies():
            hinted = self._heard(heard) or hinted
        if hinted:
            self._on_hint()
        self._judge(asyncio.get_running_loop().time())

    def _judge(self, now: float) -> None:
        if now >= self._counted_from + 1.0:
            self._counted_from, self._count = now, 0
        elif self._count > FLOOD:
            raise FloodError

    def _heard_before_an_answer(self, heard: PGnotify) -> None:
        if self._heard(heard):
            self._on_hint()

    def _heard(self, heard: PGnotify) -> bool:
        """Handle a notification; return whether it is a hint."""
        self._count += 1
        if heard.relname == PROOFS and heard.extra == self._payload.encode():
            self._proved.set()
        return heard.relname == HINTS
