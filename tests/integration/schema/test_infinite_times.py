"""Times that no calendar has: refused at the INSERT, and harmless where they bypassed the triggers."""

from __future__ import annotations

import json

import pytest

from relay.message import Retry
from relay.ports import SettleRow
from tests.support.database.queue import MadeStore, Queue, ids_of, unchecked
from tests.support.relays.cli import Cli, Seeded


@pytest.mark.parametrize("moment", ["infinity", "-infinity"])
async def test_an_infinite_deadline_fails_no_claim(queue: Queue, store: MadeStore, moment: str) -> None:
    """Its message and the others are claimed."""
    async with unchecked(queue):
        await queue.insert(expires_at=moment)
    await queue.insert()

    late, other = (await store.batch()).claims

    assert (float(moment), None) == (late.expires_in, other.expires_in)


async def test_a_time_before_all_others_fails_no_claim(queue: Queue, store: MadeStore) -> None:
    """A message that is available since ever is due, and goes as others do, also when it is to be tried again."""
    async with unchecked(queue):
        [id_] = await queue.insert(available_at="-infinity", expires_at="infinity")

    batch = (await store.found()).batch

    assert batch is not None
    assert [id_] == ids_of(batch)
    await store.release(batch, [SettleRow(batch.claims[0], Retry(60.0, "no-route", "Nobody listens."), None, None)], again=False)
    assert await queue.value("SELECT available_at > now() FROM queue_message")


@pytest.mark.parametrize("moment", ["infinity", "-infinity"])
def test_an_infinite_time_is_no_obstacle_to_whoever_looks(cli: Cli, seeded: Seeded, moment: str) -> None:
    """`relay status` counts the message, and `relay show` leaves out what no calendar has."""
    seeded.run("SET session_replication_role = replica")
    times = ("created_at", "available_at", "expires_at", "lock_expires_at")
    id_ = seeded.insert(**dict.fromkeys(times, moment))
    seeded.insert(available_at=moment, ordering_key="k")
    seeded.insert(created_at=moment)
    seeded.run("RESET session_replication_role")

    assert json.loads(cli("status", "--json"))
    [part] = json.loads(cli("show", id_, "--json"))["story"]
    assert [None] * 4 == [part[name] for name in times]


def test_an_infinite_deadline_is_not_replayed(cli: Cli, seeded: Seeded) -> None:
    """The message is, without it, as one is whose deadline has passed."""
    seeded.run("SET session_replication_role = replica")
    seeded.archive("failed", "x", expires_at="infinity")
    seeded.run("RESET session_replication_role")

    assert "1 message replayed\n" == cli("replay", "--result", "failed")
