"""Each look at a long queue walks at most so many messages of any kind. It says how far it came, and the next continues there."""

from __future__ import annotations

from typing import Any

import pytest

from relay.claims.cursor import LAST_XID, Cursor, cut_at
from relay.claims.key_bounds import NOWHERE
from relay.claims.stream import WALK
from relay.message import START, Range
from relay.ports import Fresh
from relay.postgres.array_literal import literal
from relay.postgres.parameters import at, heads_of, probe, ranges_of, wanted_of
from relay.postgres.payload_fetcher import LARGE
from relay.postgres.session import ALWAYS, BY_INDEX, IN_ORDER
from relay.postgres.store import LOOK, MAX_FINDINGS, PAGE
from tests.support.database.claimers import Claimer
from tests.support.database.plans import explain
from tests.support.database.queue import END, PLENTY, MadeStore, Queue, ids_of

pytestmark = pytest.mark.slow

MANY = 100_000
MOST_PAGES = 1600
"""Measured: 1,461 for a claim of fresh messages, 364 for a page of a scan; 3,000 and more where all of them are walked."""
CROWDS = {
    "fresh": "",
    "due": "available_at = now() - n * interval '1 ms'",
    "due at once": "available_at = now() - interval '1 h'",
    "of one key": "ordering_key = 'k'",
    "due of one key": "ordering_key = 'k', available_at = now() - n * interval '1 ms'",
    "delayed": "available_at = now() + interval '1 day' + n * interval '1 ms'",
    "suspect": "available_at = now() - n * interval '1 ms', locked_by = 9, attempts = 2",
    "due of a parked key": "ordering_key = 'parked', available_at = now() - n * interval '1 ms'",
    "of another cluster": "xid = '9000000000'",
}
"""Messages that stand before all others, of a paused exchange unless another one is named, by what sets them apart."""
NOT_PAUSED = {"due of a parked key": "mail", "of another cluster": "mail"}


async def crowd(queue: Queue, kind: str) -> None:
    """Insert very many messages of a kind; no application can write some of them."""
    columns = {"exchange": repr(NOT_PAUSED.get(kind, "audit"))} | dict(pair.split(" = ") for pair in CROWDS[kind].split(", ") if pair)
    await queue.sql("SELECT queue_message_key_park('parked')")
    await queue.sql(f"SET session_replication_role = {'replica' if columns.keys() & {'locked_by', 'xid'} else 'origin'}")
    await queue.sql(
        f"INSERT INTO queue_message ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM generate_series(1, {MANY}) AS n"
    )
    await queue.sql("RESET session_replication_role")


async def looks(queue: Queue, store: MadeStore) -> dict[str, int]:
    """Pages that each statement looks at which a relay asks of the queue that has just connected."""
    lanes = list(await store.keep_lanes())
    claim, where = wanted_of(Fresh(Cursor().ranges(), WALK, ["audit"]))
    values: dict[str, Any] = {
        **where, "limit": 500, "limit_bytes": PLENTY, "lock_seconds": 30.0, "now": None, "large": LARGE, "relay_id": store.relay_id,
        "token": "00000000-0000-7000-8000-000000000001", "held": ["audit"], "lanes": lanes, "most": MAX_FINDINGS, "lag": 2.0,
        "after": "-infinity", **heads_of(END, {}), "crowded": [], **at("from", START), **at("head", START), **at("lanes_head", START),
        "pending": "{}", "lanes_pending": "{}",
    }  # fmt: skip
    names = store._statements
    asked = {
        "fresh": (names.claim(claim), values, BY_INDEX),
        "scan due": (names.scan("due"), values | {"walk": PAGE}, BY_INDEX),
        "scan left": (names.scan("left"), values | {"walk": PAGE}, ALWAYS | IN_ORDER),
        "list keys": (names["list_keys"], values | {"walk": PAGE, **ranges_of(Cursor().ranges())}, BY_INDEX),
        "find heads": (names["find_heads"], values | probe(["k", "parked", "other"], [NOWHERE] * 3, [], ["audit"]), BY_INDEX),
        "look": (names["look"], values | {"walk": LOOK, "pending": literal([]), "lanes_pending": literal([])}, BY_INDEX),
    }  # fmt: skip
    return {name: (await explain(queue.connection, *one)).pages for name, one in asked.items()}


@pytest.mark.ids("B7")
@pytest.mark.parametrize("kind", CROWDS)
async def test_no_look_walks_all_of_a_paused_exchange(queue: Queue, store: MadeStore, kind: str) -> None:
    """With and without statistics, at the first look of a relay that has just begun."""
    await crowd(queue, kind)
    for statistics in ("SELECT", "VACUUM ANALYZE queue_message"):
        await queue.sql(statistics)
        found = await looks(queue, store)
        assert {} == {name: pages for name, pages in found.items() if pages > MOST_PAGES}


async def test_a_claim_of_fresh_messages_goes_on_where_the_last_one_stopped(queue: Queue, store: MadeStore) -> None:
    """Each claim walks no further than it may. The one that reaches the end finds the message there."""
    await crowd(queue, "fresh")
    [other] = await queue.insert()
    ranges, claims = [Range(START, LAST_XID)], 0
    found: list[str] = []
    while not found:
        claimed = await store.take(Fresh(ranges, WALK, ["audit"]))
        found, claims = ids_of(claimed.batch), claims + 1
        ranges = [Range(claimed.bounds[0]._replace(seq=claimed.bounds[0].seq - 1), LAST_XID)] if claimed.bounds[0] else ranges

    assert ([other], MANY // WALK + 1) == (found, claims)


LATEST = "SELECT now() - interval '3 s'"
SAME_TIME = "SELECT max(available_at) FROM queue_message"


@pytest.mark.parametrize(
    ("kind", "time"), [("due", LATEST), ("due of one key", LATEST), ("due at once", SAME_TIME)], ids=["any times", "of one key", "one time"]
)
async def test_a_scan_of_waits_goes_on_where_the_last_one_stopped(queue: Queue, store: MadeStore, kind: str, time: str) -> None:
    """It comes to the last one of all in so many pages, and from then on finds only what has come due since."""
    await crowd(queue, kind)
    [last] = await queue.insert(available_at=await queue.value(time))
    pages = [await store.due(held=["audit"])]
    while pages[-1].reached is not None:
        pages.append(await store.due(held=["audit"], after=pages[-1].due))

    assert MANY // PAGE <= len(pages) <= MANY // PAGE + 2
    row = await queue.row(last)
    assert {row["seq"]} == {one.position.seq for page in pages for one in page.findings}
    assert not (await store.due(held=["audit"], after=pages[-1].due)).findings


async def test_a_round_of_the_scrub_finds_everything_in_pages(queue: Queue, store: MadeStore) -> None:
    """At most so many of them at once, and none of them twice."""
    await crowd(queue, "due at once")
    after, seqs, pages = START, [], 0
    while (page := await store.left(after=after)).reached is not None:
        assert page.reached is not None
        assert len(page.findings) <= MAX_FINDINGS
        after, pages = page.reached, pages + 1
        seqs += [one.position.seq for one in page.findings]
    seqs += [one.position.seq for one in page.findings]

    assert (MANY, MANY) == (len(seqs), len({*seqs}))
    assert pages <= MANY // MAX_FINDINGS + 1


async def test_keys_are_listed_where_the_last_list_stopped(queue: Queue, store: MadeStore) -> None:
    """A key of another lane, with very many messages, comes before the wanted one."""
    await crowd(queue, "of one key")
    await queue.insert(ordering_key="other")
    lanes, ranges, lists = list(await store.keep_lanes()), Cursor().ranges(), 0
    keys: set[str] = set()
    while (listed := await store.list_keys(lanes=lanes, ranges=ranges, walk=PAGE)).last:
        ranges = [Range(cut_at(ranges, listed.last)[-1] or START, LAST_XID)]
        keys, lists = keys | listed.keys.keys(), lists + 1

    assert ({"k", "other"}, MANY // PAGE) == (keys | listed.keys.keys(), lists)


@pytest.mark.parametrize("kind", ["due", "due at once", "of one key", "due of one key", "fresh", "suspect"])
async def test_others_are_found_behind_a_paused_exchange_and_it_leaves_when_it_is_resumed(
    queue: Queue, claimer: Claimer, kind: str
) -> None:
    """By as many looks as its messages have pages; then nothing more is held back."""
    await crowd(queue, kind)
    claimer.intake.pause(["audit"])
    others = [*await queue.insert(), *await queue.insert(available_at="2020-01-01T00:00:00Z"), *await queue.insert(ordering_key="l")]

    assert sorted(others) == sorted(await claimer.found(500))

    claimer.intake.pause([])
    assert await claimer.found(500)


async def test_others_are_found_behind_a_parked_key_and_it_leaves_when_it_is_resumed(queue: Queue, claimer: Claimer) -> None:
    """Its messages are due, of no paused exchange, and every scan sees them; of the resumed key the head goes."""
    await crowd(queue, kind := "due of a parked key")
    others = [*await queue.insert(), *await queue.insert(available_at="2020-01-01T00:00:00Z"), *await queue.insert(ordering_key="l")]

    assert sorted(others) == sorted(await claimer.found(500))

    await queue.sql("SELECT queue_message_key_resume('parked')")
    head = await queue.value("SELECT id::text FROM queue_message WHERE exchange = %s ORDER BY xid, seq LIMIT 1", NOT_PAUSED[kind])
    assert [head] == await claimer.found(500)


async def test_others_are_found_while_another_clusters_messages_stand_in_the_queue(queue: Queue, claimer: Claimer) -> None:
    """No look goes there until they are renumbered."""
    await crowd(queue, "of another cluster")
    others = [*await queue.insert(), *await queue.insert(available_at="2020-01-01T00:00:00Z"), *await queue.insert(ordering_key="l")]

    assert sorted(others) == sorted(await claimer.found(500))
