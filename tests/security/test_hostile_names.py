"""Names that are made to be misread, of schemas, tables and channels, through everything that the product does with them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import sql

from relay.pipeline.source.database import Database
from relay.postgres.operator_session import OperatorSession
from relay.postgres.schema.sql_files import Renderer
from tests.support.database.queue import Queue
from tests.support.relays.cli import Cli
from tests.support.relays.processes import Relays
from tests.support.servers.shared import Declare, Drain

NAMES = [
    'a"; DROP SCHEMA public CASCADE; --',
    "%s %(schema)s {0} {name} %1$I %",
    "Ünder $body$ 名.queue_message '",
    "@schema@ @seed@ \\",
    "x" * 63,
]
REFUSED = ["pg_mine", "é" * 32, "a\x1b[2Jb", "a\nb", "x" * 64]
PIPELINE = ["read_now", "read_cluster", "read_registered", "read_lag", "read_newest_archived", "list_closed_days", "read_oldest_dead"]
ASKED: dict[str, Any] = {
    "now": None,
    "end": "0",
    "mark": "0",
    "below": "9",
    "aside": [],
    "results": [],
    "since": "2020-01-01",
    "last": "2020-01-02",
}
REPLAY = {
    "job": "j", "xids": ["7"], "seqs": [1], "ids": ["00000000-0000-7000-8000-000000000001"], "exchanges": ["e"], "routing_keys": ["k"],
    "contents": ["{}"], "bodies": [None], "options": ["{}"], "ordering_keys": [None], "expires_ats": [None], "same_id": False,
}  # fmt: skip


def _run(url: str, name: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(name)))
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.ids("D4")
@pytest.mark.parametrize("name", NAMES)
async def test_a_schema_of_any_name_works_from_end_to_end(
    empty_database_url: str, empty_cli: Cli, relays: Relays, amqp_url: str, declare: Declare, drain: Drain, name: str
) -> None:
    """Migrated, claimed from, settled, looked at, paused, replayed, and read by the pipeline."""
    made, cli = await declare(), empty_cli
    cli.env["RELAY_SCHEMA"] = name
    assert "up to date" in await asyncio.to_thread(cli, "migrate")
    insert = "INSERT INTO queue_message (exchange, routing_key, ordering_key) VALUES (%s, %s, %s) RETURNING id::text"
    [(sent,)] = _run(empty_database_url, name, insert, made.exchange, made.routing_key, name)

    await relays.start(database=empty_database_url, broker=amqp_url, settings={"RELAY_SCHEMA": name})
    assert [sent] == [each.headers["x-relay-id"] for each in await drain(made.queue, 1, seconds=60)]
    for words in (
        ["migrate", "--check"],
        ["status"],
        ["pause", made.exchange],
        ["resume", made.exchange],
        ["limit", made.exchange, "5"],
        ["unlimit", made.exchange],
        ["config", "list"],
        ["key", "list"],
    ):
        await asyncio.to_thread(cli, *words)
    assert name == (await asyncio.to_thread(cli.json, "status"))["schema"]

    with Database(empty_database_url, schema=name) as database:
        assert "content" in [column.name for column in database.columns()]
        for statement in PIPELINE:
            database.fetch(statement, {**ASKED, "schema": name})
        assert 1 == len(database.fetch("enqueue_replayed", REPLAY))
    assert [(True,)] == _run(empty_database_url, name, "SELECT to_regnamespace('public') IS NOT NULL")


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_no_schema_can_have_is_refused_in_one_sentence(empty_cli: Cli, name: str) -> None:
    """Before anything is asked of the database, and without its control characters."""
    sentence = empty_cli.refused("migrate", code=2 if "\x1b" in name or "\n" in name or len(name) > 63 else 1, RELAY_SCHEMA=name)
    assert sentence.isprintable()
    assert "RELAY_SCHEMA" in sentence


@pytest.mark.parametrize("name", NAMES)
def test_what_is_rendered_for_psql_ends_no_quote_early(name: str) -> None:
    """The schema's name appears, quoted, as often as the template uses it."""
    quoted = sql.Identifier(name).as_string(None)
    text = Renderer(name, {})("CREATE TABLE @schema@.t (); SELECT @schema_literal@").decode()
    assert f"CREATE TABLE {quoted}.t (); SELECT {sql.Literal(name).as_string(None)}" == text


@pytest.mark.parametrize("channel", [*NAMES[:3], "x" * 63])
async def test_a_channel_of_any_name_is_heard(queue: Queue, channel: str) -> None:
    """LISTEN takes no parameter, so the name is quoted as an identifier."""
    with OperatorSession(queue.url, schema="public") as console:
        console.listen(channel)
        await queue.sql("SELECT pg_notify(%s, '')", channel)
        assert await asyncio.to_thread(console.wait, 20)


async def test_a_partition_that_somebody_made_up_is_never_dropped(queue: Queue) -> None:
    """A login that may record verifications (`queue_message_etl`) can name any table; retention drops its own partitions alone."""
    tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
    await queue.sql("CREATE TABLE invoice (); CREATE TABLE queue_message_archive_20200101 ()")
    before = await queue.value(tables)
    await queue.sql("SELECT queue_message_config_set('export_registered', 'true'), queue_message_config_set('retention_days', '1')")
    for name in (
        "invoice",
        "queue_message_setting",
        "queue_message_archive_20200101",
        "queue_message_archive",
        'x"; DROP TABLE invoice; --',
    ):
        await queue.sql("INSERT INTO queue_message_export VALUES (%s, 0, 0, '1', now())", name)

    await queue.sql("SELECT * FROM queue_message_retain()")

    assert before == await queue.value(tables)
