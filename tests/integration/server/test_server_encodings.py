"""Databases in other encodings than UTF-8: what their letters are, a relay sends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

import psycopg
import pytest
from psycopg.types.json import Jsonb

from relay.errors import MigrationError, StoreError
from relay.message import Archive, Result, Retry
from relay.ports import SettleRow
from relay.postgres.schema.migrate import migrate
from tests.support.broker.topology import Topology
from tests.support.database.queue import MakeStore, Queue
from tests.support.relays.processes import Relays
from tests.support.servers.encodings import encoded_database
from tests.support.servers.shared import Databases

WORDS: Mapping[str, str] = {"LATIN1": "Grüße", "WIN1252": "Größe-€", "EUC_JP": "注文-テスト"}
"""What each of them can write, and ASCII cannot."""


class Encoded(NamedTuple):
    """A database with the schema, and a word that it can write."""

    queue: Queue
    word: str


@pytest.fixture(params=WORDS)
async def encoded(request: pytest.FixtureRequest, databases: Databases) -> AsyncIterator[Encoded]:
    """One in each encoding."""
    with encoded_database(databases, request.param) as url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, client_encoding="UTF8") as connection:
            yield Encoded(Queue(url, connection), WORDS[request.param])


async def test_texts_come_out_of_the_queue_and_into_the_archive_as_they_were_given(encoded: Encoded, make_store: MakeStore) -> None:
    """Names, content, options, and the reason of a failure."""
    queue, word = encoded
    [id_] = await queue.insert(1, exchange=word, routing_key=word, content=Jsonb({word: word}), options=Jsonb({"headers": {"h": word}}))
    store = make_store(word, url=queue.url)
    await store.register()
    batch = await store.batch()
    [claim] = batch.claims
    assert (word, word, word) == (claim.exchange, claim.routing_key, word)
    assert claim.payload == f'{{"{word}": "{word}"}}'.encode()
    assert word in (claim.options or b"").decode()

    assert [] == await store.archive(batch, [SettleRow(claim, Archive(Result.FAILED, "code", f"no {word}"), None, None)], again=False)
    archived = await queue.archived(id_)
    assert (word, word, {word: word}, f"no {word}", word) == tuple(
        archived[name] for name in ("exchange", "routing_key", "content", "error_detail", "handled_by")
    )


async def test_a_name_that_the_database_cannot_write_is_told(encoded: Encoded, make_store: MakeStore) -> None:
    """Nothing is down: another name will do."""
    store = make_store("ℵ0", url=encoded.queue.url)
    with pytest.raises(StoreError, match="lacks a letter of what is written there, such as one of RELAY_NAME"):
        await store.register()


async def test_a_relay_sends_them_in_utf_8(relays: Relays, encoded: Encoded, topology: Topology, amqp_url: str) -> None:
    """Whatever the database keeps them in."""
    queue, word = encoded
    inbox = await topology.declare(routing_key=word)
    sent = await queue.insert(3, exchange=inbox.exchange, routing_key=word, content=Jsonb({word: word}))
    relay = await relays.start(f"relay {word}", database=queue.url, broker=amqp_url)
    came = await topology.drain(inbox.queue, 3, seconds=20)
    assert {f'{{"{word}": "{word}"}}'.encode()} == {message.body for message in came}
    assert {word} == {message.routing_key for message in came}
    assert sorted(sent) == sorted(str(message.message_id) for message in came)
    await queue.settled()
    assert 0 == await relay.stop()
    assert [] == relay.of("database_down") + relay.of("maintenance_failed") + relay.of("settle_failed")


@pytest.mark.parametrize("count", [1, 2])
async def test_relays_send_them_in_the_order_of_their_keys(
    relays: Relays, encoded: Encoded, topology: Topology, amqp_url: str, count: int
) -> None:
    """Whatever letters the keys have: every relay takes their lanes from the database."""
    queue, word = encoded
    inbox = await topology.declare(routing_key=word)
    keys, numbers = [word, f"{word}-{word}", "plain"], [*range(5)]
    for number in numbers:
        for key in keys:
            content = Jsonb({"key": key, "number": number})
            await queue.insert(1, exchange=inbox.exchange, routing_key=word, content=content, ordering_key=key)
    running = [await relays.start(f"relay {number}", database=queue.url, broker=amqp_url) for number in range(count)]
    came = [json.loads(message.body) for message in await topology.drain(inbox.queue, len(keys) * len(numbers), seconds=20)]
    await queue.settled()

    assert dict.fromkeys(keys, numbers) == {key: [one["number"] for one in came if one["key"] == key] for key in keys}
    assert [0] * count == [await relay.stop() for relay in running]


async def test_a_reason_with_letters_that_the_database_lacks_is_kept_with_their_codes(encoded: Encoded, make_store: MakeStore) -> None:
    """A settle and a release get through all the same, such as with what a handler of `relay work` said."""
    queue, word = encoded
    first, second = await queue.insert(2)
    store = make_store("relay", url=queue.url)
    await store.register()
    batch = await store.batch()
    reason = f"no {word} in ☃"
    failed = [SettleRow(batch.claims[0], Archive(Result.FAILED, "code", reason), None, None)]
    again = [SettleRow(batch.claims[1], Retry(60.0, "code", reason), None, None)]
    assert [] == await store.archive(batch, failed, again=False)
    assert [] == await store.release(batch, again, again=False) == await store.release(batch, again, again=True)
    kept = reason.encode("ascii", "backslashreplace").decode()
    assert kept == (await queue.archived(first))["error_detail"]
    assert f"code: {kept}" == (await queue.row(second))["last_error"]


def test_a_migration_refuses_a_database_without_an_encoding(databases: Databases) -> None:
    """In one sentence, and leaves nothing behind."""
    name = "relay_test_sql_ascii"
    with psycopg.connect(databases.url("postgres"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode())
        try:
            with pytest.raises(MigrationError, match=r"^The database has the encoding SQL_ASCII, .* ENCODING 'UTF8' .*\.$"):
                migrate(databases.url(name))
            with psycopg.connect(databases.url(name), autocommit=True) as connection:
                assert (0,) == connection.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'queue%'").fetchone()
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
