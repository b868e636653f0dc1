"""Databases for tests over midnight: a migration makes the partitions of its own day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from relay import devservers
from tests.support.servers.shared import Databases, utc_today

NEWEST = "SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'queue_message_archive_daily'::regclass"
TODAY, YESTERDAY = utc_today(), utc_today() - timedelta(days=1)


@pytest.fixture
def aged(databases: Databases) -> Iterator[str]:
    """A database with the schema that lacks a day, as if it had been migrated yesterday."""
    name = databases.create_migrated()
    with psycopg.connect(databases.url(name), autocommit=True) as connection:
        connection.execute(f"DROP TABLE {_newest(databases, name)}".encode())
    yield name
    databases.drop(name)


def _newest(databases: Databases, name: str) -> str:
    with psycopg.connect(databases.url(name)) as connection:
        [day] = connection.execute(NEWEST).fetchone() or [""]
    return str(day)


def test_a_template_is_copied_on_its_own_day_only(
    databases: Databases, postgres_server: devservers.Postgres | devservers.BorrowedPostgres, aged: str
) -> None:
    """After midnight another one is migrated, once."""
    days = [YESTERDAY, TODAY, TODAY]
    own = Databases(postgres_server.url, templates={YESTERDAY: aged}, today=lambda: days.pop(0))
    old, new, again = (_newest(own, own.create_migrated()) for _ in range(3))
    own.drop_all()

    assert old == _newest(databases, aged)
    assert new == again > old
