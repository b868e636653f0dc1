"""What each role may do: what docs/grants.md says, asked of the catalogue and tried by a real login; and no SQL is made of data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg import errors, sql

from relay.postgres.schema.migrate import migrate
from tests import ROOT
from tests.support.pages import function_docs, grants
from tests.support.pages.doc_tables import written
from tests.support.pages.grants import ROLES
from tests.support.servers.logins import login, own_role

COLUMNS = """SELECT c.relname, a.attname, c.relispartition FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
        AND attnum > 0 AND NOT attisdropped ORDER BY 1, attnum"""
FUNCTIONS = """SELECT proname::text, oidvectortypes(proargtypes) FROM pg_proc
    WHERE pronamespace = 'outbox'::regnamespace AND prorettype <> 'trigger'::regtype ORDER BY 1"""
NEVER = (errors.ObjectNotInPrerequisiteState, errors.GeneratedAlways, errors.FeatureNotSupported, errors.WrongObjectType)
"""Errors of a view that takes no rows and of a column that takes no value: no role may, whatever was granted."""
OF_VALUES = {
    "GRANT %s TO %s": "what was granted is quoted by queue_message_grants(), the grantee by who calls",
    "REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC": "a regprocedure",
    "%s": "a statement of queue_message_role_statements(), which quotes names by %I and comments by %L",
    "REVOKE ALL ON %s %s FROM %I": "a kind of object, and a name that the catalogue has quoted",
    "LOCK TABLE %s IN ACCESS EXCLUSIVE MODE": "a regclass",
    "INSERT INTO %I.queue_message (id, exchange, routing_key, content, options) SELECT %s FROM %s ORDER BY ctid": "a constant, a regclass",
    "DELETE FROM %s": "a regclass",
    "COMMENT ON TABLE %s IS %L": "a regclass",
    "ALTER VIEW %s OWNER TO %I": "a name that relay.adopt has quoted",
    "GRANT %s%s ON %s TO %s": "a privilege's name, columns quoted by format(), a name that relay.adopt has quoted, a regrole",
    "SELECT * FROM %s ORDER BY ctid": "a regclass",
    "CREATE TRIGGER queue_message_request_insert AFTER INSERT ON %s FOR EACH ROW EXECUTE FUNCTION %I.queue_message_request_insert()": (
        "a regclass"
    ),
    "CREATE TRIGGER queue_message_request_update AFTER UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION %I.queue_message_request_update()": (
        "a regclass"
    ),
    "DROP TRIGGER IF EXISTS queue_message_request_insert ON %s": "a regclass",
    "DROP TRIGGER IF EXISTS queue_message_request_update ON %s": "a regclass",
    (
        "CREATE TRIGGER queue_message_letters AFTER INSERT OR UPDATE OF %1$s ON %2$I.%3$I FOR EACH ROW\n"
        "            EXECUTE FUNCTION %2$I.queue_message_letters_check(%4$s)"
    ): "columns that the migration names, by quote_ident() and quote_literal()",
    "UPDATE ONLY %s AS t SET %I = $1 WHERE %s": "quoted by queue_message_request_name(), queue_message_request_where()",
    "UPDATE ONLY %s AS t SET (%s) = (SELECT %s FROM jsonb_populate_record(t, $1) AS v)%s WHERE %s": "as above, columns by quote_ident()",
    "SELECT FROM jsonb_to_record($1) AS v (%1$I %2$s) WHERE v.%1$I IS NULL": "a type of the catalogue's",
}
"""Where the schema's SQL puts something in unquoted, and why that is no data."""


@pytest.fixture
def outbox(empty_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The superuser in a database whose schema has a name of its own, and on which no right was granted before."""
    migrate(empty_database_url, schema="outbox")
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        yield connection


def test_the_page_says_exactly_what_the_catalogue_has(outbox: psycopg.Connection[Any]) -> None:
    """One grant too many, one too few, one to PUBLIC or one with grant option fails: run `python -m tests.support.pages.grants` again."""
    assert sorted(grants.documented()) == sorted(grants.found(outbox))


def test_the_page_of_functions_has_their_arguments_and_callers(outbox: psycopg.Connection[Any]) -> None:
    """`python -m tests.support.pages.function_docs` writes it."""
    assert function_docs.table(outbox) == written(*function_docs.PLACE)


def test_roles_own_nothing_and_are_nobody_special(outbox: psycopg.Connection[Any]) -> None:
    """No login, no attribute, no membership, no object, no default privilege: their grants are all they have."""
    special = "rolsuper OR rolcreaterole OR rolcreatedb OR rolcanlogin OR rolreplication OR rolbypassrls"
    assert [] == outbox.execute(f"SELECT rolname FROM pg_roles WHERE rolname LIKE 'queue_message%' AND ({special})".encode()).fetchall()
    member = "SELECT roleid::regrole FROM pg_auth_members WHERE member = ANY (%s::regrole[])"
    roles = [own_role(outbox, kind) for kind in ROLES]
    assert [] == outbox.execute(member.encode(), (roles,)).fetchall()
    owned = "SELECT objid FROM pg_shdepend WHERE deptype = 'o' AND refclassid = 'pg_authid'::regclass AND refobjid = ANY (%s::regrole[])"
    assert [] == outbox.execute(owned.encode(), (roles,)).fetchall()


class Trial(NamedTuple):
    """One thing to try: the statement, and the grants of which one is needed."""

    statement: sql.Composed
    needs: frozenset[tuple[str, str]]


def _trials(connection: psycopg.Connection[Any]) -> Iterator[Trial]:
    seen = set()
    for table, column, is_partition in connection.execute(COLUMNS.encode()).fetchall():
        first = table not in seen
        seen.add(table)
        if first:
            yield _trial("EXPLAIN DELETE FROM outbox.{}", table, None, "DELETE")
            yield _trial("TRUNCATE outbox.{}", table, None, "TRUNCATE")
        if first or not is_partition:
            yield _trial("EXPLAIN SELECT {1} FROM outbox.{0}", table, column, "SELECT")
            yield _trial("EXPLAIN INSERT INTO outbox.{0} ({1}) VALUES (DEFAULT)", table, column, "INSERT")
            yield _trial("EXPLAIN UPDATE outbox.{0} SET {1} = DEFAULT", table, column, "UPDATE")
    for name, arguments in connection.execute(FUNCTIONS.encode()).fetchall():
        yield _call(name, [kind for kind in arguments.split(", ") if kind])


def _trial(statement: str, table: str, column: str | None, privilege: str) -> Trial:
    needs = {(privilege, table), (privilege, f"{table}.{column}")}
    names = [sql.Identifier(name) for name in (table, column) if name]
    return Trial(sql.SQL(statement).format(*names), frozenset(needs))


def _call(name: str, kinds: list[str]) -> Trial:
    """A call that is planned and begun, and not made: its arguments come from a table that stays unread."""
    columns = ", ".join(f"NULL::{kind} AS a{number}" for number, kind in enumerate(kinds)) or "1 AS a"
    arguments = ", ".join(f"given.a{number}" for number in range(len(kinds)))
    statement = f"EXPLAIN SELECT outbox.{{}}({arguments}) FROM (SELECT {columns} OFFSET 0) AS given"
    return Trial(sql.SQL(statement).format(sql.Identifier(name)), frozenset({("EXECUTE", f"{name}()")}))


def _may(connection: psycopg.Connection[Any], trial: Trial) -> bool | None:
    """Whether this login may; None where no role may."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(trial.statement)
    except errors.InsufficientPrivilege:
        return False
    except NEVER:
        return None
    return True


@pytest.mark.parametrize("role", [*ROLES, "nobody"])
def test_a_real_login_may_do_what_the_page_says_and_nothing_else(
    outbox: psycopg.Connection[Any], empty_database_url: str, role: str
) -> None:
    """Every column of every table to read, insert and change, every table to empty, every function to call."""
    trials = list(_trials(outbox))
    given = {(privilege, on) for holder, privilege, on in grants.documented() if holder == role}
    with login(empty_database_url, *([] if role == "nobody" else [role])) as url, psycopg.connect(url, autocommit=True) as connection:
        wrong = [
            (trial.statement.as_string(None), may)
            for trial in trials
            if (may := _may(connection, trial)) is not None and may != bool(trial.needs & given)
        ]
    assert [] == wrong
    assert len(trials) > 500


def _places(text: str) -> list[str]:
    """The first argument of each EXECUTE that is made while a function runs."""
    code = re.sub(r"--.*", "", text)
    return re.findall(r"\bEXECUTE\s+(?!FUNCTION|ON\b|FROM\b)(format\('(?:[^']|'')*'|'(?:[^']|'')*'|\S+)", code)


@pytest.mark.parametrize("file", sorted([*ROOT.glob("sql/*.sql"), *ROOT.glob("relay/**/*.sql")]), ids=lambda file: file.name)
def test_sql_that_is_made_at_run_time_quotes_what_it_is_made_of(file: Path) -> None:
    """Constants, or format() with %I and %L; where it says %s, what comes there is no data."""
    for place in _places(file.read_text(encoding="utf-8")):
        text = place.removeprefix("format(").strip("'")
        assert place.startswith(("format('", "'")), place
        assert text in OF_VALUES or not re.search(r"%(?:\d+\$)?[^\d%IL]", text), place


def test_every_exception_is_still_there() -> None:
    """A reason that no statement needs any more is taken away."""
    text = "".join(path.read_text(encoding="utf-8") for path in (*ROOT.glob("sql/*.sql"), *ROOT.glob("relay/**/*.sql")))
    assert set() == {statement for statement in OF_VALUES if f"'{statement}'" not in text}


RUNS = {"execute", "executemany", "copy", "SQL", "mogrify"}
GLUED = (ast.JoinedStr, ast.BinOp)


def _glued(tree: ast.AST) -> Iterator[int]:
    """Lines where a statement is put together by anything but psycopg.sql."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RUNS and node.args:
            for part in ast.walk(node.args[0]):
                method = part.func if isinstance(part, ast.Call) else None
                formats = isinstance(method, ast.Attribute) and method.attr == "format" and not isinstance(method.value, ast.Call)
                if isinstance(part, GLUED) or formats:
                    yield node.lineno


@pytest.mark.parametrize("file", sorted(ROOT.glob("relay/**/*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_no_statement_is_glued_together_in_python(file: Path) -> None:
    """Names go in by psycopg.sql, values as parameters: no f-string, no +, no % and no format() of a text where a statement is run."""
    assert [] == list(_glued(ast.parse(file.read_text(encoding="utf-8"))))
