"""A login that reads the queue in a serializable transaction makes serializable transactions of others fail that insert into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import IsolationLevel, errors

from tests.support.servers.logins import login
from tests.support.servers.named_outboxes import name_of

TURNS = 20
SERIALIZABLE = IsolationLevel.SERIALIZABLE
READERS = r"""
    SELECT DISTINCT a.usename FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_class c ON c.oid = l.relation
    WHERE l.mode = 'SIReadLock' AND a.datname = current_database() AND c.relname LIKE 'queue\_message%'
"""
"""Who reads the queue in a serializable transaction, as docs/operations/postgresql.md asks."""


@pytest.fixture
def shop(database_url: str) -> Iterator[str]:
    """URL of a producer that may also read and change a table of its own."""
    with login(database_url, "queue_message_producer") as app, psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("CREATE TABLE stock (id int PRIMARY KEY, items int)")
        owner.execute("INSERT INTO stock SELECT id, 0 FROM generate_series(1, 1000) AS id; ANALYZE stock")
        owner.execute(f"GRANT ALL ON stock TO {name_of(app)}".encode())
        yield app


def _committed(shop: str, level: IsolationLevel) -> int:
    """Of 20 transactions that read a row, which a neighbour then changes, and insert a message, those that could commit."""
    done = 0
    with psycopg.connect(shop) as app, psycopg.connect(shop) as neighbour:
        app.isolation_level, neighbour.isolation_level = level, SERIALIZABLE
        for _ in range(TURNS):
            try:
                app.execute("SELECT items FROM stock WHERE id = 1")
                neighbour.execute("UPDATE stock SET items = items + 1 WHERE id = 1")
                neighbour.commit()
                app.execute("INSERT INTO queue_message (exchange) VALUES ('e') RETURNING id")
                app.commit()
                done += 1
            except errors.SerializationFailure:
                app.rollback()
    return done


@pytest.mark.parametrize(
    ("reader", "read_only", "app", "committed"),
    [
        (None, False, SERIALIZABLE, TURNS),
        (SERIALIZABLE, False, SERIALIZABLE, 0),
        (SERIALIZABLE, True, SERIALIZABLE, TURNS),
        (IsolationLevel.REPEATABLE_READ, False, SERIALIZABLE, TURNS),
        (SERIALIZABLE, False, IsolationLevel.REPEATABLE_READ, TURNS),
        (SERIALIZABLE, False, IsolationLevel.READ_COMMITTED, TURNS),
    ],
)
def test_an_open_serializable_reader_fails_serializable_inserts_and_is_seen(
    database_url: str, shop: str, reader: IsolationLevel | None, *, read_only: bool, app: IsolationLevel, committed: int
) -> None:
    """Without it, or with one that is read-only, all commit; so do inserts of lower isolation. `pg_locks` shows the reader."""
    with ExitStack() as stack:
        other = stack.enter_context(login(database_url, "queue_message_producer"))
        if reader is not None:
            session = stack.enter_context(psycopg.connect(other))
            session.isolation_level, session.read_only = reader, read_only
            session.execute("SELECT count(id) FROM queue_message")
        assert committed == _committed(shop, app)
        owner = stack.enter_context(psycopg.connect(database_url))
        seen = reader is SERIALIZABLE and not read_only
        assert (name_of(other) in {who for (who,) in owner.execute(READERS).fetchall()}) == seen
