"""What somebody sets on the relay's role or its database, on purpose or as a rule for all: the relay works as ever."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.postgres.notification_listener import NotificationListener
from relay.postgres.schema.migrate import migrate
from relay.postgres.session import Session
from relay.postgres.session_settings import PATH
from relay.queries.statements import Statements
from tests.support.broker.topology import Declared
from tests.support.database.decoys import FUNCTIONS, OPERATORS
from tests.support.database.keyed import insert, keyed
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Line, RelayProcess, Relays
from tests.support.servers.logins import login
from tests.support.servers.shared import Drain

SHADOWS = """
    CREATE SCHEMA shadows;
    GRANT USAGE ON SCHEMA shadows TO PUBLIC;
    CREATE FUNCTION shadows.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '1999-01-01Z'::timestamptz $$;
    CREATE FUNCTION shadows.md5(text) RETURNS text LANGUAGE sql AS $$ SELECT 'ffffffffffffffff' $$;
    CREATE FUNCTION shadows.make_interval(secs double precision) RETURNS interval LANGUAGE sql AS $$ SELECT '-1 day'::interval $$;
    CREATE FUNCTION shadows.pg_current_snapshot() RETURNS pg_snapshot LANGUAGE sql AS $$ SELECT '3:3:'::pg_snapshot $$;
    CREATE FUNCTION shadows.is_more(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
    CREATE OPERATOR shadows.> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = shadows.is_more);
    CREATE FUNCTION shadows.is_same(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
    CREATE OPERATOR shadows.= (LEFTARG = text, RIGHTARG = text, FUNCTION = shadows.is_same);
"""
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "timeouts": {
        "statement_timeout": "20ms", "lock_timeout": "1ms", "idle_in_transaction_session_timeout": "25ms", "idle_session_timeout": "700ms",
    },
    "serializable": {"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on"},
    "repeatable read": {"default_transaction_isolation": "repeatable read"},
    "planner": {f"enable_{way}": "off" for way in (
        "indexscan", "indexonlyscan", "bitmapscan", "nestloop", "hashjoin", "mergejoin", "material", "memoize", "hashagg", "sort",
        "incremental_sort", "tidscan", "partition_pruning",
    )},
    "texts": {
        "bytea_output": "escape", "timezone": "Asia/Kathmandu", "lc_messages": "C", "lc_numeric": "C", "lc_time": "C",
        "datestyle": "German, DMY",
        "intervalstyle": "sql_standard", "client_encoding": "latin1", "standard_conforming_strings": "off", "quote_all_identifiers": "on",
        "extra_float_digits": "-15", "array_nulls": "off", "transform_null_equals": "on", "xmloption": "document",
    },
    "search path": {"search_path": "shadows, pg_catalog"},
    "decoys": {"search_path": "public, decoys"},
    "no search path": {"search_path": "''"},
    "row security": {"row_security": "off"},
    "functions": {"check_function_bodies": "off", "plpgsql.variable_conflict": "use_column", "plpgsql.extra_errors": "all"},
    "replica": {"session_replication_role": "replica"},
}  # fmt: skip
UNDONE: Mapping[str, str] = {
    **dict.fromkeys(SETTINGS["timeouts"], "0"), **dict.fromkeys(SETTINGS["planner"], "on"),
    "default_transaction_isolation": "read committed", "default_transaction_deferrable": "off",
    "search_path": PATH,
}  # fmt: skip
SECOND = "date_trunc('second', now())"
INSERTION = b"INSERT INTO queue_message (exchange, ordering_key, options, available_at) VALUES ('e', 'key', %s, '2026-01-31Z')"
INSERTED = """
    SELECT count(*), count(DISTINCT id), min(lane), max(lane), min(available_at) = '2026-01-31Z' FROM queue_message WHERE exchange = 'e'
"""
FAILURES = ("database_down", "maintenance_failed", "settle_failed", "listen_down", "claim_failed")


async def impose(queue: Queue, user: str | None, settings: Mapping[str, str]) -> None:
    """Set them for the database, and for a role."""
    if not await queue.value("SELECT to_regnamespace('shadows') IS NOT NULL"):
        await queue.sql(SHADOWS)
    if "decoys" in settings.get("search_path", "") and not await queue.value("SELECT to_regnamespace('decoys') IS NOT NULL"):
        await queue.sql(OPERATORS + FUNCTIONS)
    for name, value in settings.items():
        given = f"{name} = {value}" if name == "search_path" else f"{name} = '{value}'"
        await queue.sql(f'ALTER DATABASE "{queue.connection.info.dbname}" SET {given}')
        if user:
            await queue.sql(f'ALTER ROLE "{user}" SET {given}')


async def insert_each(queue: Queue, inbox: Declared) -> int:
    """One message of each kind: plain, ordered, delayed, under a key, of a schedule; returns how many."""
    to = {"exchange": inbox.exchange, "routing_key": inbox.routing_key}
    await queue.insert(3, **to)
    await queue.insert(2, **to, ordering_key="o")
    await queue.insert(1, **to, available_at=await queue.value("SELECT now() + interval '300 ms'"))
    await keyed(queue, **to, bundle_key="b")
    await queue.sql("SELECT queue_message_schedule_add('s', 'EVERY 1 day', %s, %s)", *to.values())
    await queue.sql(f"UPDATE queue_message_schedule SET created_at = {SECOND} - interval '1 day', next_at = {SECOND}")
    return 8


def failures(relay: RelayProcess) -> list[Line]:
    """What the relay complained about."""
    return [line for event in FAILURES for line in relay.of(event)]


@pytest.mark.parametrize("name", SETTINGS)
async def test_a_relay_works_whatever_is_set_on_its_role_and_its_database(
    relays: Relays, queue: Queue, inbox: Declared, amqp_url: str, drain: Drain, name: str
) -> None:
    """Every kind of message goes out, also after a rest, and nothing fails."""
    with login(queue.url, "queue_message_relay") as url:
        await impose(queue, str(conninfo_to_dict(url)["user"]), SETTINGS[name])
        relay = await relays.start(database=url, broker=amqp_url)
        count = await insert_each(queue, inbox)
        await drain(inbox.queue, count, seconds=20)
        await queue.settled()
        beat = await queue.value("SELECT heartbeat_at FROM queue_message_relay")

        async def has_rested() -> bool:
            return bool(await queue.value("SELECT heartbeat_at > %s + interval '4 s' FROM queue_message_relay", beat))

        await until(has_rested)
        await queue.insert(1, exchange=inbox.exchange, routing_key=inbox.routing_key)
        await drain(inbox.queue, 1)
        await queue.settled()
        assert 0 == await relay.stop()
        assert [] == failures(relay)


async def test_the_relays_own_sessions_undo_what_is_a_rule_for_applications(database_url: str, queue: Queue) -> None:
    """Timeouts, planner switches, isolation; only PostgreSQL's own schema is on the path."""
    for name in ("timeouts", "planner", "serializable"):
        await impose(queue, None, SETTINGS[name])
    await queue.sql(f'ALTER DATABASE "{queue.connection.info.dbname}" SET search_path = shadows, pg_catalog')
    shown = "SELECT " + ", ".join(f"current_setting('{name}')" for name in UNDONE if name != "lock_timeout")
    expected = tuple(value for name, value in UNDONE.items() if name != "lock_timeout")

    session = Session(database_url, application_name="relay")
    assert [expected] == await session.fetch(shown.encode(), {})
    await session.aclose()
    listener = NotificationListener(conninfo=database_url, application_name="ear", statements=Statements("public"), on_hint=lambda: None)
    await listener.open()
    assert listener._connection is not None
    assert expected == await (await listener._connection.execute(shown.encode())).fetchone()
    await listener.aclose()


async def test_a_pool_that_shares_sessions_is_left_as_it_is(database_url: str, queue: Queue) -> None:
    """What the relay set there would hold for others."""
    await impose(queue, None, SETTINGS["timeouts"])
    session = Session(database_url, application_name="relay", prepare=False)
    assert [("20ms",)] == await session.fetch(b"SHOW statement_timeout", {})
    await session.aclose()


@pytest.mark.parametrize("name", ["timeouts", "search path", "functions"])
async def test_a_migration_does_not_end_before_its_time(empty_database_url: str, name: str) -> None:
    """It may wait for another one, and move many rows."""
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        await impose(Queue(empty_database_url, connection), None, SETTINGS[name])
    migrate(empty_database_url)


@pytest.mark.parametrize("name", SETTINGS)
async def test_an_application_inserts_whatever_is_set_on_its_role_and_its_database(queue: Queue, name: str) -> None:
    """Each message is judged and has the lane of its key, unless triggers are off or other operators stand in front of PostgreSQL's."""
    with login(queue.url, "queue_message_producer") as url:
        await impose(queue, str(conninfo_to_dict(url)["user"]), {**SETTINGS[name], "statement_timeout": "0", "idle_session_timeout": "0"})
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, client_encoding="UTF8") as app:
            await app.execute("SET search_path = shadows, public, pg_catalog" if name == "search path" else "SET search_path = public")
            for options in ("{}", '{"priority": 3, "headers": {"a": 1.5, "traceparent": null}}'):
                await app.execute(INSERTION, [options])
            if name == "replica":
                with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="session_replication_role is replica"):
                    await insert(app, coalesce_key="c", dedup_key="d")
            else:
                await insert(app, coalesce_key="c", dedup_key="d")
            if name not in {"replica", "search path"}:
                with pytest.raises(psycopg.errors.CheckViolation):
                    await app.execute(INSERTION, ['{"priority": 300}'])
    lane = await queue.value("SELECT queue_message_lane_of('key')")
    assert [(2, 2, lane, lane, True)] == await queue.sql(INSERTED)
