"""A PostgreSQL connection that is opened when it is needed, reopened after a loss, and reports errors as one sentence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import psycopg
from psycopg import errors

from relay.errors import NewConnectionError, StoreError
from relay.net.secret_url import Conninfo, current
from relay.net.transport_security import postgres_risk
from relay.postgres.errors import read_only, reason
from relay.postgres.session_settings import DEFAULTS, ENCODING, OWN, PIN_PATH, PINNED, path_of, unreadable
from relay.postgres.store_errors import store_error
from relay.postgres.timeouts import CHORE, HEARING, Connection, answered
from relay.queries.statements import text

KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000, "connect_timeout": 10}
"""With these parameters a dead peer is noticed within half a minute (libpq, "Parameter Key Words")."""

BY_INDEX = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_generic_plan",
    "max_parallel_workers_per_gather": "0",
}
"""Settings for statements that are written for one index. A table has no statistics after the first big insert or a restore; the planner
would then read the whole table for each claim (measured: 130 ms instead of 4 over 200,000 messages). With one access path left, a plan is
made once and kept: planning a claim takes 0.6 ms, as long as 50 messages of the claim."""
IN_ORDER = {"enable_sort": "off"}
"""Settings for all other statements, of which a scan's pages are the most frequent. An index gives a page in its order. Without statistics
PostgreSQL would read and sort the whole table for each page (measured: 7,200 blocks instead of 360 over 200,000 messages)."""

ALWAYS = {"lock_timeout": "1s", "jit": "off"}
"""No statement of a relay may wait long for a lock of another session, because other statements wait for it. No statement is worth
compiling (`jit`): a disabled kind of scan makes a plan look expensive, and PostgreSQL then compiles for a quarter of a second of CPU."""
_SILENT = (
    "PostgreSQL did not answer a statement within {:g} seconds, and the relay reconnects: see whether the server hangs, or whether a "
    "pooler, a proxy or a firewall on the way has lost the connection."
)
_NO_UTF8 = "A name or key in the answer holds bytes that are no UTF-8: relays archive such a message, with the code content_unprintable."
_SET = text("set_settings").encode()
REASONS = ("details", "errors")
"""Parameters that contain reasons of failures, perhaps with letters that the database's encoding lacks."""
NOT_THIS_SERVER = ("25006", "57P", "08")
"""SQLSTATEs, or their beginnings, after which only a new connection helps: read-only, shutting down, connection failure."""


class Session:
    """One autocommit connection; statements of several tasks take turns.

    Args:
        conninfo: where to connect.
        application_name: how an operator recognises the connection.
        prepare: whether statements may be prepared, and settings stay in force for the session.
        settings: settings in addition to those of every session.
        answer: seconds without an answer after which a statement and its connection count as lost; `CHORE` by default.

    """

    def __init__(
        self,
        conninfo: Conninfo,
        *,
        application_name: str,
        prepare: bool = True,
        settings: Mapping[str, str] | None = None,
        answer: Callable[[], float] | None = None,
    ) -> None:
        self._conninfo = conninfo
        self._application_name = application_name
        self._prepare = prepare
        # A pooler in transaction mode, for which no statement is prepared, would pass the settings on to other clients.
        self._settings = {**DEFAULTS, **ALWAYS, **(settings or {})} if prepare else {}
        self._answer = answer or (lambda: CHORE)
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._known: Connection | None = None
        """The connection on which the caller's positions were found."""
        self._first = True
        self.took = 0.0
        """Seconds that the last statement took, without the wait for its turn."""

    async def open(self) -> None:
        """Connect if there is no connection; raises the errors of `fetch`."""
        if self._connection is None or self._connection.closed:
            await self.fetch(b"SELECT 1", {})

    async def fetch(
        self, statement: bytes, values: Mapping[str, object], *, by_position: bool = False, escaped: Collection[str] = REASONS
    ) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; a statement without a result returns no rows.

        Args:
            statement: the SQL, with psycopg's placeholders.
            values: the parameters by name.
            by_position: whether the values contain positions that earlier statements found, which are invalid on another server.
            escaped: names of texts, or of lists of texts, that are sent in ASCII if the database's encoding lacks a character.

        Raises:
            NewConnectionError: the positions were found on an earlier connection; raised once for each new connection, and nothing was run.
            StoreError: the statement failed, or its outcome is not known.
        """
        async with self._turn:
            began = time.monotonic()
            try:
                if by_position:
                    await self._expect_known()
                return await self._run(statement, values, escaped)
            except NewConnectionError:
                raise
            except psycopg.Error as error:
                # Not kept in a variable: frame and error would refer to each other, and keep megabytes of the server's words in memory.
                raise await self._failed(error) from error
            except UnicodeDecodeError:
                # The error's text quotes the row; the statement itself has succeeded.
                raise StoreError(_NO_UTF8, refused=True, unprintable=True) from None
            except TimeoutError as error:
                await self._drop()
                raise StoreError(_SILENT.format(*error.args), unanswered=True) from error
            except BaseException:
                # Cancelled in the middle of a statement: the connection's state is not known.
                await self._drop()
                raise
            finally:
                self.took = time.monotonic() - began

    def forget_positions(self) -> None:
        """Refuse the next statement by position once, because a pooler has changed the server behind the same connection."""
        self._known = None

    async def _expect_known(self) -> None:
        known, self._known = self._known, await self._connected()
        if known is not self._known:
            raise NewConnectionError("The connection to PostgreSQL is new: what was found on the last one is looked for again.")

    async def aclose(self) -> None:
        """Close the connection; the next statement opens a new one."""
        async with self._turn:
            await self._drop()

    async def _run(self, statement: bytes, values: Mapping[str, object], escaped: Collection[str]) -> list[tuple[Any, ...]]:
        try:
            return await self._execute(statement, values)
        except errors.UntranslatableCharacter:
            plain = {name: _in_ascii(value) if name in escaped else value for name, value in values.items()}
            if plain == values:
                raise
            return await self._execute(statement, plain)

    async def _execute(self, statement: bytes, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        connection = await self._connected()
        async with connection.cursor(binary=True) as cursor:
            with answered(connection, self._answer()):
                await cursor.execute(statement, values)
            return await cursor.fetchall() if cursor.description else []

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            try:
                connection = await connect(self._conninfo, self._application_name, prepare_threshold=0 if self._prepare else None)
            except UnicodeError as error:
                raise StoreError("RELAY_DATABASE_URL names a host that no resolver can be asked for: correct its name.") from error
            self._connection = await self._settled(connection)
            if self._first:
                self._known, self._first = self._connection, False
        return self._connection

    async def _settled(self, connection: Connection) -> Connection:
        """The connection with its session settings; if these cannot be set, the connection is closed."""
        settings = {**PINNED, **self._settings}
        if sentence := unreadable(connection.info):
            await connection.close()
            raise StoreError(sentence)
        try:
            with answered(connection, self._answer()):
                await connection.execute(PIN_PATH, path_of(connection.info), prepare=False)
                if self._prepare:
                    await connection.execute(OWN, prepare=False)
                await connection.execute(_SET, {"names": [*settings], "values": [*settings.values()]}, prepare=False)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _failed(self, error: psycopg.Error) -> StoreError:
        """The error for the caller; closes the connection if only a new connection helps."""
        sentence = self._store_error(error)
        if (error.sqlstate or "").startswith(NOT_THIS_SERVER):
            await self._drop()
        return sentence

    def _store_error(self, error: psycopg.Error) -> StoreError:
        if isinstance(error, errors.ReadOnlySqlTransaction) and self._connection is not None:
            return StoreError(f"{read_only(self._connection.info)} ({reason(error)}).")
        return store_error(error)

    async def _drop(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


async def connect(conninfo: Conninfo, application_name: str, *, prepare_threshold: int | None) -> Connection:
    """A connection whose loss is noticed, and on which texts are UTF-8; the caller makes all other settings.

    A `DatabaseTarget` supplies the current parameters, and its callback gets a sentence if the connection is unsafe.

    Raises:
        psycopg.Error: no connection.
        UnicodeError: the host's name cannot be encoded for a resolver.
    """
    connection = await Connection.connect(
        conninfo if isinstance(conninfo, str) else current(conninfo.secret),
        autocommit=True,
        application_name=application_name,
        prepare_threshold=prepare_threshold,
        client_encoding=ENCODING,
        **KEEPALIVE,  # type: ignore[arg-type]
    )
    if not isinstance(conninfo, str) and (risk := await _risk(connection)):
        conninfo.on_risk(risk)
    return connection


async def _risk(connection: Connection) -> str | None:
    """What is unsafe about this connection, as libpq reports it, whether conninfo, `PG*` variables or a service file caused it."""
    info = connection.info
    sslmode = info.get_parameters().get("sslmode", "prefer")
    risk = postgres_risk(host=info.host, address=info.hostaddr, encrypted=connection.pgconn.ssl_in_use, sslmode=sslmode)
    return risk if risk and not await _kerberos(connection) else None


async def _kerberos(connection: Connection) -> bool:
    """Whether GSSAPI encrypts the session, which also proves the server's identity. libpq reports only that the login used GSSAPI."""
    try:
        if not connection.pgconn.used_gssapi:
            return False
        with answered(connection, HEARING):
            cursor = await connection.execute(text("read_encrypted").encode(), prepare=False)
            return (True,) == await cursor.fetchone()
    except (psycopg.Error, TimeoutError):
        return False


def _in_ascii(value: object) -> object:
    """The text, or list of texts, with a code in place of each letter that is not ASCII."""
    if isinstance(value, str):
        return value.encode("ascii", "backslashreplace").decode()
    return [_in_ascii(each) for each in value] if isinstance(value, list) else value
