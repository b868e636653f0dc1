"""Brings the schema up to date: numbered files of `sql/` in one transaction, only one `migrate` at a time, then steps after the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg import errors

from relay.errors import MigrationError, StoreError
from relay.postgres.errors import dependents, no_connection, read_only, reason
from relay.postgres.legible_rows import read_anything
from relay.postgres.schema.foreign_ids import renumber
from relay.postgres.schema.locks import lock_statement
from relay.postgres.schema.sql_files import Migration, Renderer, migrations, read
from relay.postgres.session_settings import ENCODING, pin, unreadable

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED;"


class SchemaPlace(NamedTuple):
    """A foreign table or view with the name `queue_message`."""

    refusal: str | None
    """Why `migrate` refuses the table; None for a table that `migrate` takes over."""
    rows: int | None
    """How many rows the table has; None if this login may not count them."""


class Applied(NamedTuple):
    """One migration as the database remembers it."""

    version: int
    name: str
    checksum: str


def migrate(
    conninfo: str,
    *,
    schema: str = "public",
    seed: Mapping[str, str] | None = None,
    role_prefix: str | None = None,
    say: Callable[[str], None] | None = None,
) -> list[str]:
    """Bring `schema` up to date and return the names of the migrations that this call applied.

    One transaction changes the schema and grants rights: a database is never left halfway, and an application that inserts meanwhile waits
    and finds the new table. Separate transactions revoke the rights of former roles, schedule the jobs of pg_cron and renumber messages of
    another cluster. A second call at the same time reports that it waits, waits for at most ten minutes, and finds nothing to do.
    Settings of `seed` that the database does not have yet are written. The roles get `role_prefix`; without it they keep their prefix, or
    get a prefix derived from database and schema. `say` is called with messages for operators.

    Raises:
        MigrationError: the schema is newer than this program or belongs to something else, or a statement was refused.
        StoreError: the database cannot be reached.
    """
    render_text = Renderer(schema, seed or {}, role_prefix)
    with _connection(conninfo, say or _silent) as connection, _translated(connection):
        with connection.transaction():
            connection.execute(render_text(read("before.sql")))
            todo = _pending(_read_applied(connection, render_text), say or _silent)
            connection.execute(render_text(lock_statement(todo)))
            for migration in todo:
                _apply(connection, render_text, migration)
            connection.execute(render_text(read("after.sql")))
        with _translated(connection, "the schema is up to date, but what follows is not done"):
            _finish(connection, render_text, say or _silent)
    return [migration.name for migration in todo]


def check(conninfo: str, *, schema: str = "public") -> list[str]:
    """Names of the migrations that `migrate` would apply now. Changes nothing.

    Raises:
        MigrationError: the schema is newer than this program, or may not be read.
        StoreError: the database cannot be reached.
    """
    render_text = Renderer(schema, {})
    with _connection(conninfo, _silent) as connection, _translated(connection):
        try:
            applied = _read_applied(connection, render_text)
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            applied = []
    return [migration.name for migration in _pending(applied, _silent)]


def check_ids(conninfo: str, *, schema: str = "public") -> bool:
    """Whether an up-to-date schema may hold messages or numbers of another cluster, for example after a restore. Changes nothing.

    Raises:
        MigrationError: the schema may not be read.
        StoreError: the database cannot be reached.
    """
    with reading(conninfo, schema) as rows:
        [(foreign,)] = rows("foreign.sql")
    return bool(foreign)


def check_place(conninfo: str, *, schema: str = "public") -> SchemaPlace | None:
    """The table or view with the name `queue_message` before the first migration; None if it does not exist. Changes nothing.

    Raises:
        MigrationError: the schema may not be read.
        StoreError: the database cannot be reached.
    """
    render_text = Renderer(schema, {})
    with _connection(conninfo, _silent) as connection, _translated(connection):
        found = connection.execute(render_text(read("found.sql"))).fetchone()
        if found is None:
            return None
        if found[0] is not None:
            # Names of columns may contain line breaks.
            return SchemaPlace(refusal=" ".join(found[0].split()), rows=None)
        try:
            [(rows,)] = connection.execute(render_text(read("found_rows.sql"))).fetchall()
        except errors.InsufficientPrivilege:
            rows = None
    return SchemaPlace(refusal=None, rows=rows)


@contextmanager
def reading(conninfo: str, schema: str, role_prefix: str | None = None) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Yields a function that runs a read-only file of `sql/` and returns its rows.

    Raises:
        MigrationError: the schema may not be read.
        StoreError: the database cannot be reached.
    """
    render_text = Renderer(schema, {}, role_prefix)
    with _connection(conninfo, _silent) as connection, _translated(connection):
        yield lambda name: connection.execute(render_text(read(name))).fetchall()


def render(
    *, schema: str = "public", seed: Mapping[str, str] | None = None, role_prefix: str | None = None, names: Iterable[str] | None = None
) -> str:
    """The SQL of `migrate` for psql: all of it for a new schema, or only the migrations `names` (as `check` returns them)."""
    render_text = Renderer(schema, seed or {}, role_prefix)
    wanted = None if names is None else set(names)
    todo = [migration for migration in migrations() if wanted is None or migration.name in wanted]
    parts = [read("before.sql"), lock_statement(todo)]
    for migration in todo:
        parts += [migration.text, _record(migration)]
    parts += [read("after.sql"), "COMMIT;", BEGIN, read("former.sql"), "COMMIT;", read("cron.sql")]
    return "\n".join(["\\set ON_ERROR_STOP on", BEGIN, *(render_text(part).decode() for part in parts)])


def _apply(connection: psycopg.Connection, render_text: Renderer, migration: Migration) -> None:
    try:
        connection.execute(render_text(migration.text))
    except (errors.InsufficientPrivilege, errors.LockNotAvailable, errors.RaiseException):
        raise
    except errors.DependentObjectsStillExist as error:
        raise MigrationError(
            f"Migration {migration.name} failed and nothing was changed: {reason(error)}. Drop what depends on it, and run "
            f"`relay migrate` again: {dependents(error)}."
        ) from error
    except psycopg.Error as error:
        raise MigrationError(f"Migration {migration.name} failed and nothing was changed: {reason(error)}.") from error
    connection.execute(render_text(_record(migration)))


def _finish(connection: psycopg.Connection, render_text: Renderer, say: Callable[[str], None]) -> None:
    """Run the steps that follow the commit at every call, in separate transactions."""
    with connection.transaction():
        connection.execute(render_text(read("former.sql")))
    connection.execute(render_text(read("cron.sql")))
    renumber(connection, render_text(read("unlimited.sql")), render_text(read("renumber.sql")), say)


def _record(migration: Migration) -> str:
    """The INSERT that records a migration; name and checksum come from the program's own files."""
    values = f"({migration.version}, '{migration.name}', '{migration.checksum}')"
    return read("record.sql").replace("@values@", values)


def _read_applied(connection: psycopg.Connection, render_text: Renderer) -> list[Applied]:
    return [Applied(*row) for row in connection.execute(render_text(read("applied.sql")))]


def _pending(applied: list[Applied], say: Callable[[str], None]) -> list[Migration]:
    known = {migration.version: migration for migration in migrations()}
    newest = max((row.version for row in applied), default=0)
    if newest > max(known):
        raise MigrationError(
            f"The schema is at version {newest} and this relay knows {max(known)}: install the outbox-relay that made it, or a newer one."
        )
    for row in applied:
        if row.version in known and known[row.version].checksum != row.checksum:
            say(f"Migration {row.name} was applied from another text than this program carries; it is not run again.")
    done = {row.version for row in applied}
    return [migration for version, migration in known.items() if version not in done]


def _silent(_: str) -> None:
    """Say nothing."""


@contextmanager
def _connection(conninfo: str, say: Callable[[str], None]) -> Iterator[psycopg.Connection]:
    try:
        connection = psycopg.connect(
            conninfo, autocommit=True, application_name="outbox-relay migrate", connect_timeout=10, client_encoding=ENCODING
        )
        pin(connection)
    except psycopg.Error as error:
        raise StoreError(no_connection(error)) from error
    read_anything(connection)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.add_notice_handler(lambda notice: say(notice.message_primary or ""))
    with connection:
        if sentence := unreadable(connection.info):
            raise MigrationError(sentence)
        yield connection


@contextmanager
def _translated(connection: psycopg.Connection, state: str = "nothing was changed") -> Iterator[None]:
    """Turn the driver's errors into one sentence that says what was done and what to do."""
    try:
        yield
    except (errors.UndefinedTable, errors.InvalidSchemaName, errors.RaiseException) as error:
        raise MigrationError(reason(error)) from error
    except errors.InsufficientPrivilege as error:
        raise MigrationError(
            f"Not allowed ({reason(error)}): run `relay migrate` as the owner of the schema, or hand `relay migrate --sql` to who is."
        ) from error
    except errors.ReadOnlySqlTransaction as error:
        raise MigrationError(f"{read_only(connection.info)} ({reason(error)}).") from error
    except errors.LockNotAvailable as error:
        raise MigrationError(
            f"Another transaction holds what must change, and {state}: find it in pg_locks and pg_stat_activity, and run "
            "`relay migrate` again when it has ended."
        ) from error
    except psycopg.OperationalError as error:
        raise StoreError(f"PostgreSQL went away and {state}: {reason(error)}; run `relay migrate` again.") from error
    except psycopg.Error as error:
        raise MigrationError(f"The database refused and {state}: {reason(error)}.") from error
