"""Types, functions and operators that an inserter's session finds by the names of PostgreSQL's own never replace those."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.support.database.decoys import OPERATORS, SAME_OPERATORS
from tests.support.poison.catalogue import POISON, Poison

TABLE = sql.Identifier("public", "queue_message")
FUNCTIONS = """
    SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        AND NOT EXISTS (SELECT FROM unnest(coalesce(proconfig, '{}')) AS set WHERE set LIKE 'search_path=%')
"""
"""Functions without a path of their own; the body of one that PostgreSQL has parsed already is empty."""
CALLED_BY_TABLES = """
    SELECT p.proname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE p.pronamespace = 'public'::regnamespace
    UNION SELECT p.proname FROM pg_depend d JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
    WHERE p.pronamespace = 'public'::regnamespace
        AND d.classid IN ('pg_attrdef'::regclass, 'pg_constraint'::regclass, 'pg_class'::regclass, 'pg_rewrite'::regclass)
"""
SYNTAX = {
    "all", "and", "any", "bit", "coalesce", "elsif", "exists", "extract", "from", "greatest", "if", "in", "least", "not", "nullif", "or",
    "overlay", "row", "substring", "then", "values", "when", "where",
}  # fmt: skip
"""What is written before a parenthesis and is part of SQL, not a function that a path leads to."""
REFUSED = [entry for entry in POISON if entry.outcome == "refused"]


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the superuser's to a fresh database."""
    with psycopg.connect(database_url, autocommit=True) as made:
        yield made


def test_the_checks_need_no_search_path(connection: psycopg.Connection[Any]) -> None:
    """The checks find their functions whatever the search_path: a restore runs with an empty one."""
    connection.execute("SET search_path = ''")

    connection.execute('INSERT INTO public.queue_message (exchange, options) VALUES (\'orders\', \'{"headers": {"a": [1]}, "CC": "x"}\')')
    with pytest.raises(psycopg.errors.CheckViolation, match="256 bytes"):
        connection.execute("INSERT INTO public.queue_message (exchange) VALUES (repeat('x', 256))")


def test_a_schema_on_the_path_takes_nobodys_place(connection: psycopg.Connection[Any]) -> None:
    """Triggers run with the path of who inserts: functions that fit their arguments better, made by somebody else, are not called."""
    connection.execute("CREATE SCHEMA foreign_schema; SET search_path = foreign_schema, public")
    for arguments in (
        "hashtextextended(a text, b integer)", "jsonb_path_exists(a jsonb, b text)", "jsonb_path_query(a jsonb, b text)",
        "jsonb_path_exists(a jsonb, b jsonpath)",
        "pg_column_size(a jsonb)", "pg_column_compression(a jsonb)", "pg_try_advisory_xact_lock_shared(a numeric)",
    ):  # fmt: skip
        connection.execute(f"CREATE FUNCTION {arguments} RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$".encode())

    for options in ('{"priority": 3}', '{"headers": {"list": [1, {"a": "b"}]}}'):
        connection.execute("INSERT INTO queue_message (exchange, options) VALUES ('orders', %s)", (options,))
    connection.execute("INSERT INTO queue_message (exchange, content, available_at) VALUES ('orders', '{}', now())")


def unpinned(made: psycopg.Connection[Any]) -> dict[str, str]:
    """Bodies of the functions that an INSERT runs with the inserter's path, by name: triggers, defaults and checks, and what these call."""
    bodies = {str(name): str(body) for name, body in made.execute(FUNCTIONS).fetchall()}
    found: dict[str, str] = {}
    todo = [str(name) for (name,) in made.execute(CALLED_BY_TABLES).fetchall()]
    while todo:
        name = todo.pop()
        if name in bodies and name not in found:
            found[name] = re.sub(r"--.*|'(?:[^']|'')*'", "", bodies[name])
            todo += re.findall(r"public\.(\w+)", found[name])
    return found


def test_what_runs_with_the_inserters_path_names_functions_with_their_schema(connection: psycopg.Connection[Any]) -> None:
    """Of two functions with one name PostgreSQL calls the one whose parameters fit exactly, whatever schema comes first."""
    bodies = unpinned(connection)

    assert {"queue_message_uuid", "queue_message_check", "queue_message_hint"} <= set(bodies)
    calls = {name: set(re.findall(r"(?<![\w.])([a-z_]\w*)\s*\(", body)) - SYNTAX for name, body in bodies.items()}
    assert {} == {name: found for name, found in calls.items() if found}


OPERATOR = re.compile(
    r"OPERATOR\(pg_catalog\.[^)]+\)|:=|::|=>"  # with its schema, or none
    r"|([-+*/<>=~!@#%^&|`?]+|\b(?:IS(?: NOT)? DISTINCT|BETWEEN|NULLIF|LIKE|ILIKE|SIMILAR|IN \())"
)
"""An operator in the body of a function; its group is empty for one that is named with its schema."""
PINNED = "set_config('search_path'"


def test_what_runs_with_the_inserters_path_names_operators_with_their_schema(connection: psycopg.Connection[Any]) -> None:
    """A schema before `pg_catalog` would replace them. `queue_message_setting_value` is called by views, not by an INSERT."""
    bodies = {name: str(body) for name, body in connection.execute(FUNCTIONS).fetchall() if name in unpinned(connection)}
    before = {name: re.sub(r"--.*|'(?:[^']|'')*'|#variable_conflict", "", body.partition(PINNED)[0]) for name, body in bodies.items()}

    found = {
        name: [each for each in OPERATOR.findall(body) if each] for name, body in before.items() if name != "queue_message_setting_value"
    }

    assert {} == {name: operators for name, operators in found.items() if operators}
    assert "queue_message_check" in found


def test_the_inserters_path_is_as_before_afterwards(connection: psycopg.Connection[Any]) -> None:
    """Also in the transaction, where it was set for that alone, and after a look that is closer than any other."""
    for setting in ("SET search_path = public, pg_temp", "SET LOCAL search_path = ''", "RESET search_path"):
        with connection.transaction():
            connection.execute(setting.encode())
            before = connection.execute("SHOW search_path").fetchone()
            connection.execute("INSERT INTO public.queue_message (exchange, content) VALUES ('orders', %s)", (Jsonb(70_000 * "x"),))
            assert before == connection.execute("SHOW search_path").fetchone()
    assert ('"$user", public',) == connection.execute("SHOW search_path").fetchone()


def test_an_id_is_made_by_no_function_of_somebody_elses(connection: psycopg.Connection[Any]) -> None:
    """PostgreSQL's own set_bit takes a bigint; one that takes an integer fits better."""
    connection.execute("CREATE SCHEMA foreign_schema; SET search_path = public, foreign_schema")
    body = "RETURNS bytea LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$"
    connection.execute(f"CREATE FUNCTION foreign_schema.set_bit(bytea, integer, integer) {body}".encode())

    connection.execute("INSERT INTO queue_message (exchange) VALUES ('orders')")


def make_domains(made: psycopg.Connection[Any]) -> None:
    """A temporary domain, which holds no value, by the name of each type but `bytea`, which psycopg names itself."""
    kinds = "typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typelem = 0 AND typname <> 'bytea'"
    for (each,) in made.execute(f"SELECT typname FROM pg_type WHERE {kinds}".encode()).fetchall():
        made.execute(sql.SQL("CREATE DOMAIN pg_temp.{0} AS pg_catalog.{0} CHECK (false)").format(sql.Identifier(each)))


def make_operators(made: psycopg.Connection[Any]) -> None:
    """Operators that fit better than PostgreSQL's own, at the end of the path."""
    made.execute(OPERATORS)
    made.execute("SET search_path = public, decoys")


def make_same_operators(made: psycopg.Connection[Any]) -> None:
    """Operators like PostgreSQL's own, before them on the path."""
    made.execute(SAME_OPERATORS)
    made.execute("SET search_path = decoys, pg_catalog, public")


@pytest.fixture(scope="module", params=[make_domains, make_operators, make_same_operators], ids=lambda make: make.__name__)
def disguised(databases: Any, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """A session that finds somebody else's types, or operators, by the names of PostgreSQL's own."""
    name = databases.create_migrated()
    with psycopg.connect(databases.url(name), autocommit=True) as made:
        request.param(made)
        yield made
    databases.drop(name)


@pytest.mark.parametrize("entry", POISON, ids=str)
def test_nothing_that_the_inserter_finds_takes_the_place_of_postgresql_s_own(disguised: psycopg.Connection[Any], entry: Poison) -> None:
    """PostgreSQL looks for types in the temporary schema first, and takes the operator that fits best: every entry is judged as ever."""
    said = ""
    try:
        with disguised.transaction(force_rollback=True):
            disguised.execute(entry.insert(TABLE, exchange="orders"))
    except psycopg.Error as error:
        said = error.diag.message_primary or ""

    assert any(fragment in said for fragment in entry.sentences) if entry in REFUSED else said == "", said


def test_nor_under_keys_and_with_a_trace(disguised: psycopg.Connection[Any]) -> None:
    """Its place is taken neither in what measures a message under a key, nor in what gives it its trace, nor in what notifies."""
    with disguised.transaction(force_rollback=True):
        disguised.execute("SELECT set_config('relay.traceparent', %s, true)", (f"00-{32 * 'a'}-{16 * 'b'}-01",))
        disguised.execute("SELECT set_config('relay.tracestate', 'a=b', true)")
        disguised.execute("INSERT INTO queue_message (exchange) VALUES ('orders')")
        disguised.execute("INSERT INTO queue_message_keyed (exchange, coalesce_key) VALUES ('orders', 'k')")
        rows = disguised.execute("SELECT jsonb_object_keys(jsonb_extract_path(options, 'headers')) FROM queue_message").fetchall()
        assert [("tracestate",), ("traceparent",)] == rows
        assert [(1,)] == disguised.execute("SELECT count(*) FROM queue_message_keyed_row").fetchall()
