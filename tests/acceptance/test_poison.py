"""The whole catalogue of bad and odd messages through one relay: each ends as it says, and every neighbour arrives once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg import sql

from relay import local
from tests.support.poison import POISON, Poison
from tests.support.queue import Queue
from tests.support.raw_amqp import RawClient
from tests.support.relays import Relays

FORBIDDEN = [entry for entry in POISON if "allow_list" in entry.needs]
"""Those need a relay with an allow-list, which would forbid others."""
BARRED = "barred"
"""Stands in the names of exchanges to which the relay may not write."""
STAYS = {"year_9999", "archive_refuses"}
"""Needs of messages that must still be in the queue in the end."""


@dataclass
class Sent:
    """One entry, the ids that its INSERT gave, and what the INSERT said if it was refused."""

    entry: Poison
    ids: list[str] = field(default_factory=list)
    refusal: str = ""


@pytest.fixture
def barred_url(own_broker: local.RabbitMQ, unique: str) -> Iterator[str]:
    """A vhost in which guest, who is the relay too, may not write to some exchanges."""
    url = own_broker.add_vhost(unique)
    own_broker.ctl("set_permissions", "-p", unique, "guest", ".*", f"^(?!.*{BARRED})", ".*")
    yield url
    own_broker.delete_vhost(unique)


@pytest.fixture
async def client(barred_url: str) -> AsyncIterator[RawClient]:
    """A bare consumer, which sees every property as it is."""
    async with RawClient(barred_url) as made:
        yield made


async def put(queue: Queue, client: RawClient, entry: Poison, exchange: str) -> Sent:
    """Make what the entry needs, and insert it."""
    plain = {"exchange": exchange, "routing_key": "key"}
    target = entry.claim(exchange, "key") if entry.encodable else None
    if target and entry.outcome != "refused":
        if target.exchange and not target.exchange.startswith("amq.") and "no_exchange" not in entry.needs:
            await client.declare_exchange(target.exchange, internal="internal_exchange" in entry.needs)
        if entry.outcome == "delivered":
            name = await client.consume(target.exchange, target.routing_key)
            plain["routing_key"] = plain["routing_key"] if target.exchange else name
    if "archive_refuses" in entry.needs:
        plain["routing_key"] = "key"
        refused = sql.SQL("ALTER TABLE queue_message_archive ADD CONSTRAINT refused CHECK (exchange <> {})").format(sql.Literal(exchange))
        await queue.connection.execute(refused)
    return await insert(queue, entry, plain)


async def insert(queue: Queue, entry: Poison, plain: dict[str, str]) -> Sent:
    """Insert an entry, as often as it says."""
    sent = Sent(entry)
    try:
        for _ in range(entry.rows):
            cursor = await queue.connection.execute(entry.insert(sql.Identifier("queue_message"), **plain))
            sent.ids += [id_ for (id_,) in await cursor.fetchall()]
    except psycopg.Error as error:
        sent.refusal = str(error)
    return sent


async def put_all(queue: Queue, client: RawClient, entries: list[Poison], prefix: str) -> tuple[list[Sent], list[str]]:
    """Put entries, each followed by a plain message; return both."""
    await client.declare_exchange(f"{prefix}.good")
    await client.consume(f"{prefix}.good", "key")
    sent: list[Sent] = []
    neighbours: list[str] = []
    for number, entry in enumerate(entries):
        word = BARRED if "no_permission" in entry.needs else "e"
        sent.append(await put(queue, client, entry, f"{prefix}.{word}{number}"))
        neighbours += await queue.insert(exchange=f"{prefix}.good", routing_key="key")
    return sent, neighbours


def expect_archived(one: Sent, archive: dict[str, dict[str, Any]]) -> None:
    """The archive says of a message what the catalogue says."""
    for id_ in one.ids:
        row = archive[id_]
        result = "success" if one.entry.outcome == "delivered" else one.entry.outcome
        assert (result, one.entry.code or None) == (row["result"], row["error_code"]), one.entry
        if result != "success":
            assert row["error_detail"], one.entry


async def read_archive(queue: Queue) -> dict[str, dict[str, Any]]:
    """Result, code and sentence by id."""
    columns = "id::text, result, error_code, error_detail"
    rows = await queue.sql(f"SELECT {columns} FROM queue_message_archive")
    return {id_: {"result": result, "error_code": code, "error_detail": detail} for id_, result, code, detail in rows}


@pytest.mark.timeout(180)
@pytest.mark.slow
@pytest.mark.ids("A9", "A10", "C3", "C9", "C15", "D5", "D6")
async def test_every_kind_ends_as_the_catalogue_says(relays: Relays, queue: Queue, client: RawClient, barred_url: str, unique: str) -> None:
    """Refused by the INSERT, rejected, failed after its attempts, or delivered byte for byte; each neighbour once."""
    entries = [entry for entry in POISON if entry not in FORBIDDEN]
    for name, value in (("max_attempts", "2"), ("backoff_base", "0.1")):
        await queue.sql("SELECT queue_message_config_set(%s, %s)", name, value)
    sent, neighbours = await put_all(queue, client, entries, unique)
    staying = [one for one in sent if STAYS & {*one.entry.needs}]
    delivered = [one for one in sent if one.entry.outcome == "delivered" and "year_9999" not in one.entry.needs]
    await relays.start(database=queue.url, broker=barred_url)
    deliveries = await client.deliveries(sum(len(one.ids) for one in delivered) + len(neighbours))
    await queue.settled(len(staying), seconds=60)

    for one in sent:
        refused = one.entry.outcome == "refused"
        assert refused == (not one.ids), (one.entry, one.refusal)
        assert not refused or any(sentence in one.refusal for sentence in one.entry.sentences), (one.entry, one.refusal)
    assert dict.fromkeys([*neighbours, *(id_ for one in delivered for id_ in one.ids)], 1) == Counter(each.relay_id for each in deliveries)
    came = {each.relay_id: each for each in deliveries}
    for one in delivered:
        for id_ in one.ids:
            expected = {name: value for name, value in one.entry.expect.items() if not name.startswith("body")}
            assert expected == came[id_].seen(expected), one.entry
            assert one.entry.claim("", "").payload == came[id_].body, one.entry
    archive = await read_archive(queue)
    assert {"success"} == {archive[id_]["result"] for id_ in neighbours}
    for one in sent:
        if one not in staying:
            expect_archived(one, archive)


@pytest.mark.ids("A9")
async def test_what_the_allow_list_leaves_out_is_rejected(
    relays: Relays, queue: Queue, client: RawClient, barred_url: str, unique: str
) -> None:
    """An exchange that the operator did not name gets nothing, its messages a reason, and its neighbours arrive once."""
    sent, neighbours = await put_all(queue, client, FORBIDDEN, unique)
    await relays.start(database=queue.url, broker=barred_url, settings={"RELAY_ALLOWED_EXCHANGES": f"{unique}.*"})
    deliveries = await client.deliveries(len(neighbours))
    await queue.settled(seconds=60)

    assert neighbours == [each.relay_id for each in deliveries]
    archive = await read_archive(queue)
    for one in sent:
        expect_archived(one, archive)
