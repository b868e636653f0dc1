"""What roles may pass to functions and columns: impossible times and texts of megabytes harm no reader."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import psycopg
import pytest
from psycopg import errors, sql

from tests.support.pages.grants import ROLES
from tests.support.servers.logins import login

CALLERS: Final = ("queue_message_etl", "queue_message_operator")
MOMENTS: Final = ("infinity", "-infinity", "294276-12-31")
SPANS: Final = ("178000000 years", "-178000000 years", "0")
NUMBERS: Final = ("9223372036854775807", "-9223372036854775808")
TIMES: Final = ("timestamp with time zone", "date")
LONGEST: Final = 16_384
"""Bytes that a row may take in which an argument was kept; a sentence that repeats one may be as long."""
LONG: Final = secrets.token_hex(1 << 19)
"""A megabyte that cannot be compressed."""
SHOWN: Final = 200
STEERING: Final = "a\x01\x1b[2J\nforged\r\x7f\u0085\u009b31m\u2028b"
DEAD: Final = "00000000-0000-4000-8000-000000000001"
FUNCTIONS = """SELECT p.proname::text, array_agg(a.name ORDER BY a.place), array_agg(format_type(a.type, NULL) ORDER BY a.place),
        p.pronargs - p.pronargdefaults
    FROM pg_proc p, unnest(p.proargnames[:p.pronargs], p.proargtypes::oid[]) WITH ORDINALITY AS a (name, type, place)
    WHERE p.pronamespace = 'public'::regnamespace AND has_function_privilege(%s, p.oid, 'EXECUTE') AND p.proname LIKE 'queue_message%%'
    GROUP BY p.oid ORDER BY 1"""
COLUMNS = """SELECT c.relname::text, array_agg(a.attname::text), array_agg(format_type(a.atttypid, NULL)), array_agg(a.attnotnull)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0
        AND has_column_privilege(%s, c.oid, a.attnum, 'INSERT')
    GROUP BY 1 ORDER BY 1"""
RELATIONS = """SELECT relname::text, relkind = 'v' FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = ANY (%s) AND NOT relispartition AND relname LIKE 'queue_message%%'"""
_GIVEN = """
message '%s' | xid '5' | seq 7 | at_most 9 | lake 'lake' | epoch 1 | version 1 | next 2 | exported '5' | rows ARRAY[1] | damage ARRAY[NULL]
partitions ARRAY['queue_message_archive_y2026m01d01'] | name 'nightly' | spec '@daily' | time_zone 'UTC' | mode 'warn' | schema 'true'
setting 'max_attempts' | value '3' | per_second 1 | result 'failed' | partition 'queue_message_archive_y2026m01d01' | job 'export'
"""
GIVEN: Final = dict(pair.split(" ", 1) for line in (_GIVEN % DEAD).strip().splitlines() for pair in line.split(" | "))
"""Arguments that lead into a function; others have their defaults, or what their type allows."""
OF_TYPE: Final = {
    "text": "'orders'",
    "boolean": "true",
    "jsonb": "'{}'",
    "uuid": f"'{DEAD}'",
    "interval": "'1 s'",
    "timestamp with time zone": "now()",
}


OWN_WORDS: Final = ("queue_message_refuse", "queue_message_refuse_new")
"""Triggers say by these what an insert is refused for, with the rights of who inserts: they tell a caller no more than it said."""


class Call(NamedTuple):
    """A statement with one argument left open, and what it is."""

    name: str
    kind: str
    statement: sql.Composed


@pytest.fixture
def outbox(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The superuser, with a dead message, a schedule and an export that functions find."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts, result)"
            " VALUES ('5', 7, %s, 'orders', '', '{}', '{}', now(), 1, 'failed')",
            [DEAD],
        )
        connection.execute("SELECT queue_message_schedule_add('nightly', '@daily', 'orders')")
        connection.execute("SELECT queue_message_export_begin('lake', NULL, 1), queue_message_export_commit('lake', 1, '5', 1)")
        connection.execute("INSERT INTO queue_message (exchange, ordering_key) VALUES ('orders', 'orders')")
        yield connection


def calls(connection: psycopg.Connection[Any], role: str, kinds: tuple[str, ...]) -> Iterator[Call]:
    """Calls of every function that a login may call, each with one argument of these types open."""
    for name, names, types, required in connection.execute(FUNCTIONS.encode(), [role]).fetchall():
        for place, kind in enumerate(types):
            if kind.removesuffix("[]") in kinds and name not in OWN_WORDS:
                yield Call(f"{name}({names[place]})", kind, _call(name, [*zip(names, types, strict=True)], place, required))


def inserts(connection: psycopg.Connection[Any], role: str, kinds: tuple[str, ...]) -> Iterator[Call]:
    """Inserts into every table that a login may write, each with one column of these types open."""
    for table, names, types, needed in connection.execute(COLUMNS.encode(), [role]).fetchall():
        for place, kind in enumerate(types):
            if kind in kinds:
                kept = [at for at in range(len(names)) if at == place or needed[at]]
                columns = sql.SQL(", ").join(sql.Identifier(names[at]) for at in kept)
                values = sql.SQL(", ").join(sql.Placeholder("given") if at == place else _value(names[at], types[at]) for at in kept)
                statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(sql.Identifier(table), columns, values)
                yield Call(f"{table}.{names[place]}", kind, statement)


def _call(function: str, arguments: list[tuple[str, str]], place: int, required: int) -> sql.Composed:
    given = []
    for at, (name, kind) in enumerate(arguments):
        if at == place:
            open_one = sql.SQL("%(given)s::{}").format(sql.SQL(kind.removesuffix("[]")))
            given.append(_named(name, sql.SQL("ARRAY[{}]").format(open_one) if kind.endswith("[]") else open_one))
        elif at < required:
            given.append(_named(name, sql.SQL("{}::{}").format(_value(name, kind), sql.SQL(kind))))
    return sql.SQL("SELECT * FROM {}({})").format(sql.Identifier(function), sql.SQL(", ").join(given))


def _named(name: str | None, value: sql.Composable) -> sql.Composable:
    return sql.SQL("{} => {}").format(sql.Identifier(name), value) if name else value


def _value(name: str, kind: str) -> sql.SQL:
    return sql.SQL(GIVEN.get(name) or OF_TYPE.get(kind) or ("'{}'" if kind.endswith("[]") else "'1'"))


def tried(connection: psycopg.Connection[Any], user: str, call: Call, given: str) -> list[str]:
    """What a login does with this argument makes of those who look afterwards; everything is taken back."""
    with connection.transaction(force_rollback=True):
        connection.execute(sql.SQL("SET LOCAL statement_timeout = '20s'; SET SESSION AUTHORIZATION {}").format(sql.Identifier(user)))
        try:
            with connection.transaction():
                connection.execute(call.statement, {"given": given})
        except psycopg.Error as error:
            connection.execute("RESET SESSION AUTHORIZATION")
            return [f"{call.name}: {error.sqlstate} {error.diag.message_primary}"[:SHOWN]] if _is_crude(error) else []
        connection.execute("RESET SESSION AUTHORIZATION")
        return [f"{call.name}: {problem}"[:SHOWN] for problem in _problems(connection)]


def _is_crude(error: psycopg.Error) -> bool:
    """Whether a refusal is no sentence of ours: long, steering a terminal, or of PostgreSQL's about a limit of its own."""
    words = error.diag.message_primary or ""
    if error.sqlstate == "22023":  # PostgreSQL's own, about a time zone
        return False
    return len(words) > LONGEST or any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in words) or error.sqlstate in CRUDE


CRUDE: Final = ("22008", "54000", "57014", "XX000", "22003")
"""A time out of range, a row too large for an index, a statement that had to be cancelled, and what should never happen."""


def _problems(connection: psycopg.Connection[Any]) -> Iterator[str]:
    """Views that can no longer be read, and rows that have become long."""
    for name, is_view in connection.execute(RELATIONS.encode(), [["r", "p", "v"]]).fetchall():
        look = sql.SQL("TABLE {}" if is_view else "SELECT coalesce(max(octet_length(t::text)), 0) FROM {} t").format(sql.Identifier(name))
        try:
            with connection.transaction():
                rows = connection.execute(look).fetchall()
        except psycopg.Error as error:
            yield f"{name} cannot be read: {error.diag.message_primary or error}"
        else:
            if not is_view and rows[0][0] > LONGEST:
                yield f"a row of {name} has {rows[0][0]} bytes"


def found(connection: psycopg.Connection[Any], url: str, role: str, kinds: tuple[str, ...], given: tuple[str, ...]) -> list[str]:
    """All problems that a member of a role can make with these values."""
    with login(url, role) as member, psycopg.connect(member) as its:
        user = its.info.user
        several = [*calls(connection, user, kinds), *inserts(connection, user, kinds)]
        assert several or kinds == ("bigint[]",)
        return [problem for call in several for value in given for problem in tried(connection, user, call, value)]


@pytest.mark.parametrize("role", CALLERS)
def test_times_that_no_calendar_has_break_no_view(outbox: psycopg.Connection[Any], database_url: str, role: str) -> None:
    """As `relay status` reads them: every argument of functions that the role may call, and every column that it may write."""
    assert [] == found(outbox, database_url, role, TIMES, MOMENTS)


def test_spans_that_no_calendar_has_break_no_view(outbox: psycopg.Connection[Any], database_url: str) -> None:
    """Nor does one that is no time at all."""
    assert [] == found(outbox, database_url, "queue_message_operator", ("interval",), SPANS)


@pytest.mark.parametrize("role", CALLERS)
@pytest.mark.parametrize(("kind", "given"), [("bigint", NUMBERS), ("bigint[]", tuple(f"{{{one},{one}}}" for one in NUMBERS))])
def test_numbers_at_the_end_of_their_type_break_no_view(
    outbox: psycopg.Connection[Any], database_url: str, role: str, kind: str, given: tuple[str, ...]
) -> None:
    """Views add them up and subtract them; every argument and every column."""
    assert [] == found(outbox, database_url, role, (kind,), given)


@pytest.mark.parametrize("role", CALLERS)
def test_no_text_is_kept_or_repeated_that_is_longer_than_a_person_reads(
    outbox: psycopg.Connection[Any], database_url: str, role: str
) -> None:
    """Every argument and column of a text, with a megabyte, and with letters that steer a terminal or forge a line."""
    assert [] == found(outbox, database_url, role, ("text",), (LONG, STEERING))


def test_all_roles_are_known(outbox: psycopg.Connection[Any]) -> None:
    """Those that act for people are among them."""
    assert {*CALLERS} <= {*ROLES}


HUGE: Final = {
    "queue_message_etl of numbers": "UPDATE queue_message_stats_day SET wait = array_fill(9223372036854775807, ARRAY[1000])",
    "queue_message_etl": "UPDATE queue_message_stats_day SET codes = jsonb_build_object('a', repeat('x', 17000000))",
    "queue_message_relay": "UPDATE queue_message_relay SET state = jsonb_build_object('a', repeat('x', 17000000))",
}


@pytest.mark.parametrize("role", HUGE)
def test_no_json_is_kept_that_no_dump_could_have(outbox: psycopg.Connection[Any], database_url: str, role: str) -> None:
    """PostgreSQL keeps a gigabyte of numbers in kilobytes, and can hand out no row with them."""
    outbox.execute("INSERT INTO queue_message_stats_day VALUES ('2024-05-01Z', 'e', 'k', 1, 0, 0, 0, 0, 1, '{}', '{}', '{}', '{}', 1, 1)")
    outbox.execute("INSERT INTO queue_message_relay (name, version, host, pid) VALUES ('n', 'v', 'h', 1)")
    name = role.partition(" ")[0]
    with login(database_url, name) as url, psycopg.connect(url) as connection, pytest.raises(errors.CheckViolation, match=r"16777216|wait"):
        connection.execute(HUGE[role].encode())


@pytest.mark.parametrize("name", ["name", "version", "host"])
def test_a_relay_registers_under_no_name_that_fills_an_operators_memory(
    outbox: psycopg.Connection[Any], database_url: str, name: str
) -> None:
    """`relay status` and `relay show` read it whole."""
    outbox.execute("INSERT INTO queue_message_relay (name, version, host, pid) VALUES ('n', 'v', 'h', 1)")
    statement = f"UPDATE queue_message_relay SET {name} = repeat('x', 5000)"
    with login(database_url, "queue_message_relay") as url, psycopg.connect(url) as connection, pytest.raises(errors.CheckViolation):
        connection.execute(statement.encode())


DEEP: Final = {
    "queue_message_producer": "INSERT INTO queue_message (exchange, content) VALUES ('e', pg_temp.deep(%s))",
    "queue_message_receiver": "INSERT INTO queue_message (exchange, content) VALUES ('e', pg_temp.deep(%s))",
    "queue_message_producer keyed": (
        "INSERT INTO queue_message_keyed (exchange, content, dedup_key) VALUES ('e', pg_temp.deep(%s), gen_random_uuid()::text)"
    ),
    "queue_message_etl": "UPDATE queue_message_stats_day SET codes = pg_temp.deep(%s)",
    "queue_message_relay": "UPDATE queue_message_relay SET state = pg_temp.deep(%s)",
    "queue_message_operator": "SELECT queue_message_contract_add('e', '', jsonb_build_object('x', pg_temp.deep(%s)))",
}
ALLOWED: Final = {"queue_message_operator": 299}
"""Levels that are accepted, of a contract because the relay reads no more."""
LEVELS: Final = """
    CREATE FUNCTION pg_temp.deep(levels integer) RETURNS jsonb LANGUAGE plpgsql AS $$
    DECLARE
        made jsonb := '1';
    BEGIN
        FOR level IN 1..levels LOOP
            made := CASE level % 2 WHEN 1 THEN jsonb_build_array(made) ELSE jsonb_build_object('', made) END;
        END LOOP;
        RETURN made;
    END $$
"""


@pytest.mark.parametrize("door", DEEP)
def test_no_json_is_kept_that_is_too_deep_to_be_read_again(outbox: psycopg.Connection[Any], database_url: str, door: str) -> None:
    """PostgreSQL builds and prints more levels than it reads: one such row, and a dump brings no row of its table back."""
    outbox.execute("INSERT INTO queue_message_stats_day VALUES ('2024-05-01Z', 'e', 'k', 1, 0, 0, 0, 0, 1, '{}', '{}', '{}', '{}', 1, 1)")
    outbox.execute("INSERT INTO queue_message_relay (name, version, host, pid) VALUES ('n', 'v', 'h', 1)")
    with login(database_url, door.partition(" ")[0]) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(LEVELS.encode())
        connection.execute(DEEP[door].encode(), [ALLOWED.get(door, 5500)])
        for levels in (ALLOWED.get(door, 8399) + 1, 14_000):
            with pytest.raises(errors.CheckViolation, match=r"depth|levels"):
                connection.execute(DEEP[door].encode(), [levels])
