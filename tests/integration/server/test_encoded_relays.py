"""Relays of databases in other encodings than UTF-8, in the hands of others: killed, shared with applications, operated by key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

import psycopg
import pytest
from psycopg.types.json import Jsonb

from relay.errors import StoreError
from relay.postgres.schema.migrate import migrate
from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays
from tests.support.servers.shared import Databases

KEYS: Mapping[str, str] = {"LATIN1": "äöüÄÖÜßéñçøþ", "WIN1252": "€ŠšŽžŒœŸ†™äß", "EUC_JP": "注文日本語テスト配送東京"}
"""A dozen ordering keys in each encoding, one letter each."""
LOCK_SECONDS = 3
ROUNDS = 5
CREATE = "CREATE DATABASE {} ENCODING '{}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
ALL_OWNED = "SELECT count(*) = 64 AND count(DISTINCT owner) = %s FROM queue_message_lane WHERE owner IS NOT NULL"


class Encoded(NamedTuple):
    """A database with the schema, its encoding, and keys that it can write."""

    queue: Queue
    encoding: str

    @property
    def keys(self) -> list[str]:
        """Those of its letters."""
        return [*KEYS[self.encoding]]


@pytest.fixture(params=KEYS)
async def encoded(request: pytest.FixtureRequest, databases: Databases) -> AsyncIterator[Encoded]:
    """One in each encoding, which sessions that do not ask for another one speak."""
    name = f"relay_test_of_{request.param.lower()}"
    with psycopg.connect(databases.url("postgres"), autocommit=True) as server:
        server.execute(CREATE.format(name, request.param).encode())
        try:
            server.execute(f"ALTER DATABASE {name} SET client_encoding = '{request.param}'".encode())
            migrate(databases.url(name), seed={"lock_seconds": str(LOCK_SECONDS)})
            async with await psycopg.AsyncConnection.connect(databases.url(name), autocommit=True, client_encoding="UTF8") as connection:
                yield Encoded(Queue(databases.url(name), connection), request.param)
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def insert(queue: Queue, inbox: Declared, keys: list[str], numbers: range) -> None:
    """Messages of all keys in turn, each in a transaction of its own."""
    for number in numbers:
        for key in keys:
            content = Jsonb({"key": key, "number": number})
            await queue.insert(1, exchange=inbox.exchange, routing_key=inbox.routing_key, content=content, ordering_key=key)


async def came(topology: Topology, inbox: Declared, count: int) -> dict[str, list[int]]:
    """Numbers of each key in the order in which they came first."""
    numbers: dict[str, list[int]] = {}
    while sum(map(len, numbers.values())) < count:
        for message in await topology.drain(inbox.queue, 1, seconds=60):
            body = json.loads(message.body)
            if body["number"] not in (of_key := numbers.setdefault(body["key"], [])):
                of_key.append(body["number"])
    return numbers


async def test_the_keys_of_a_killed_relay_go_on_with_another_one(
    relays: Relays, encoded: Encoded, topology: Topology, inbox: Declared, amqp_url: str
) -> None:
    """Its lanes change hands, and what it had locked comes back: each key's messages still come in their order."""
    queue, keys = encoded.queue, encoded.keys
    running = [await relays.start(name, database=queue.url, broker=amqp_url) for name in ("one", "other")]
    await until(lambda: queue.value(ALL_OWNED, 2))
    await insert(queue, inbox, keys, range(ROUNDS))
    await running[0].kill()
    await insert(queue, inbox, keys, range(ROUNDS, 2 * ROUNDS))

    numbers = await came(topology, inbox, 2 * ROUNDS * len(keys))
    await queue.settled()

    assert {key: [*range(2 * ROUNDS)] for key in keys} == numbers
    assert await queue.value(ALL_OWNED, 1)
    assert 0 == await running[1].stop()
    assert [] == running[1].of("database_down") + running[1].of("maintenance_failed") + running[1].of("settle_failed")


async def test_applications_of_any_client_encoding_share_keys(
    relays: Relays, encoded: Encoded, topology: Topology, inbox: Declared, amqp_url: str
) -> None:
    """One speaks the database's encoding and one UTF-8: the letters are the same, so the key and its lane are too."""
    queue, keys = encoded.queue, encoded.keys
    await relays.start(database=queue.url, broker=amqp_url)
    async with await psycopg.AsyncConnection.connect(queue.url, autocommit=True) as connection:
        assert encoded.encoding == connection.info.parameter_status("client_encoding")
        native = Queue(queue.url, connection)
        for number in range(ROUNDS):
            await insert(native if number % 2 else queue, inbox, keys, range(number, number + 1))

    numbers = await came(topology, inbox, ROUNDS * len(keys))

    assert {key: [*range(ROUNDS)] for key in keys} == numbers
    await queue.settled()


async def test_keys_are_parked_checked_and_resumed_by_their_letters(
    relays: Relays, encoded: Encoded, topology: Topology, inbox: Declared, amqp_url: str
) -> None:
    """On the command line as in the queue."""
    queue, keys = encoded.queue, encoded.keys
    parked = keys[0]
    await relays.command("key", "park", parked, database=queue.url)
    await insert(queue, inbox, keys, range(2))
    await relays.start(database=queue.url, broker=amqp_url)
    assert {key: [0, 1] for key in keys[1:]} == await came(topology, inbox, 2 * (len(keys) - 1))
    await queue.settled(2)

    assert parked in await relays.command("key", "list", database=queue.url)
    found = json.loads(await relays.command("check", "--queue", "--wait", "1", "--json", database=queue.url))
    assert (2, 1, 0) == (found["held"], found["held_keys"], found["lost"])

    await relays.command("key", "resume", parked, database=queue.url)
    assert {parked: [0, 1]} == await came(topology, inbox, 2)
    await queue.settled()


def test_an_encoding_without_a_way_to_utf_8_is_refused_with_what_to_do(databases: Databases) -> None:
    """MULE_INTERNAL has none; PostgreSQL answers, so it is not said to be down."""
    name = "relay_test_mule"
    with psycopg.connect(databases.url("postgres"), autocommit=True) as server:
        server.execute(CREATE.format(name, "MULE_INTERNAL").encode())
        try:
            with pytest.raises(
                StoreError, match=r"^PostgreSQL has no way from this database's encoding .* UTF8 and MULE_INTERNAL is not supported\)\.$"
            ):
                migrate(databases.url(name))
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
