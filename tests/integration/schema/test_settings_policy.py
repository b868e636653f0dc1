"""Settings that the environment names and the database carries out: both sides agree on names, defaults and bounds."""

from __future__ import annotations

import psycopg
import pytest

from relay.config.settings import POLICY, Settings, load
from relay.postgres.schema.migrate import migrate
from tests.support.database.queue import Queue
from tests.support.pages import doc_tables

LOWEST = {
    "RELAY_MAX_ATTEMPTS": "1", "RELAY_BACKOFF_BASE": "0", "RELAY_BACKOFF_MAX": "0", "RELAY_LOCK_SECONDS": "1", "RELAY_MAX_BODY_BYTES": "1",
    "RELAY_RETENTION_DAYS": "0", "RELAY_DEAD_RETENTION_DAYS": "0", "RELAY_RECEIVED_RETENTION_DAYS": "0",
    "RELAY_UNROUTABLE": "retry", "RELAY_ON_DEAD_KEY": "continue",
    "RELAY_ON_LOCK_EXPIRED": "retry", "RELAY_ARCHIVE": "all", "RELAY_NOTIFY": "idle", "RELAY_DEDUP_SECONDS": "1",
    "RELAY_BUNDLE_SECONDS": "0", "RELAY_BUNDLE_MAX_MESSAGES": "1", "RELAY_BUNDLE_MAX_BYTES": "1",
}  # fmt: skip
HIGHEST = {
    "RELAY_MAX_ATTEMPTS": "1000000", "RELAY_BACKOFF_BASE": "86400", "RELAY_BACKOFF_MAX": "604800", "RELAY_LOCK_SECONDS": "86400",
    "RELAY_MAX_BODY_BYTES": "134217728", "RELAY_RETENTION_DAYS": "36500", "RELAY_DEAD_RETENTION_DAYS": "36500",
    "RELAY_RECEIVED_RETENTION_DAYS": "36500",
    "RELAY_UNROUTABLE": "accept, a.b-c=reject, =retry", "RELAY_ON_DEAD_KEY": "park", "RELAY_ON_LOCK_EXPIRED": "archive",
    "RELAY_ARCHIVE": "failures", "RELAY_NOTIFY": "off", "RELAY_DEDUP_SECONDS": "31536000", "RELAY_BUNDLE_SECONDS": "86400",
    "RELAY_BUNDLE_MAX_MESSAGES": "10000", "RELAY_BUNDLE_MAX_BYTES": "134217728",
}  # fmt: skip
FRACTIONS = {"RELAY_BACKOFF_BASE": "0.25", "RELAY_LOCK_SECONDS": "1e1", "RELAY_BACKOFF_MAX": "599.9999999"}


@pytest.mark.parametrize("environ", [LOWEST, HIGHEST, FRACTIONS], ids=["lowest", "highest", "fractions"])
async def test_the_database_takes_every_policy_that_settings_allow(queue: Queue, environ: dict[str, str]) -> None:
    """What passes here must not fail at migrate."""
    for name, value in load(environ, None).policy().items():
        assert await queue.value("SELECT queue_message_setting_error(%s, %s)", name, value) is None


async def test_names_and_defaults_are_those_of_the_database(queue: Queue) -> None:
    """A new database behaves as the page of settings says; what is of the export alone is no setting of a relay."""
    rules: dict[str, str] = dict(await queue.sql("SELECT name, fallback FROM queue_message_setting_rule()"))

    assert {*POLICY, *doc_tables.DATABASE_ALONE} == set(rules)
    assert rules == {name: rule[0] for name, rule in doc_tables.rules().items()}
    assert Settings(name="one").under(rules) == Settings(name="one")


def test_a_policy_in_the_environment_seeds_a_new_database(empty_database_url: str) -> None:
    """Set on purpose it is written at migrate, and the relay then agrees with the database."""
    settings = load(HIGHEST, None)

    migrate(empty_database_url, schema="public", seed=settings.policy())

    with psycopg.connect(empty_database_url) as connection:
        held: dict[str, str] = dict(connection.execute("SELECT name, value FROM queue_message_setting").fetchall())
    assert "off" == held["notify"]
    assert [] == settings.overruled(held)
