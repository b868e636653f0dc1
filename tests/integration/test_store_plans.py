"""Each claim walks the index that it relies on, whatever the planner knows of the table, and stays HOT."""

from __future__ import annotations

import pytest

from relay.ports import Due
from relay.postgres.database import Session
from relay.postgres.payloads import LARGE
from relay.postgres.store import Store
from tests.support.plans import PAD, Plan, explain
from tests.support.queue import PLENTY, MadeStore, Queue

ROWS = 50_000
LIMIT = 500
KINDS = {
    "fresh": (Due.ABOVE_HEAD, Due.PENDING, Due.OTHERS_ABOVE_HEAD, Due.OTHERS_PENDING, Due.EXCHANGE_ABOVE_HEAD, Due.EXCHANGE_PENDING),
    "waiting": (Due.WAITING,),
    "suspect": (Due.SUSPECT,),
    "ordered": (Due.ORDERED,),
}
INDEX = {
    Due.ABOVE_HEAD: "queue_message_pkey",
    Due.PENDING: "queue_message_pkey",
    Due.OTHERS_ABOVE_HEAD: "queue_message_pkey",
    Due.OTHERS_PENDING: "queue_message_pkey",
    Due.EXCHANGE_ABOVE_HEAD: "queue_message_pkey",
    Due.EXCHANGE_PENDING: "queue_message_pkey",
    Due.WAITING: "queue_message_available_at_idx",
    Due.SUSPECT: "queue_message_available_at_idx",
    Due.ORDERED: "queue_message_pkey",
}
LOOKS = {
    "ordered": {"list_keys": "queue_message_ordered_idx", "find_heads": "queue_message_ordering_key_idx", "look": "queue_message_pkey"},
    "ordered_waiting": {"list_waiting_keys": "queue_message_available_at_idx"},
}
MOST_READ = 4 * LIMIT + 100
"""Rows that all scans of one statement look at, of 50,000. Measured: 1,000 (find, lock), 1,500 for one exchange of two, 2,000 for a
list of keys with a thousand of a transaction that ended late."""


async def fill(queue: Queue, kind: str) -> None:
    """Messages of the kind that the claims look for, in transactions of a thousand."""
    for number in range(ROWS // 1000):
        key = f"'k{number}-' || n" if "ordered" in kind else "NULL"
        due = "now() - n * interval '1 s'" if kind not in {"fresh", "ordered"} else "NULL"
        await queue.sql(
            "INSERT INTO queue_message (exchange, content, ordering_key, available_at) "
            f"SELECT CASE WHEN n % 2 = 0 THEN 'orders' ELSE 'audit' END, {PAD}, {key}, {due} FROM generate_series(1, 1000) AS n"
        )
    if kind == "suspect":
        await queue.sql("UPDATE queue_message SET locked_by = 7")


async def plan_of(queue: Queue, store: Store, statement: bytes) -> Plan:
    """What the statement does on the filled table."""
    lanes = await store.keep_lanes()
    [(xid,)] = await queue.sql("SELECT xid::text FROM queue_message ORDER BY xid, seq OFFSET 20000 LIMIT 1")
    some = await queue.sql("SELECT ordering_key, xid::text, seq FROM queue_message WHERE ordering_key IS NOT NULL LIMIT 500")
    xids, seqs = ("{" + ",".join(str(row[column]) for row in some) + "}" for column in (1, 2))
    values = {
        "head_xid": xid, "head_seq": 0, "except": ["fax"], "only": None, "exchange": "orders", "pending": f"{{{xid}}}",
        "xids": xids, "seqs": seqs,
        "lanes": list(lanes), "epochs": list(lanes.values()), "limit": LIMIT, "limit_bytes": PLENTY, "lock_seconds": 30.0, "now": None,
        "token": "00000000-0000-7000-8000-000000000001", "relay_id": store.relay_id, "trusted": 1, "keys": [key for key, _, _ in some],
        "from_xids": xids, "from_seqs": seqs, "late_places": "{1,2}", "late_xids": f"{{{xid},{xid}}}", "most": LIMIT,
        "after": "-infinity", "seen": 0, "held": [], "lanes_head_xid": xid, "lanes_head_seq": 0, "lanes_pending": "{}",
        "walk": 10_000, "reached": "{}", "large": LARGE,
    }  # fmt: skip
    return await explain(queue.connection, statement, values)


@pytest.mark.ids("B7")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_claim_among_fifty_thousand_messages_reads_only_its_own(queue: Queue, store: MadeStore, kind: str) -> None:
    """By its index, without reading or sorting the table, be it just filled for the first time or analysed."""
    await fill(queue, kind)
    for statistics in ("SELECT", "VACUUM ANALYZE queue_message"):
        await queue.sql(statistics)
        for due in KINDS[kind]:
            plan = await plan_of(queue, store, store._statements.claim(due.value))

            assert INDEX[due] in plan.indexes_of("queue_message"), (due, statistics)
            assert not plan.sequential("queue_message"), (due, statistics)
            assert plan.most_sorted() <= LIMIT, (due, statistics)
            assert plan.rows_read("queue_message") <= MOST_READ, (due, statistics)
            assert plan.root["Actual Rows"] == LIMIT, (due, statistics)


@pytest.mark.parametrize("kind", LOOKS)
async def test_a_look_among_fifty_thousand_ordered_messages_reads_only_a_page(queue: Queue, store: MadeStore, kind: str) -> None:
    """Lists of keys, heads by key and the look of a relay that rests, just filled for the first time or analysed."""
    await fill(queue, kind)
    for statistics in ("SELECT", "VACUUM ANALYZE queue_message"):
        await queue.sql(statistics)
        for name, index in LOOKS[kind].items():
            plan = await plan_of(queue, store, store._statements[name])

            assert index in plan.indexes_of("queue_message"), (name, statistics)
            assert not plan.sequential("queue_message"), (name, statistics)
            assert plan.most_sorted() <= 2 * LIMIT, (name, statistics)
            assert plan.rows_read("queue_message") <= MOST_READ, (name, statistics)


async def test_nothing_of_the_relay_is_compiled(queue: Queue, database_url: str) -> None:
    """A switched-off kind of scan makes a plan look dear enough for PostgreSQL to compile it, which takes longer than to carry it out."""
    session = Session(database_url, application_name="relay")
    compiled = await session.fetch(b"SHOW jit", {})
    await session.aclose()
    functions = await queue.sql(
        "SELECT proname::text, array_to_string(proconfig, ' ') FROM pg_proc WHERE array_to_string(proconfig, ' ') ~ 'enable_[a-z]+=off'"
    )

    assert [("off",)] == compiled
    assert functions
    assert [] == [name for name, settings in functions if "jit=off" not in settings]
