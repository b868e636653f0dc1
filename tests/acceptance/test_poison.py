"""The whole catalogue of bad and odd messages through one relay: each ends as it says, and every neighbour arrives once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from relay import devservers
from tests.support.broker.raw_amqp import RawClient
from tests.support.database.queue import Queue
from tests.support.poison.catalogue import POISON, Poison
from tests.support.poison.poisoning import (
    BARRED,
    MAY_WRITE,
    Sent,
    expect_archived,
    expect_refused,
    expect_seen,
    insert,
    prepare,
    read_archive,
)
from tests.support.relays.processes import Relays

KINDS = 58
"""Numbers of the catalogue."""
FORBIDDEN = [entry for entry in POISON if "allow_list" in entry.needs]
"""Those need a relay with an allow-list, which would forbid others."""


@pytest.fixture
def barred_url(own_broker: devservers.RabbitMQ, unique: str) -> Iterator[str]:
    """A vhost in which guest, who is the relay too, may not write to some exchanges."""
    url = own_broker.add_vhost(unique)
    own_broker.ctl("set_permissions", "-p", unique, "guest", ".*", MAY_WRITE, ".*")
    yield url
    own_broker.delete_vhost(unique)


@pytest.fixture
async def client(barred_url: str) -> AsyncIterator[RawClient]:
    """A bare consumer, which sees every property as it is."""
    async with RawClient(barred_url) as made:
        yield made


async def put_all(queue: Queue, client: RawClient, entries: list[Poison], prefix: str) -> tuple[list[Sent], list[str]]:
    """Put entries, each followed by a plain message; return both."""
    await client.declare_exchange(f"{prefix}.good")
    await client.consume(f"{prefix}.good", "key")
    sent: list[Sent] = []
    neighbours: list[str] = []
    for number, entry in enumerate(entries):
        word = BARRED if "no_permission" in entry.needs else "e"
        sent.append(await insert(queue, entry, await prepare(queue, client, entry, f"{prefix}.{word}{number}")))
        neighbours += await queue.insert(exchange=f"{prefix}.good", routing_key="key")
    return sent, neighbours


def test_the_catalogue_is_whole() -> None:
    """Each of its kinds has an entry."""
    assert {*range(1, KINDS + 1)} == {entry.kind for entry in POISON}


@pytest.mark.timeout(180)
@pytest.mark.slow
@pytest.mark.ids("A9", "A10", "C3", "C9", "C15", "D5", "D6")
async def test_every_kind_ends_as_the_catalogue_says(relays: Relays, queue: Queue, client: RawClient, barred_url: str, unique: str) -> None:
    """Refused by the INSERT, rejected, failed after its attempts, or delivered byte for byte; each neighbour once."""
    entries = [entry for entry in POISON if entry not in FORBIDDEN]
    for name, value in (("max_attempts", "2"), ("backoff_base", "0.1")):
        await queue.sql("SELECT queue_message_config_set(%s, %s)", name, value)
    sent, neighbours = await put_all(queue, client, entries, unique)
    delivered = [id_ for one in sent if one.arrives for id_ in one.ids]
    await relays.start(database=queue.url, broker=barred_url)
    deliveries = await client.deliveries(len(delivered) + len(neighbours))
    await queue.settled(sum(one.stays for one in sent), seconds=60)

    expect_refused(sent)
    assert dict.fromkeys([*neighbours, *delivered], 1) == Counter(each.relay_id for each in deliveries)
    expect_seen(sent, {each.relay_id: each for each in deliveries})
    archive = await read_archive(queue)
    assert {"success"} == {archive[id_]["result"] for id_ in neighbours}
    expect_archived(sent, archive)


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
    expect_archived(sent, await read_archive(queue))
