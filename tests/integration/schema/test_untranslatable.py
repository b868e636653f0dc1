"""Letters that a database's encoding has and UTF-8 lacks: no INSERT takes them, and one that is already there stops no other message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, unchecked, until
from tests.support.relays.processes import Relays
from tests.support.servers.encodings import BYTE, MAKE_BYTES, UNTRANSLATABLE, encoded_database, letter
from tests.support.servers.shared import Databases

DOORS = (
    ("exchange", "INSERT INTO queue_message (exchange) VALUES ({bad})"),
    ("routing_key", "INSERT INTO queue_message (exchange, routing_key) VALUES ('x', {bad})"),
    ("ordering_key", "INSERT INTO queue_message (exchange, ordering_key) VALUES ('x', {bad})"),
    ("content", "INSERT INTO queue_message (exchange, content) VALUES ('x', to_jsonb({bad}))"),
    ("content", "INSERT INTO queue_message (exchange, content) VALUES ('x', jsonb_build_object({bad}, 1))"),
    ("options", "INSERT INTO queue_message (exchange, options) VALUES ('x', jsonb_build_object('type', {bad}))"),
    ("options", "INSERT INTO queue_message (exchange, options) VALUES ('x', jsonb_build_object('headers', jsonb_build_object({bad}, 1)))"),
    ("bundle_key", "INSERT INTO queue_message_keyed (exchange, bundle_key) VALUES ('x', {bad})"),
    ("coalesce_key", "INSERT INTO queue_message_keyed (exchange, coalesce_key) VALUES ('x', {bad})"),
    ("dedup_key", "INSERT INTO queue_message_keyed (exchange, dedup_key) VALUES ('x', {bad})"),
    ("content", "INSERT INTO queue_message_keyed (exchange, bundle_key, content) VALUES ('x', 'k', to_jsonb({bad}))"),
    ("exchange", "INSERT INTO queue_message_schedule (name, spec, exchange) VALUES ('s', '@daily', {bad})"),
    ("content", "INSERT INTO queue_message_schedule (name, spec, exchange, content) VALUES ('s', '@daily', 'x', to_jsonb({bad}))"),
    ("exchange", "INSERT INTO queue_message_contract (exchange, routing_key, version, schema) VALUES ({bad}, '#', 1, 'true')"),
    (
        "schema",
        (
            "INSERT INTO queue_message_contract (exchange, routing_key, version, schema) "
            "VALUES ('x', '#', 1, jsonb_build_object('title', {bad}))"
        ),
    ),
    ("consumer", "INSERT INTO queue_message_receipt (message_id, consumer) VALUES (gen_random_uuid(), {bad})"),
    ("message_id", "INSERT INTO queue_message_received (consumer, message_id) VALUES ('c', {bad})"),
    ("exchange", "SELECT queue_message_pause({bad})"),
    ("ordering_key", "SELECT queue_message_key_park({bad})"),
    (
        "content",
        (
            "SELECT queue_message_replay_rows('job', ARRAY['1']::xid8[], ARRAY[1]::bigint[], ARRAY[gen_random_uuid()], ARRAY['x'], "
            "ARRAY[''], ARRAY[to_jsonb({bad})::text], ARRAY[NULL]::bytea[], ARRAY['{{}}'], ARRAY[NULL]::text[], ARRAY[NULL]::timestamptz[])"
        ),
    ),
)
"""A column, and what writes a letter into it that UTF-8 lacks."""
OTHER_FORMS = {"EUC_JP": r"\xadf0", "EUC_TW": r"\x8ea1c4a1"}
"""Bytes of a letter that UTF-8 has, and that come back from UTF-8 as others."""
SPOILT = {
    "exchange": {"exchange": "'x' || {bad}"},
    "routing_key": {"routing_key": "{bad}"},
    "content": {"content": "to_jsonb({bad})"},
    "long content": {"content": "to_jsonb((SELECT string_agg(md5(n::text), '') FROM generate_series(1, 40000) n) || {bad})"},
    "key of the content": {"content": "jsonb_build_object({bad}, 1)"},
    "options": {"options": "jsonb_build_object('type', {bad})"},
    "ordering_key": {"ordering_key": "{bad}"},
    "past deadline": {"routing_key": "{bad}", "expires_at": "now() - interval '1 min'"},
    "due since": {"routing_key": "{bad}", "available_at": "now() - interval '1 min'"},
}
"""Columns of rows that bypassed the triggers."""


class Encoded(NamedTuple):
    """A database with the schema, and an expression of a letter that UTF-8 lacks."""

    url: str
    bad: str


@pytest.mark.parametrize("encoding", OTHER_FORMS)
def test_no_name_and_no_key_is_taken_in_bytes_that_come_back_as_others(databases: Databases, encoding: str) -> None:
    """A relay asks for what it was given, and would not find the message; a pause would miss the exchange."""
    bad = f"convert_from('{OTHER_FORMS[encoding]}', '{encoding}')"
    with encoded_database(databases, encoding) as url, psycopg.connect(url, autocommit=True, client_encoding="UTF8") as connection:
        for column, statement in DOORS:
            if column in {"content", "options", "schema"}:
                continue
            with pytest.raises(
                psycopg.errors.CheckViolation, match=f"^{column} holds a letter in bytes that PostgreSQL gives back as others"
            ):
                connection.execute(statement.format(bad=bad).encode())
        connection.execute(f"INSERT INTO queue_message (exchange, content) VALUES ('x', to_jsonb({bad}))".encode())
        connection.execute(b"INSERT INTO queue_message (exchange, ordering_key) VALUES ('x', %s)", ["\u6ce8\u6587"])


@pytest.fixture(params=UNTRANSLATABLE)
def encoded(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Encoded]:
    """One in each encoding; UTF8 has bytes that are no letters."""
    with encoded_database(databases, request.param) as url:
        yield Encoded(url, letter(request.param))


def test_every_door_refuses_a_letter_that_utf_8_lacks(encoded: Encoded) -> None:
    """In one sentence with the column."""
    with psycopg.connect(encoded.url, autocommit=True, client_encoding="UTF8") as connection:
        for column, statement in DOORS:
            with pytest.raises(psycopg.errors.CheckViolation) as told:
                connection.execute(statement.format(bad=encoded.bad).encode())
            assert f"{column} holds a letter that UTF-8 lacks, in which messages are sent: leave it out, or write another." == (
                told.value.diag.message_primary
            ), statement
            assert column == told.value.diag.column_name


ARCHIVED = (
    "INSERT INTO queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts, result) "
    "VALUES ('5', 1, gen_random_uuid(), {bad}, '', '{{}}', '{{}}', now(), 1, 'failed')"
)
"""A dead message that is in the archive already."""
KEYED = "INSERT INTO queue_message_keyed_row (seq, exchange, bundle_key, content, due_at) VALUES (1, {bad}, {bad}, '[1]', now())"
"""A message that waits under its key."""


def insert_beside(encoded: Encoded, *statements: str) -> None:
    """Insert rows while no trigger fires."""
    with psycopg.connect(encoded.url, autocommit=True, client_encoding="UTF8") as connection:
        connection.execute("SET session_replication_role = replica")
        for statement in statements:
            connection.execute(statement.format(bad=encoded.bad).encode())


def spoil(encoded: Encoded, exchange: str, routing_key: str) -> None:
    """Insert a row for each column, bypassing the triggers, and a good one after each."""
    for given in SPOILT.values():
        columns = {"exchange": f"'{exchange}'", "routing_key": f"'{routing_key}'"} | given
        insert_beside(encoded, f"INSERT INTO queue_message ({', '.join(columns)}) VALUES ({', '.join(columns.values())})")
        with psycopg.connect(encoded.url, autocommit=True, client_encoding="UTF8") as connection:
            connection.execute("INSERT INTO queue_message (exchange, routing_key) VALUES (%s, %s)", (exchange, routing_key))


def dead_ones(encoded: Encoded) -> dict[str, dict[str, Any]]:
    """Dead messages by id, in UTF-8. Every view is read as well."""
    with psycopg.connect(encoded.url, autocommit=True, client_encoding="UTF8") as connection:
        for view in ("dead_list", "state", "status", "recent_key", "blocked_key", "app", "keyed", "keyed_failing"):
            connection.execute(f"SELECT v::text FROM queue_message_{view} v".encode()).fetchall()
        rows = connection.execute("SELECT id::text, to_jsonb(d) FROM queue_message_dead d").fetchall()
    return dict(rows)


def are_legible(encoded: Encoded, dead: Mapping[str, Any]) -> bool:
    """Every one shows the letter's bytes, and may not be sent again."""
    code = encoded.bad.split("'")[1].removeprefix(r"\x")
    return all(f"<{code}>" in json.dumps(row) and row["error_code"] == "content_unprintable" for row in dead.values())


@pytest.mark.parametrize("encoded", [*UNTRANSLATABLE, "UTF8"], indirect=True)
async def test_what_is_there_already_becomes_dead_and_its_neighbours_arrive(
    encoded: Encoded, relays: Relays, topology: Topology, amqp_url: str
) -> None:
    """Whichever column holds the letter; the archive, the views and the commands show the letter's bytes in ASCII."""
    made = await topology.declare()
    spoil(encoded, made.exchange, made.routing_key)
    insert_beside(encoded, KEYED)
    relay = await relays.start("relay", database=encoded.url, broker=amqp_url)
    assert len(SPOILT) == len(await topology.drain(made.queue, count=len(SPOILT), seconds=30))
    async with await psycopg.AsyncConnection.connect(encoded.url, autocommit=True) as connection:
        await until_dead(connection, len(SPOILT) + 1)
    dead = dead_ones(encoded)
    assert are_legible(encoded, dead)
    assert [] == relay.of("database_down")
    for words in (("show", next(iter(dead))), ("status",), ("check", "--queue"), ("dead", "list")):
        await relays.command(*words, database=encoded.url)


async def until_dead(connection: psycopg.AsyncConnection[Any], count: int) -> None:
    """Wait until so many messages are dead."""

    async def are_dead() -> bool:
        cursor = await connection.execute("SELECT count(*) FROM queue_message_dead")
        return (count,) == await cursor.fetchone()

    await until(are_dead)


@pytest.mark.parametrize("encoded", [*UNTRANSLATABLE, "UTF8"], indirect=True)
async def test_the_owner_mends_all_at_once(encoded: Encoded, relays: Relays) -> None:
    """What no claim meets for a day, and what is in the archive, of which a command shows the letter's bytes before that too."""
    insert_beside(encoded, ARCHIVED, "INSERT INTO queue_message (exchange, available_at) VALUES ({bad}, now() + interval '1 day')")
    [listed] = json.loads(await relays.command("dead", "list", "--json", database=encoded.url))
    with psycopg.connect(encoded.url, autocommit=True) as connection:
        assert (2,) == connection.execute("SELECT queue_message_mend_letters()").fetchone()
        assert (0,) == connection.execute("SELECT queue_message_mend_letters()").fetchone()
        assert ("",) == connection.execute("SELECT coalesce(current_setting('relay.retention', true), '')").fetchone()
    dead = dead_ones(encoded)
    assert 2 == len(dead)
    assert are_legible(encoded, dead)
    assert dead[listed["id"]]["exchange"] == listed["exchange"].replace("><", "")
    with (
        psycopg.connect(encoded.url) as connection,
        pytest.raises(psycopg.errors.CheckViolation, match=r"held (letters that UTF-8 lacks|bytes that are)"),
    ):
        connection.execute("SELECT queue_message_replay(%s)", (next(iter(dead)),))
    await relays.command("dead", "list", database=encoded.url)


def test_the_sweep_of_each_minute_archives_what_no_claim_meets(encoded: Encoded) -> None:
    """Such as a message for tomorrow, which a command that shows it would fail on."""
    insert_beside(encoded, "INSERT INTO queue_message (exchange, available_at) VALUES ({bad}, now() + interval '1 day')")
    with psycopg.connect(encoded.url, autocommit=True) as connection:
        connection.execute("SELECT queue_message_sweep_minute()")
    dead = dead_ones(encoded)
    assert 1 == len(dead)
    assert are_legible(encoded, dead)


@pytest.mark.parametrize("lock", ["NULL", "now() + interval '1 min'"])
async def test_a_name_that_no_relay_can_read_is_archived_although_it_is_locked(queue: Queue, lock: str) -> None:
    """The claim that locked it could not be read, so nothing was published; a content may be another relay's to send."""
    await queue.sql(MAKE_BYTES)
    async with unchecked(queue):
        await queue.sql(
            "INSERT INTO queue_message (exchange, content, lock_expires_at, lock_token, locked_by) "
            f"SELECT one.*, {lock}, CASE WHEN {lock} IS NOT NULL THEN gen_random_uuid() END, CASE WHEN {lock} IS NOT NULL THEN 1 END "
            f"FROM (VALUES ({BYTE}, '1'::jsonb), ('x', to_jsonb('é ' || {BYTE}))) AS one"
        )

    assert (1 if lock != "NULL" else 2) == await queue.value("SELECT queue_message_reject_unprintable()")
    assert "<ff>" == await queue.value("SELECT max(exchange) FILTER (WHERE exchange <> 'x') FROM queue_message_archive")
    assert (None if lock != "NULL" else '"<c3><a9> <ff>"') == await queue.value(
        "SELECT max(content::text) FILTER (WHERE exchange = 'x') FROM queue_message_archive"
    )
