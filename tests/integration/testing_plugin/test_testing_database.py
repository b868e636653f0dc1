"""Which databases relay.testing takes: a broker in memory reaches no consumer, so a database in use is refused."""

from __future__ import annotations

import gc

import psycopg
import pytest

from relay.client import Message, enqueue
from relay.errors import MigrationError
from relay.testing.database import TestDatabaseError
from relay.testing.outbox import Outbox
from tests.support.applications.libraries import sqlalchemy_url


def test_the_schema_is_made_where_there_is_none(empty_database_url: str) -> None:
    """In the schema that is asked for, also by a URL as SQLAlchemy writes it; again changes nothing."""
    url = sqlalchemy_url(empty_database_url, "psycopg").render_as_string(hide_password=False)
    for _ in range(2):
        with Outbox(url, schema="shop") as outbox:
            assert [] == outbox.waiting()
    with psycopg.connect(empty_database_url) as connection:
        assert (1,) == connection.execute("SELECT count(*) FROM shop.queue_message_lane WHERE lane = 0").fetchone()


def test_a_test_database_is_brought_up_to_date(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once by each process: it may have been made by an older version."""
    with Outbox(empty_database_url):
        pass
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("DELETE FROM queue_message_migration WHERE version > 20")
        for _ in range(2):
            with Outbox(empty_database_url):
                assert (0,) == connection.execute("SELECT count(*) FROM queue_message_migration WHERE version > 20").fetchone()
        monkeypatch.setattr("relay.testing.database._UP_TO_DATE", set())
        with pytest.raises(MigrationError, match="already exists"), Outbox(empty_database_url):
            pass


USES = {
    "a message": "INSERT INTO queue_message (exchange) VALUES ('shop')",
    "a relay": "INSERT INTO queue_message_relay (name, version, host, pid) VALUES ('r', '1', 'h', 1)",
    "a message with a key": "INSERT INTO queue_message_keyed (exchange, bundle_key) VALUES ('shop', 'k')",
    "an archive": "INSERT INTO queue_message (exchange) VALUES ('shop'); SELECT queue_message_cancel(id) FROM queue_message",
}


@pytest.mark.parametrize("use", USES)
def test_a_database_that_somebody_uses_is_refused(database_url: str, use: str) -> None:
    """And left as it is, without a connection that stays open, which the collector would warn of."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in USES[use].split(";"):
            connection.execute(statement.encode())
        tables = ("queue_message", "queue_message_archive", "queue_message_relay", "queue_message_keyed_row")
        count = " + ".join(f"(SELECT count(*) FROM {table})" for table in tables)
        with (
            pytest.raises(TestDatabaseError, match=r"^The queue in the schema 'public' of this database has been used"),
            Outbox(database_url),
        ):
            pass
        assert (1, None) == connection.execute(f"SELECT {count}, to_regprocedure('queue_message_testing()')".encode()).fetchone()
    gc.collect()


def test_a_test_database_that_another_relay_works_on_is_refused(database_url: str) -> None:
    """It has become somebody's since: nothing of it is deleted. When that relay has left it is a test database again."""
    with Outbox(database_url):
        pass
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("INSERT INTO queue_message_relay (name, version, host, pid) VALUES ('shop-1', '1', 'h', 1)")
        enqueue(connection, Message(exchange="shop"))
        with pytest.raises(TestDatabaseError, match=r"^The relay 'shop-1' runs on the queue"), Outbox(database_url):
            pass
        assert (1,) == connection.execute("SELECT count(*) FROM queue_message").fetchone()
        connection.execute("UPDATE queue_message_relay SET state = '{\"left\": true}'")
        with Outbox(database_url) as outbox:
            assert [] == outbox.waiting()
    gc.collect()


def test_each_test_begins_with_an_empty_outbox(database_url: str) -> None:
    """Nothing of a former one is left: neither messages nor their archive, nor a key that was known; settings stay."""
    with Outbox(database_url) as outbox, psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("INSERT INTO queue_message_keyed (exchange, bundle_key, dedup_key) VALUES ('shop', 'k', 'd')")
        connection.execute("UPDATE queue_message_setting SET value = '3' WHERE name = 'max_attempts'")
        message = enqueue(connection, Message(exchange=""))
        gone = enqueue(connection, Message(exchange="", routing_key="q"))
        with outbox.relay() as broker:
            broker.declare_queue("q")
            broker.drained()
        archived = outbox.archive(gone)
        assert archived is not None
        assert "success" == archived.result
        assert [message] == [one.id for one in outbox.waiting() if one.exchange == ""]
    with Outbox(database_url) as outbox, psycopg.connect(database_url) as connection:
        assert [] == outbox.waiting()
        assert outbox.archive(gone) is None
        assert 1 == connection.execute("INSERT INTO queue_message_keyed (exchange, dedup_key) VALUES ('shop', 'd')").rowcount
        assert ("3",) == connection.execute("SELECT value FROM queue_message_setting WHERE name = 'max_attempts'").fetchone()


def test_what_a_test_has_open_is_not_waited_for_long(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction holds rows of the queue while the clock runs."""
    monkeypatch.setattr("relay.testing.database.LOCK_SECONDS", 0.1)
    with Outbox(database_url) as outbox, psycopg.connect(database_url) as connection:
        enqueue(connection, Message(exchange="shop"))
        connection.commit()
        connection.execute("UPDATE queue_message SET available_at = now() + interval '1 hour'")
        with pytest.raises(TestDatabaseError, match="commit or roll back what the test has open"):
            outbox.clear()


def test_a_database_that_is_not_there_is_named(database_url: str) -> None:
    """In one sentence."""
    with (
        pytest.raises(TestDatabaseError, match=r"^The test database does not answer \(.*does not exist\)\.$"),
        Outbox(f"{database_url}_not"),
    ):
        pass
