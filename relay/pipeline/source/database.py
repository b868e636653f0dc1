"""The pipeline's connection to PostgreSQL for small statements: runs one at a time, and turns each error into one sentence."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import Any, Self

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.errors import PipelineError, UnreachableError
from relay.pipeline.source.columns import ArchiveColumn, check_names
from relay.postgres.errors import no_connection, reason, untranslatable
from relay.postgres.session_settings import ENCODING, PATH, pin, pin_path

NAME = "outbox-relay pipeline"
"""The name of the pipeline's connections in pg_stat_activity, unless the conninfo sets another."""
_USUAL = {
    "application_name": NAME,
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""Defaults that a conninfo may override. With these values a dead peer is detected within half a minute."""
CANCEL_SECONDS = 5
"""Seconds that a request to cancel a statement may take. The request has its own connection, which may get no answer."""
_OUTDATED = "The schema is missing or too old: run `relay migrate`, or correct RELAY_PIPELINE_DATABASE_URL and RELAY_SCHEMA"
_SENTENCES: Mapping[type[psycopg.Error], str] = {
    errors.UndefinedTable: _OUTDATED,
    errors.UndefinedColumn: _OUTDATED,
    errors.UndefinedFunction: _OUTDATED,
    errors.InvalidSchemaName: _OUTDATED,
    errors.InsufficientPrivilege: "The pipeline's login lacks a permission: let the schema's owner run `relay grant {role} LOGIN`",
    errors.ReadOnlySqlTransaction: "PostgreSQL is read-only: point RELAY_PIPELINE_DATABASE_URL to the primary for this job",
    errors.QueryCanceled: "PostgreSQL cancelled a statement, for example after RELAY_PIPELINE_SNAPSHOT_SECONDS: see "
    "what holds it up, or set more",
    errors.LockNotAvailable: "Another session holds a lock that this job needs: run it again later",
}
_ETL = "etl"
_ROLES: Mapping[str, str] = dict.fromkeys(("read_replay_ledger", "enqueue_replayed", "read_refusal"), "replayer")
"""Statements that need another role than `etl`."""
GONE = ("57P", "08", "53300")
"""SQLSTATEs, or their first characters, of a lost connection or of a server that accepts no more connections."""


class TooLongError(PipelineError):
    """A statement was cancelled at the time limit, because its snapshot delays the queue's clean-up. A smaller statement may succeed."""


class Database:
    """PostgreSQL with the archive in `schema`.

    It connects at the first statement, and again after a loss of the connection. `repr` does not show the conninfo.

    Args:
        conninfo: a URL or conninfo of libpq; if it is empty, the variables `PG*` apply.
        schema: the schema of the queue's tables.
        connections: how many connections the tasks of a job have open at a time; this object's own connection is not counted.
        snapshot_seconds: how long a statement may hold its snapshot, which delays the queue's clean-up.
        replica: conninfo of a standby from which rows are read.
    """

    def __init__(
        self, conninfo: str, *, schema: str = "public", connections: int = 8, snapshot_seconds: float = 30, replica: str | None = None
    ) -> None:
        self.schema = schema
        self.connections = connections
        self.snapshot_seconds = snapshot_seconds
        self.replica = None if replica is None else Database(replica, schema=schema, snapshot_seconds=snapshot_seconds)
        self._conninfo = conninfo
        self._connection: psycopg.Connection[Any] | None = None

    def fetch(self, name: str, values: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        """Run the statement `queries/<name>.sql` and commit it; return its rows, or an empty list if it has no result.

        Raises:
            UnreachableError: PostgreSQL does not answer.
            TooLongError: PostgreSQL did not finish the statement within `snapshot_seconds`.
            PipelineError: PostgreSQL refused the statement.
        """
        with self.limited(self.snapshot_seconds, role=_ROLES.get(name, _ETL)) as connection:
            cursor = connection.execute(self.statement(name), values)
            return cursor.fetchall() if cursor.description else []

    def one(self, name: str, values: Mapping[str, object] | None = None) -> tuple[Any, ...]:
        """The only row of the statement `queries/<name>.sql`; raises the same errors as `fetch`."""
        [row] = self.fetch(name, values)
        return row

    @contextmanager
    def limited(self, seconds: float, *, role: str = _ETL) -> Iterator[psycopg.Connection[Any]]:
        """The same as `connection`, in a transaction in which each statement is cancelled after `seconds`; 0 means no limit.

        The transaction is needed because behind a PgBouncer in transaction mode no setting outlasts a transaction. Raises the same errors
        as `connection`, and TooLongError.
        """
        begin = time.monotonic()
        try:
            with self.connection(role=role) as connection, connection.transaction():
                connection.execute(self.statement("limit_statement"), {"milliseconds": int(seconds * 1000)})
                yield connection
        except PipelineError as error:
            if isinstance(error.__cause__, errors.QueryCanceled) and 0 < seconds <= time.monotonic() - begin:
                raise TooLongError(str(error)) from error
            raise

    @contextmanager
    def connection(self, *, role: str = _ETL) -> Iterator[psycopg.Connection[Any]]:
        """The autocommit connection, for transactions (`with connection.transaction()`) and COPY.

        Each driver error becomes a PipelineError. If a permission is missing, the sentence names `role` as the role to grant.
        """
        try:
            yield self._connected()
        except psycopg.Error as error:
            if error.sqlstate is None or error.sqlstate.startswith(GONE):
                self.close()
            raise sentence(error, role) from error

    def statement(self, name: str) -> bytes:
        """The text of `queries/<name>.sql` for this schema."""
        return rendered(name, self.schema)

    def columns(self) -> list[ArchiveColumn]:
        """The archive's columns in catalog order; raises the same errors as `fetch`, and PipelineError if no lake can have all of them."""
        columns = [ArchiveColumn(*row) for row in self.fetch("read_columns", {"schema": self.schema})]
        check_names(columns)
        return columns

    def complete_conninfo(self, job: str) -> str:
        """Conninfo for the tasks of a job, also on another machine: it contains the values from `PG*`, a service or a password file."""
        with self.connection() as connection:
            info = connection.info
            secret = {"password": info.password} if info.password else {}
            known = {**info.get_parameters(), "application_name": f"{NAME} {job}", **_parts(self._conninfo), **secret}
            held = {"client_encoding": ENCODING}
            if pin_path(connection):
                held["options"] = f"{known.get('options', '')} -csearch_path={PATH}".strip()
            return make_conninfo("", **{name: value for name, value in known.items() if name not in {"passfile", "service"}} | held)

    def cancel(self) -> None:
        """Cancel the running statement, if there is one; a commit that has begun is still completed."""
        if self._connection is not None:
            request_cancel(self._connection)

    def close(self) -> None:
        """Close the connection, and the replica's; the next statement opens a new one."""
        if self.replica is not None:
            self.replica.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Database(schema={self.schema!r})"

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            conninfo = make_conninfo("", **{**_USUAL, **_parts(self._conninfo), "client_encoding": ENCODING})
            # A PgBouncer in transaction mode may be in between, so nothing is prepared, and only `pin` changes a setting.
            connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
            pin(connection)
            self._connection = connection
        return self._connection


def request_cancel(connection: psycopg.Connection[Any]) -> None:
    """Ask the server to cancel the running statement; if the server does not answer, wait no longer than a few seconds."""
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=CANCEL_SECONDS)


def sentence(error: psycopg.Error, role: str = _ETL) -> PipelineError:
    """A driver's error as one sentence that says what to do, without passwords and values of rows."""
    primary = reason(error)
    advice = untranslatable(error) or next((text for kind, text in _SENTENCES.items() if isinstance(error, kind)), None)
    if advice:
        return PipelineError(f"{advice.format(role=role)} ({primary}).")
    if error.sqlstate is None or error.sqlstate.startswith(GONE):
        return UnreachableError(no_connection(error).replace("RELAY_DATABASE_URL", "RELAY_PIPELINE_DATABASE_URL"))
    return PipelineError(f"PostgreSQL refused a statement with SQLSTATE {error.sqlstate} ({primary}).")


def _parts(conninfo: str) -> dict[str, str]:
    return {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}


def rendered(name: str, schema: str) -> bytes:
    """The statement `queries/<name>.sql` of this package for a schema."""
    quoted = sql.Identifier(schema).as_string(None).replace("%", "%%")
    return _text(name).replace("@schema@", quoted).encode()


@cache
def _text(name: str) -> str:
    return (files("relay.pipeline") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
