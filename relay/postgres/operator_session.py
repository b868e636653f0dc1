"""An operator's connection: runs one command's statements over the schema's views and functions, and reports errors as one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from select import select
from types import MappingProxyType, TracebackType
from typing import Self

import psycopg
from psycopg import errors, sql
from psycopg.pq import PGnotify
from psycopg.rows import DictRow, dict_row

from relay.errors import RelayError, StoreError
from relay.postgres.errors import broken_trigger, no_connection, reason, untranslatable
from relay.postgres.legible_rows import UNREADABLE_LETTERS, legible_rows, read_anything
from relay.postgres.session_settings import ENCODING, pin, unreadable
from relay.queries.statements import Statements, text

_RIGHTS = (
    "Your role lacks a permission: correct RELAY_SCHEMA if that outbox is not yours, or let the schema's owner run `relay grant {} LOGIN`"
)
OPERATOR = _RIGHTS.format("operator")
PRODUCER = _RIGHTS.format("producer")
OWNER = "Your role lacks a permission: run this as the owner of the queue's schema, who must own the other table too"
GRANTOR = "Your role may not grant this: run it as the owner of the queue's schema who made its roles, with CREATEROLE, or as a superuser"
"""Advice for a missing permission."""
FEW = 20
"""How many rows with contents are in memory at a time."""
_NEEDS: Mapping[str, str] = {
    "read_archived_contents": "Your role may not read contents: that takes SELECT on queue_message_archive, "
    "which `relay grant etl LOGIN` gives",
    "read_dead_content": "Your role may not read contents: that takes SELECT on queue_message_dead, which `relay grant etl LOGIN` gives; "
    "or leave out --content",
    "add_schedule": "Your role lacks a permission: that takes `relay grant operator LOGIN` and `relay grant producer LOGIN`",
    **dict.fromkeys(("list_adoptions", "list_adoption_seen", "list_slots"), OWNER),
    **dict.fromkeys(("admit_login", "dismiss_login"), GRANTOR),
}
"""Advice for statements that need more than an operator's role."""
_MIGRATE = "The schema is missing or too old: run `relay migrate`, or correct RELAY_DATABASE_URL and RELAY_SCHEMA"
_ADVICE: Mapping[type[psycopg.Error], str] = {
    errors.UndefinedTable: _MIGRATE,
    errors.UndefinedColumn: _MIGRATE,
    errors.UndefinedFunction: _MIGRATE,
    errors.InvalidSchemaName: _MIGRATE,
    errors.ReadOnlySqlTransaction: "This PostgreSQL is read-only: point RELAY_DATABASE_URL to the primary, or, if it is the "
    "primary, turn default_transaction_read_only off for this role and database",
    errors.LockNotAvailable: "Another session holds a lock that this needs, and nothing was changed: try again; if it comes again, look "
    "for a migration, a long transaction or VACUUM FULL in pg_stat_activity and let it end",
    errors.QueryCanceled: "PostgreSQL cancelled the statement: it took longer than statement_timeout allows, or somebody cancelled it",
    errors.ProgramLimitExceeded: "A value is beyond a limit of PostgreSQL, such as a gigabyte for a text",
    errors.UniqueViolation: "A message with this id is in the queue already",
}
_WAITING_HELPS = ("40", "53", "55P03", "57014")
"""SQLSTATEs, or their beginnings, whose cause is outside the statement: another transaction, a full disk, a lock, a cancellation."""
_VALUES = {"22", "54", "XX"}
"""Classes of SQLSTATE whose cause is a value in a row: not convertible, beyond a limit of PostgreSQL, damaged."""


class RefusedError(RelayError):
    """The database refused the request; the message says why."""


class BusyError(RefusedError):
    """Another session's lock or transaction was in the way, the server lacked room or time, or somebody cancelled the statement.

    The connection still works, and waiting may help.
    """


class UnreadableError(RefusedError):
    """PostgreSQL cannot return a value, or the driver cannot read it."""


class NotFoundError(RelayError):
    """There is no object with that name or id."""

    exit_code = 3


class OperatorSession:
    """One autocommit connection for one command.

    Args:
        conninfo: a libpq connection string or URL; empty for the environment's PG variables.
        schema: where the tables are.
        limits: settings of the session, such as lock_timeout, in PostgreSQL's format; the role's settings apply to all others. Give limits
            only if no pooler lets other clients use the session.

    """

    def __init__(self, conninfo: str, *, schema: str, limits: Mapping[str, str] = MappingProxyType({})) -> None:
        self._conninfo = conninfo
        self._limits = limits
        self._statements = Statements(schema)
        self._notified = False
        self.schema = schema

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            StoreError: PostgreSQL cannot be reached, or refuses the login.
        """
        try:
            self.connection: psycopg.Connection[DictRow] = psycopg.connect(
                self._conninfo,
                autocommit=True,
                application_name="outbox-relay console",
                connect_timeout=10,
                row_factory=dict_row,
                client_encoding=ENCODING,
            )
            self._set_up()
        except psycopg.Error as error:
            raise StoreError(no_connection(error)) from error
        if sentence := unreadable(self.connection.info):
            self.connection.close()
            raise StoreError(sentence)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Disconnect."""
        self.connection.close()

    def _set_up(self) -> None:
        try:
            pin(self.connection)
            read_anything(self.connection)
            self.connection.pgconn.notify_handler = self._note
            if self._limits:
                values = {"names": list(self._limits), "values": list(self._limits.values())}
                self.connection.execute(text("set_settings").encode(), values)
        except psycopg.Error:
            self.connection.close()
            raise

    def rows(self, name: str, /, **values: object) -> list[DictRow]:
        """Run the statement `queries/<name>.sql` and return its rows.

        Raises:
            StoreError: the connection was lost.
            NotFoundError: the database reports that the object does not exist.
            BusyError: a lock of another session was in the way.
            UnreadableError: a value cannot be returned. A letter that UTF-8 lacks does not cause this error, and is read as its bytes.
            RefusedError: the database refused for another reason.
        """
        with translated(_NEEDS.get(name, OPERATOR)):
            try:
                return self.connection.execute(self._statements[name], values).fetchall()
            except UNREADABLE_LETTERS as error:
                return legible_rows(self.connection, error, self._statements[name], values)

    def row(self, name: str, /, **values: object) -> DictRow:
        """The row of a statement that returns exactly one row; raises the errors of `rows`."""
        [found] = self.rows(name, **values)
        return found

    def stream(self, name: str, /, **values: object) -> Iterator[DictRow]:
        """All rows of a statement, read a few at a time in one transaction; raises the errors of `rows`."""
        with self.transaction(needs=_NEEDS.get(name, OPERATOR)) as connection, connection.cursor(name=name) as cursor:
            cursor.itersize = FEW
            yield from cursor.execute(self._statements[name], values)

    def now(self) -> datetime:
        """The database's time; raises the errors of `rows`."""
        found: datetime = self.row("read_now")["now"]
        return found

    @contextmanager
    def transaction(self, *, needs: str = OPERATOR) -> Iterator[psycopg.Connection[DictRow]]:
        """A transaction on the connection; raises the errors of `rows`. `needs` is the advice for a missing permission."""
        with translated(needs), self.connection.transaction():
            yield self.connection

    def listen(self, channel: str) -> None:
        """Receive notifications of a channel from now on; raises the errors of `rows`."""
        with translated():
            self.connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    def wait(self, seconds: float) -> bool:
        """Wait for notifications of any channel, and forget them; False if none arrived in time. Raises the errors of `rows`."""
        with translated():
            self._take_notifications()
            if not self._notified and select([self.connection.fileno()], [], [], seconds)[0]:
                self._take_notifications()
            notified, self._notified = self._notified, False
            return notified

    def _take_notifications(self) -> None:
        self.connection.pgconn.consume_input()
        while notification := self.connection.pgconn.notifies():
            self._note(notification)

    def _note(self, _notification: PGnotify) -> None:
        """Replaces psycopg's own handler, which would keep and decode notifications, although any login may send them."""
        self._notified = True


@contextmanager
def translated(needs: str = OPERATOR) -> Iterator[None]:
    """Turn the driver's errors into one sentence, without the values of rows that DETAIL may quote; `needs` as in `transaction`."""
    try:
        yield
    except psycopg.Error as error:
        raise _translation(error, needs) from error


def _translation(error: psycopg.Error, needs: str) -> RelayError:
    words = reason(error)
    advice = untranslatable(error) or broken_trigger(error)
    if isinstance(error, errors.InsufficientPrivilege) and not advice:
        return RefusedError(f"{needs} ({words}).")
    advice = advice or next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), None)
    if advice:
        return _refused(error)(f"{advice} ({words}).")
    # Without a SQLSTATE the error is the driver's: a connection is lost, or the driver cannot write or read a value.
    if (error.sqlstate is None and not isinstance(error, errors.DataError)) or (error.sqlstate or "")[:2] in {"08", "57"}:
        return StoreError(f"PostgreSQL went away: check that it runs, and try again ({words}).")
    if isinstance(error, errors.NoDataFound):
        return NotFoundError(f"{words}.")
    return _refused(error)(f"{words}.")


def _refused(error: psycopg.Error) -> type[RefusedError]:
    state = error.sqlstate or ""
    if state.startswith(_WAITING_HELPS):
        return BusyError
    return UnreadableError if state[:2] in _VALUES or isinstance(error, errors.DataError) else RefusedError
