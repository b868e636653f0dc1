"""A five-column queue_message with a uuid key and a trigger do_notify is taken over; any other is left alone."""

from __future__ import annotations

import json
import threading
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from relay.devservers.process import poll
from relay.errors import MigrationError
from relay.postgres.schema.migrate import migrate
from relay.postgres.schema.sql_files import migrations
from tests.support.servers.logins import login

SCRIPT = """
    CREATE TABLE IF NOT EXISTS queue_message (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        exchange text NOT NULL,
        routing_key text NOT NULL DEFAULT '',
        content jsonb NOT NULL DEFAULT '{}',
        options jsonb NOT NULL DEFAULT '{}'
    );
    CREATE OR REPLACE FUNCTION queue_message_notify() RETURNS trigger AS $$
    BEGIN
        PERFORM pg_notify('queue_message_notify', json_build_object('id', NEW.id)::text);
        RETURN NEW;
    END
    $$ LANGUAGE plpgsql;
    CREATE TRIGGER do_notify AFTER INSERT ON queue_message FOR EACH ROW EXECUTE PROCEDURE queue_message_notify();
"""
TABLE = (
    SCRIPT
    + """
    CREATE FUNCTION called() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'called as %', current_user; END$$;
    CREATE TRIGGER called BEFORE DELETE ON queue_message EXECUTE FUNCTION called();
"""
)
"""A table that calls its owner's function when it is emptied."""
VIEW = """
    CREATE FUNCTION called() RETURNS uuid LANGUAGE plpgsql AS $$BEGIN RAISE 'called as %', current_user; END$$;
    CREATE VIEW queue_message AS
        SELECT called() AS id, ''::text AS exchange, ''::text AS routing_key, '{}'::jsonb AS content, '{}'::jsonb AS options;
"""
INSERT = "INSERT INTO queue_message (exchange, routing_key, content) VALUES ('amq.direct', 'key', %s) RETURNING id"
NUMBERS = "(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000))"
"""A few bytes, and a gigabyte as text."""
NO_JSONB = '{"a": "\\u0000"}'
"""What the type json holds, and jsonb does not."""
Connection = psycopg.Connection[Any]


def value(database: Connection, statement: str, *values: object) -> Any:
    """The only value of a statement."""
    [(found,)] = database.execute(statement.encode(), values or None).fetchall()
    return found


@pytest.mark.ids("C2", "C8", "A17")
def test_waiting_messages_are_taken_over_with_their_ids(empty_database_url: str, database: Connection) -> None:
    """Renamed, emptied into the new table in insertion order, trigger and function removed, and said in one sentence."""
    database.execute(SCRIPT.encode())
    ids = [value(database, INSERT, json.dumps({"n": n})) for n in range(5)]
    said: list[str] = []

    assert len(migrations()) == len(migrate(empty_database_url, say=said.append))

    taken = database.execute("SELECT id, exchange, routing_key, content, options FROM queue_message ORDER BY xid, seq").fetchall()
    assert [(id_, "amq.direct", "key", {"n": n}, {}) for n, id_ in enumerate(ids)] == taken
    assert 0 == value(database, "SELECT count(*) FROM queue_message_adopted")
    assert 0 == value(database, "SELECT count(*) FROM pg_trigger WHERE tgname = 'do_notify'")
    assert 0 == value(database, "SELECT count(*) FROM pg_proc WHERE proname = 'queue_message_notify'")
    assert [("The former queue_message is now queue_message_adopted and empty. "
            "Messages taken over: 5, of them archived as rejected: 0.")] == [line.replace("public.", "") for line in said]  # fmt: skip


def test_a_second_call_takes_nothing_over(empty_database_url: str, database: Connection) -> None:
    """Even if somebody writes into the former table."""
    database.execute(SCRIPT.encode())
    migrate(empty_database_url)
    database.execute("INSERT INTO queue_message_adopted (exchange) VALUES ('e')")
    said: list[str] = []
    assert ([], []) == (migrate(empty_database_url, say=said.append), said)
    assert 0 == value(database, "SELECT count(*) FROM queue_message")


def test_one_bad_message_keeps_no_other(empty_database_url: str, database: Connection) -> None:
    """What can never be sent is archived rejected with the sentence."""
    database.execute(SCRIPT.encode())
    good = value(database, INSERT, "{}")
    bad = value(database, "INSERT INTO queue_message (exchange, options) VALUES ('e', '{\"persistant\": true}') RETURNING id")

    migrate(empty_database_url)

    assert good == value(database, "SELECT id FROM queue_message")
    [(id_, code, detail)] = database.execute("SELECT id, error_code, error_detail FROM queue_message_dead").fetchall()
    assert (bad, "refused") == (id_, code)
    assert "persistant" in detail


@pytest.mark.slow
@pytest.mark.ids("C2", "C8")
def test_a_message_beyond_postgresql_s_limits_keeps_no_other(empty_database_url: str, database: Connection) -> None:
    """A content that takes a few bytes and is a gigabyte as text, which the INSERT prints; or options of that kind, which no row keeps."""
    database.execute(SCRIPT.encode())
    good = value(database, INSERT, "{}")
    content = value(database, f"INSERT INTO queue_message (exchange, content) VALUES ('e', {NUMBERS}) RETURNING id")
    options = f"jsonb_build_object('expiration', {NUMBERS})"
    options = value(database, f"INSERT INTO queue_message (exchange, options, content) VALUES ('e', {options}, '[1]') RETURNING id")

    migrate(empty_database_url)

    assert good == value(database, "SELECT id FROM queue_message")
    dead = database.execute("SELECT id, error_code, error_detail FROM queue_message_dead ORDER BY seq").fetchall()
    assert [(content, "content_unprintable"), (options, "refused")] == [row[:2] for row in dead]
    assert dead[0][2] == "content is larger than a gigabyte as text: write its numbers shorter."
    assert dead[1][2].startswith("it is beyond a limit of PostgreSQL")
    assert 9000 == value(database, "SELECT jsonb_array_length(content) FROM queue_message_dead WHERE id = %s", content)
    [kept] = database.execute("SELECT content, body, options FROM queue_message_dead WHERE id = %s", [options]).fetchall()
    assert ([1], None, "These options are beyond a limit of PostgreSQL, as more than a gigabyte as text is.") == kept


@pytest.mark.slow
@pytest.mark.ids("C8")
def test_options_that_jsonb_does_not_hold_beside_content_that_cannot_be_printed(empty_database_url: str, database: Connection) -> None:
    """A table of mixed types may have both in one row; the code is that of the content, by which an export knows not to print it."""
    database.execute(SCRIPT.replace("options jsonb", "options json").encode())
    both = value(database, f"INSERT INTO queue_message (exchange, options, content) VALUES ('e', %s, {NUMBERS}) RETURNING id", NO_JSONB)

    migrate(empty_database_url)

    rows = database.execute("SELECT id, error_code, jsonb_array_length(content), body, options FROM queue_message_dead").fetchall()
    assert [(both, "content_unprintable", 9000, None, NO_JSONB)] == rows


@pytest.mark.ids("C8")
def test_json_that_jsonb_does_not_hold_keeps_no_other(empty_database_url: str, database: Connection) -> None:
    """A column of type json takes it. Content is kept as the bytes that it is, options as a text, which goes nowhere by itself."""
    database.execute(SCRIPT.replace("jsonb", "json").encode())
    good = value(database, INSERT, '{"n": 1}')
    content = value(database, "INSERT INTO queue_message (exchange, content) VALUES ('e', %s) RETURNING id", NO_JSONB)
    options = value(database, "INSERT INTO queue_message (exchange, options, content) VALUES ('e', %s, '[1]') RETURNING id", NO_JSONB)

    migrate(empty_database_url)

    assert good == value(database, "SELECT id FROM queue_message")
    rows = database.execute("SELECT id, error_code, content, body, options FROM queue_message_dead ORDER BY seq").fetchall()
    assert [(content, "refused", {}, NO_JSONB.encode(), {}), (options, "refused", [1], None, NO_JSONB)] == rows
    [(detail,)] = database.execute("SELECT DISTINCT error_detail FROM queue_message_dead").fetchall()
    assert detail == "a value is refused: untranslatable character, SQLSTATE 22P05"
    replayed = value(database, "SELECT queue_message_replay(%s)", content)
    assert NO_JSONB.encode() == value(database, "SELECT body FROM queue_message WHERE id = %s", replayed)
    with pytest.raises(psycopg.errors.CheckViolation, match="options must be a JSON object"):
        database.execute("SELECT queue_message_replay(%s)", (options,))


NULLS = """
    CREATE TABLE queue_message (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), exchange text, routing_key text, content json, options jsonb)
"""


@pytest.mark.ids("C8")
@pytest.mark.parametrize(
    ("row", "null"),
    [
        ("NULL, 'plain', '{\"n\": 1}', NULL", "exchange"),
        ("'orders', NULL, '{\"n\": 1}', NULL", "routing_key"),
        ("'orders', 'k', NULL, NULL", "content"),
        ("NULL, NULL, NULL, '{\"priority\": 3}'", "exchange, routing_key, content"),
    ],
)
def test_what_nobody_addressed_or_wrote_is_not_sent(empty_database_url: str, database: Connection, row: str, null: str) -> None:
    """The row is archived, and its error names the null columns. No replay sends the value that replaces a null in the archive."""
    database.execute(NULLS.encode())
    insert = "INSERT INTO queue_message (exchange, routing_key, content, options) VALUES "
    good = value(database, f"{insert} ('orders', '', 'null', NULL) RETURNING id")
    bad = value(database, f"{insert} ({row}) RETURNING id")

    migrate(empty_database_url)

    assert [(good, None, {})] == database.execute("SELECT id, content, options FROM queue_message").fetchall()
    [(id_, code, detail)] = database.execute("SELECT id, error_code, error_detail FROM queue_message_dead").fetchall()
    assert (bad, "refused") == (id_, code)
    assert detail.startswith(f"null in {null}, which no INSERT takes")
    with pytest.raises(psycopg.errors.CheckViolation, match="options must be a JSON object"):
        database.execute("SELECT queue_message_replay(%s)", (bad,))


def test_who_could_insert_can_insert(empty_database_url: str, database: Connection) -> None:
    """An application keeps its grant, and has no more than before."""
    database.execute(SCRIPT.encode())
    with login(empty_database_url) as url, psycopg.connect(url, autocommit=True) as app:
        database.execute(sql.SQL("GRANT INSERT ON queue_message TO {}").format(sql.Identifier(app.info.user)))
        migrate(empty_database_url)
        app.execute("INSERT INTO queue_message (exchange, routing_key, content) VALUES ('amq.direct', 'key', '{}')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute("SELECT content FROM queue_message")


def test_an_insert_under_way_is_waited_for_and_taken_over(empty_database_url: str, database: Connection) -> None:
    """A transaction open when the migration begins is not lost; one that comes meanwhile lands in the new table."""
    database.execute(SCRIPT.encode())
    migration = threading.Thread(target=migrate, args=(empty_database_url,))
    with psycopg.connect(empty_database_url) as early, psycopg.connect(empty_database_url, autocommit=True) as late:
        early.execute(INSERT, ("1",))
        migration.start()
        _wait_until_locked(database, 1)
        inserting = threading.Thread(target=late.execute, args=(INSERT, ("2",)))
        inserting.start()
        _wait_until_locked(database, 2)
        early.commit()
        inserting.join()
        migration.join()
    assert [(1,), (2,)] == database.execute("SELECT content FROM queue_message ORDER BY content").fetchall()


def _wait_until_locked(database: Connection, count: int) -> None:
    """Until so many sessions wait for a lock on a table."""
    ours = "(SELECT oid FROM pg_database WHERE datname = %s)"
    waiting = f"SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND NOT granted AND database = {ours}"
    assert poll(lambda: value(database, waiting, database.info.dbname) >= count, seconds=20)


@pytest.mark.slow
def test_a_long_transaction_is_not_waited_for(empty_database_url: str, database: Connection) -> None:
    """The migration gives up after five seconds, so that no session queues behind it. Everything is as before."""
    database.execute(SCRIPT.encode())
    with psycopg.connect(empty_database_url) as long:
        long.execute(INSERT, ("1",))
        with pytest.raises(MigrationError, match=r"Another transaction holds what must change.* run `relay migrate` again"):
            migrate(empty_database_url)
    assert 1 == value(database, "SELECT count(*) FROM queue_message")
    assert "queue_message" == value(database, "SELECT relname FROM pg_class WHERE relname LIKE 'queue_m%' AND relkind = 'r'")


@pytest.mark.parametrize(
    "other",
    [
        "TABLE queue_message (id bigint PRIMARY KEY, exchange text, routing_key text, content jsonb, options jsonb)",
        "TABLE queue_message (id uuid, exchange text, routing_key text, content jsonb, options jsonb)",
        "TABLE queue_message (id uuid PRIMARY KEY, exchange text, routing_key text, content jsonb, options jsonb, sent boolean)",
        "TABLE queue_message (id uuid PRIMARY KEY, body text)",
        "TABLE queue_message (id uuid, exchange text, routing_key text, content jsonb, options jsonb, PRIMARY KEY (id, exchange))",
        (
            "VIEW queue_message AS SELECT gen_random_uuid() AS id, ''::text AS exchange, ''::text AS routing_key, '{}'::jsonb AS content, "
            "'{}'::jsonb AS options"
        ),
    ],
)
def test_any_other_table_of_that_name_is_refused(empty_database_url: str, database: Connection, other: str) -> None:
    """With its columns in the sentence, and untouched."""
    database.execute(f"CREATE {other}".encode())
    before = database.execute("SELECT relname, relkind FROM pg_class WHERE relname LIKE 'queue%' ORDER BY 1").fetchall()

    with pytest.raises(MigrationError, match=r'There is a queue_message in schema "public" that is not the relay\'s \(.*\): rename it, or'):
        migrate(empty_database_url)

    assert before == database.execute("SELECT relname, relkind FROM pg_class WHERE relname LIKE 'queue%' ORDER BY 1").fetchall()


@pytest.mark.parametrize("applied", [False, True], ids=["queue_message", "queue_message_adopted"])
@pytest.mark.parametrize("kind", ["table", "view"])
def test_what_another_login_put_there_runs_nothing(empty_database_url: str, database: Connection, *, applied: bool, kind: str) -> None:
    """Its triggers or functions would act for who migrates; the sentence names its owner, who may be made known or left out."""
    if applied:
        migrate(empty_database_url)
    name = "queue_message_adopted" if applied else "queue_message"
    with login(empty_database_url) as stranger:
        user = str(conninfo_to_dict(stranger)["user"])
        database.execute(f'GRANT CREATE ON SCHEMA public TO "{user}"'.encode())
        with psycopg.connect(stranger, autocommit=True) as connection:
            connection.execute((TABLE if kind == "table" else VIEW).replace("queue_message ", f"{name} ").encode())

        with pytest.raises(MigrationError, match=user if kind == "table" or applied else "not the relay's"):
            migrate(empty_database_url)

        database.execute(f'DROP OWNED BY "{user}" CASCADE'.encode())
    migrate(empty_database_url)


@pytest.mark.ids("C2", "C4")
def test_the_same_script_run_afterwards_does_no_harm(empty_database_url: str, database: Connection) -> None:
    """The table stays ours, inserts go through, later migrations find nothing to do; its trigger only adds its notification."""
    database.execute(SCRIPT.encode())
    migrate(empty_database_url)
    database.execute(SCRIPT.encode())
    database.execute("LISTEN queue_message_notify")

    id_ = value(database, INSERT, "{}")

    [heard] = list(database.notifies(timeout=5, stop_after=1))
    assert {"id": str(id_)} == json.loads(heard.payload)
    assert [] == migrate(empty_database_url)
    assert "ready" == value(database, "SELECT state FROM queue_message_state WHERE id = %s", id_)


def test_a_function_that_others_use_stays(empty_database_url: str, database: Connection) -> None:
    """The script's function may serve another table too."""
    database.execute(SCRIPT.encode())
    database.execute("CREATE TABLE mine (id uuid)")
    database.execute("CREATE TRIGGER t AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION queue_message_notify()")
    said: list[str] = []
    migrate(empty_database_url, say=said.append)
    assert "Function queue_message_notify() stays: something else uses it." in said
    database.execute("INSERT INTO mine VALUES (gen_random_uuid())")
