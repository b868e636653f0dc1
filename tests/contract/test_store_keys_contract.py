"""What a store says of keys and of where something is due, on PostgreSQL and on the tables in memory; and that no method is left out."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from relay.claims.cursor import Cursor
from relay.claims.intake import IntakeStore
from relay.claims.key_bounds import NOWHERE
from relay.claims.scrub import ScrubStore
from relay.maintenance.lock_renewer import LockStore
from relay.ports import QueueLook, ScanFinding, SettleStore
from tests import ROOT
from tests.support.database.queue import FIRST, ids_of
from tests.support.fakes.store_backends import Memory, Place, Postgres

EVERYWHERE = range(64)


@pytest.fixture(params=["memory", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """A queue in memory, and one in PostgreSQL."""
    if request.param == "memory":
        return Memory()
    return Postgres(request.getfixturevalue("queue"), request.getfixturevalue("make_store"))


async def test_a_claim_takes_what_is_ready_once(place: Place) -> None:
    """The plain one, which no other test here goes through."""
    store = await place.store()
    ids = await place.insert(2)
    claims = [await store.claim(FIRST, limit=10, limit_bytes=100_000) for _ in range(2)]
    assert [ids, []] == [ids_of(claimed.batch) for claimed in claims]


async def test_a_look_says_where_something_may_be_due(place: Place) -> None:
    """Among new messages, in order or not, and among those whose wait is over."""
    store = await place.store()

    async def seen() -> QueueLook:
        return await store.look(fresh=Cursor(), after="-infinity", paused=["audit"], lanes=EVERYWHERE, ordered=Cursor())

    assert QueueLook(fresh=False, ordered=False, waiting=False) == await seen()
    await place.insert(ordering_key="k")
    assert QueueLook(fresh=False, ordered=True, waiting=False) == await seen()
    await place.insert(wait=-60, exchange="audit")
    assert QueueLook(fresh=False, ordered=True, waiting=False) == await seen()
    await place.insert(wait=-60)
    assert QueueLook(fresh=False, ordered=True, waiting=True) == await seen()
    await place.insert()
    assert QueueLook(fresh=True, ordered=True, waiting=True) == await seen()


async def test_keys_whose_wait_is_over_are_found(place: Place) -> None:
    """Not those that still wait, nor those that never waited."""
    store = await place.store()
    await place.insert(ordering_key="over", wait=-60)
    await place.insert(ordering_key="waits", wait=3600)
    await place.insert(ordering_key="ready")
    assert ["over"] == [one.key for one in (await store.due()).findings]


async def test_the_head_of_a_key_says_what_it_is(place: Place) -> None:
    """Its place, exchange and lane, whether it may go, and whether it has lost a lock; nothing of a key without messages."""
    store = await place.store()
    await place.insert(ordering_key="k", exchange="audit")
    first = await place.newest()
    await place.insert(ordering_key="k")
    lanes = await store.keep_lanes()

    async def head(*held: str) -> ScanFinding:
        _, heads = await store.find_heads(["k", "none"], [NOWHERE] * 2, running=[], paused=held)
        return heads.pop("k")

    one = await head()
    assert ("key", first, "audit", "k") == (one.kind, one.position, one.exchange, one.key)
    assert one.lane in lanes
    assert "blocked" == (await head("audit")).kind
    await store.claim_heads("k", lanes=lanes)
    assert "blocked" == (await head()).kind
    await place.expire()
    await store.sweep()
    assert (first, "suspect", True) == ((again := await head()).position, again.kind, again.trusted)


async def test_who_leaves_frees_its_lanes(place: Place) -> None:
    """The relays that are left get its lanes at once, since it is no longer counted."""
    first, second = await place.store("first"), await place.store("second")
    assert [32, 32] == [len(await store.keep_lanes()) for store in (first, second)]
    await first.unregister(holds_locks=False)
    assert 64 == len(await second.keep_lanes())


async def test_who_says_that_it_has_no_broker_has_no_lanes_beside_one_that_has(place: Place) -> None:
    """It could send nothing of them. Where none has a broker, or all have, they share."""
    first, second = await place.store("first"), await place.store("second")

    async def tell(*brokers: str) -> list[int]:
        for store, broker in zip((first, second), brokers, strict=True):
            await store.heartbeat(json.dumps({"broker": broker}))
        for store in (first, second):  # who has too many gives them up first
            await store.keep_lanes()
        return [len(await store.keep_lanes()) for store in (first, second)]

    assert [32, 32] == await tell("down or blocked", "down or blocked")
    assert [64, 0] == await tell("up", "down or blocked")
    assert [32, 32] == await tell("up", "up")
    assert [0, 64] == await tell("down or blocked", "up")


def test_every_method_of_a_store_has_a_case() -> None:
    """Both places have a case: the tables in memory, which replace PostgreSQL in simulations, must do as it does."""
    called: set[str] = set()
    for file in (*Path(__file__).parent.glob("test_store*_contract.py"), ROOT / "tests/support/database/queue.py"):
        calls = (node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        called |= {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
    asked = {name for port in (IntakeStore, ScrubStore, SettleStore, LockStore) for name in dir(port) if not name.startswith("_")}
    # PostgreSQL alone can hold what it cannot hand out.
    assert set() == asked - called - {"reject_unprintable"}
