"""Each statement that claims or scans walks the index that it relies on, whatever the planner knows of the table, and stays HOT."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from relay.claims.cursor import LAST_SEQ, LAST_XID
from relay.claims.key_bounds import NOWHERE
from relay.message import START, Position, Range
from relay.ports import At, Fresh, Wanted
from relay.postgres.array_literal import literal
from relay.postgres.parameters import at, at_all, heads_of, probe, ranges_of, wanted_of
from relay.postgres.payload_fetcher import LARGE
from relay.postgres.session import ALWAYS, BY_INDEX, IN_ORDER, Session
from relay.postgres.store import Store
from tests.support.database.plans import PAD, Plan, explain
from tests.support.database.queue import PLENTY, MadeStore, Queue

ROWS = 50_000
LIMIT = 500
WALK = 2 * LIMIT
"""Messages that a look walks here."""
KEY, ORDERED, BY_KEY, WAITS = (
    f"queue_message_{name}" for name in ("pkey", "ordered_idx", "ordering_key_idx", "available_at_idx")
)  # fmt: skip
STATEMENTS: dict[str, dict[str, str | None]] = {
    "fresh": {"fresh": KEY, "fresh apart": KEY, "at": KEY, "scan left": KEY, "look": KEY},
    "waiting": {"at": KEY, "scan due": WAITS, "scan left": KEY, "look": WAITS},
    "suspect": {"at suspects": KEY, "scan due": WAITS, "scan left": KEY},
    "ordered": {"at ordered": KEY, "list_keys": ORDERED, "find_heads": BY_KEY, "scan left": KEY, "look": ORDERED},
    "expired": {"free_expired": None, "scan left": KEY},
    "expired ordered": {"free_expired": None},
}
"""What is asked of a table full of messages of a kind, and the index by which it reaches them; a function's own plan is not shown."""
MOST_READ = 7 * LIMIT + 100
"""Rows that all scans of one statement look at, of 50,000. Measured: 3,500 for a claim of one exchange of two (bounds, find, lock)."""
MOST_PAGES = {"free_expired": 14_500, "list_keys": 1000, "look": 1500, "scan left": 1000, "scan due": 1500, "find_heads": 3000}
"""Measured: 10,700 to 13,200 to free 500 locks, 5,600 more with a walk over the queue;
25,100 for a walk over 50,000 dead entries of messages that waited."""
A_CLAIM = 8000
"""Pages that a claim of 500 takes, most of them its own update. Measured: 3,800 to 7,200; 5,600 more with a walk over what is dead."""


async def fill(queue: Queue, kind: str) -> None:
    """Messages of the kind that the claims look for, in transactions of a thousand."""
    for number in range(ROWS // 1000):
        key = f"'k{number}-' || n" if "ordered" in kind else "NULL"
        due = "now() - n * interval '1 s'" if kind in {"waiting", "suspect"} else "NULL"
        await queue.sql(
            "INSERT INTO queue_message (exchange, content, ordering_key, available_at) "
            f"SELECT CASE WHEN n % 2 = 0 THEN 'orders' ELSE 'audit' END, {PAD}, {key}, {due} FROM generate_series(1, 1000) AS n"
        )
    if kind == "suspect":
        await queue.sql("UPDATE queue_message SET locked_by = 7")
    if "expired" in kind:
        await queue.sql("UPDATE queue_message SET lock_expires_at = now() - interval '1 s', lock_token = id, locked_by = 7")


async def asked(queue: Queue, store: Store, name: str, passed: int, after: str) -> tuple[bytes, dict[str, Any]]:
    """A statement, and the values with which a relay in the middle of the table runs it."""
    lanes = await store.keep_lanes()
    [(xid,)] = await queue.sql("SELECT xid::text::bigint FROM queue_message ORDER BY xid, seq OFFSET %s LIMIT 1", passed)
    some = await queue.sql(
        "SELECT xid::text::bigint, seq, ordering_key FROM queue_message WHERE exchange = 'orders' ORDER BY xid, seq LIMIT 500"
    )
    positions, keys = [Position(*row[:2]) for row in some], [row[2] for row in some if row[2]]
    head, ranges = Position(xid, 0), [Range(Position(xid - 1, 0), xid), Range(Position(xid, 0), LAST_XID)]
    wanted: dict[str, Wanted] = {
        "fresh": Fresh(ranges, WALK, ["fax"]), "fresh apart": Fresh(ranges, WALK, only=["orders"]), "at": At(positions, "waiting"),
        "at suspects": At(positions, "suspect"), "at ordered": At(positions, "ordered", lanes),
    }  # fmt: skip
    scan = {
        **heads_of(Position(LAST_XID, LAST_SEQ), {"fax": head}), "held": ["fax"], "crowded": ["mail"], "lanes": list(lanes), "walk": WALK,
        "most": LIMIT, "lag": 2.0, "lock_seconds": 30.0, "after": after, **at("from", START),
    }  # fmt: skip
    values: dict[str, Any] = {
        "limit": LIMIT, "limit_bytes": PLENTY, "lock_seconds": 30.0, "now": None, "large": LARGE, "relay_id": store.relay_id,
        "token": "00000000-0000-7000-8000-000000000001",
    }  # fmt: skip
    if name in wanted:
        claim, where = wanted_of(wanted[name])
        return store._statements.claim(claim), values | where
    if name.startswith("scan"):
        return store._statements.scan(name.split()[1]), values | scan
    look = {**at("head", head), **at("lanes_head", head), "pending": literal([xid]), "lanes_pending": literal([xid])}
    others = {
        "list_keys": ranges_of(ranges), "look": look, "free_expired": at_all(positions),
        "find_heads": probe(keys, [NOWHERE] * len(keys), [], []),
    }  # fmt: skip
    return store._statements[name], values | scan | others[name]


async def plan_of(queue: Queue, store: Store, name: str, passed: int = 20_000, after: str = "-infinity") -> Plan:
    """What a statement does whose head has passed so many, with the settings of the session that runs it."""
    statement, values = await asked(queue, store, name, passed, after)
    on_control = name in {"scan left", "free_expired"}
    return await explain(queue.connection, statement, values, ALWAYS | IN_ORDER if on_control else BY_INDEX)


@pytest.mark.ids("B7")
@pytest.mark.parametrize("kind", STATEMENTS)
async def test_a_statement_among_fifty_thousand_messages_reads_only_its_own(queue: Queue, store: MadeStore, kind: str) -> None:
    """By its index, without reading or sorting the table, be it just filled for the first time or analysed."""
    await fill(queue, kind)
    for statistics in ("SELECT", "VACUUM ANALYZE queue_message"):
        await queue.sql(statistics)
        for name, index in STATEMENTS[kind].items():
            plan = await plan_of(queue, store, name)

            assert index is None or index in plan.indexes_of("queue_message"), (name, statistics)
            assert not plan.sequential("queue_message"), (name, statistics)
            assert plan.most_sorted() <= WALK, (name, statistics)
            assert plan.rows_read("queue_message") <= MOST_READ, (name, statistics)
            assert plan.pages <= MOST_PAGES.get(name, A_CLAIM), (name, statistics)


@pytest.mark.ids("B7")
@pytest.mark.parametrize("kind", STATEMENTS)
async def test_a_statement_walks_no_dead_messages_where_statistics_are_fresh(queue: Queue, store: MadeStore, kind: str) -> None:
    """Vacuum may remove none of fifty thousand that were settled; the planner, which counts few messages, must not walk their entries."""
    await fill(queue, kind)
    async with await psycopg.AsyncConnection.connect(queue.url) as reader:
        await reader.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await reader.execute("SELECT count(*) FROM queue_message")
        await queue.sql(
            "DELETE FROM queue_message "
            "WHERE (xid, seq) < (SELECT xid, seq FROM queue_message ORDER BY xid DESC, seq DESC OFFSET 1500 LIMIT 1)"
        )
        await queue.sql("VACUUM ANALYZE queue_message")
        # A scan walks dead entries from the left, as none of its pages delays a claim.
        for name in STATEMENTS[kind].keys() - {"scan left", "scan due"}:
            plan = await plan_of(queue, store, name, passed=0, after="now")

            assert not plan.sequential("queue_message"), name
            assert plan.pages <= MOST_PAGES.get(name, A_CLAIM), name


async def test_nothing_of_the_relay_is_compiled(queue: Queue, database_url: str) -> None:
    """A disabled kind of scan makes a plan look so expensive that PostgreSQL compiles it. That takes longer than executing it."""
    name = await queue.value("SELECT current_database()")
    await queue.sql(f"ALTER DATABASE {name} SET jit = on")
    session = Session(database_url, application_name="relay")
    compiled = await session.fetch(b"SHOW jit", {})
    await session.aclose()
    functions = await queue.sql(
        "SELECT proname::text, array_to_string(proconfig, ' ') FROM pg_proc WHERE array_to_string(proconfig, ' ') ~ 'enable_[a-z]+=off'"
    )

    assert [("off",)] == compiled
    assert functions
    assert [] == [name for name, settings in functions if "jit=off" not in settings]
