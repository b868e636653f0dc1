"""What operators and a relay's maintenance tasks do to a queue, on PostgreSQL and on the tables in memory: the same cases on both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from relay.engine.policy import Policy
from relay.maintenance.maintenance import MaintenanceStore
from relay.postgres.maintenance_store import PostgresMaintenance
from tests.support.database.queue import MadeStore, ids_of
from tests.support.fakes.store_backends import Memory, Place, Postgres


@pytest.fixture(params=["memory", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """A queue in memory, and one in PostgreSQL."""
    if request.param == "memory":
        return Memory()
    return Postgres(request.getfixturevalue("queue"), request.getfixturevalue("make_store"))


class Chores:
    """The maintenance tasks of one relay, and the policy that they adopted."""

    def __init__(self, store: MadeStore) -> None:
        self.policy: Policy | None = None
        self.store: MaintenanceStore = PostgresMaintenance(store=store, needs=0, adopt=self._adopt)

    def _adopt(self, policy: Policy, settings: Mapping[str, str]) -> None:
        assert settings
        self.policy = policy


async def test_a_skipped_head_is_discarded_and_its_successor_is_due(place: Place) -> None:
    """One that waits, or that a lock held which has expired; a head under a living lock stays, as does a key without messages."""
    store = await place.store()
    lanes = await store.keep_lanes()
    [first], [second] = await place.insert(ordering_key="k"), await place.insert(ordering_key="k")
    assert not await place.skip("nobody's")
    assert await place.skip("k")
    assert {first: "discarded"} == await place.results()
    standing = await place.standing(second)
    assert (standing.attempts, standing.locked, standing.waits) == (0, False, True)
    assert [second] == ids_of((await store.claim_heads("k", lanes=lanes)).batch)
    assert not await place.skip("k")
    await place.expire()
    assert await place.skip("k")
    assert {first: "discarded", second: "discarded"} == await place.results()


async def test_a_report_of_a_relay_that_was_forgotten_enters_it_again(place: Place) -> None:
    """The minute's sweep forgets who has been silent for an hour."""
    store, other = await place.store(), await place.store("other")
    await place.silence(store.relay_id, 4000)
    assert (0, 0) == await Chores(other).store.sweep_minute()
    before = store.relay_id
    await Chores(store).store.heartbeat({})
    assert store.relay_id > before


async def test_expired_locks_are_freed_by_the_minutes_sweep(place: Place) -> None:
    """The sweep frees them whichever relay held them, and whether or not that relay lives."""
    store, other = await place.store(), await place.store("other")
    await place.insert(3)
    await store.batch(limit=2)
    await place.expire()
    await store.batch(limit=1)
    assert (2, 0) == await Chores(other).store.sweep_minute()
    assert (0, 0) == await Chores(other).store.sweep_minute()


async def test_what_an_operator_holds_and_the_policy_are_read_together(place: Place) -> None:
    """And handed on before anything else is done."""
    chores = Chores(await place.store())
    await place.put("max_attempts", "5")
    await place.pause("audit")
    controls = await chores.store.refresh_policy()
    assert (["audit"], {}, 1) == (controls.paused, controls.limits, controls.relays)
    assert chores.policy is not None
    assert chores.policy.retry.max_attempts == 5


async def test_chores_of_a_queue_in_order_find_nothing_to_do(place: Place) -> None:
    """No day to make or to drop, nothing renumbered or scheduled; the gauges count what waits."""
    chores = Chores(await place.store()).store
    await place.insert(3)
    assert (0, (0, 0)) == (await chores.ensure_partitions(), await chores.retain())
    assert (0, False) == (await chores.renumber())[:2]
    await chores.renotify()
    await chores.refresh_contracts()
    assert (0, None) == await chores.run_schedules()
    assert (await chores.fold_in(-math.inf)).due_in is None
    assert (0, 0, 0, None) == (await chores.fold_keys(-math.inf))[:4]
    assert {} == await chores.failing_schedules()
    assert {} == await chores.failing_keys()
    gauges = await chores.read_gauges()
    assert gauges["ready"] == 3


def test_every_chore_has_a_case() -> None:
    """Any maintenance task that is added has a case here, which holds the simulation to what PostgreSQL does."""
    told = Path(__file__).read_text(encoding="utf-8")
    assert [] == [name for name in dir(MaintenanceStore) if not name.startswith("_") and f".{name}(" not in told]
