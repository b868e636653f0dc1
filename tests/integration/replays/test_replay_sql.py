"""An archived message becomes a new one, with lineage."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors

from tests.support.database.queue import Queue

COLUMNS = ("exchange", "routing_key", "content", "body", "options", "ordering_key")


COUNT, EACH = 80, 12
"""How many messages have one id, and how many rows and entries are read for each at the most."""
LAKE = """
    SELECT queue_message_replay_rows('a', array_agg(xid), array_agg(seq), array_agg(id), array_agg(exchange), array_agg(routing_key),
        array_agg(content::text), array_agg(body), array_agg(options::text), array_agg(ordering_key), array_agg(expires_at))
    FROM queue_message_archive
"""
READ = """
    SELECT sum(pg_stat_get_xact_tuples_returned(oid))::bigint FROM pg_class
    WHERE relname ~ '^queue_message_(audit|replay_ledger)'
"""


async def archived(queue: Queue, result: str = "success", code: str | None = None, **columns: object) -> str:
    """Insert a message and settle it; return its id."""
    [id_] = await queue.insert(**columns)
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], %s, %s, NULL, 'test')", id_, result, code)
    return id_


async def settle(queue: Queue, result: str = "success", code: str | None = None, limit: int | None = None) -> None:
    """Archive what waits."""
    chosen = "SELECT array_agg(id) FROM (SELECT id FROM queue_message ORDER BY xid, seq LIMIT %s) chosen"
    await queue.sql(f"SELECT queue_message_archive_now(({chosen}), %s, %s, NULL, 'test')", limit, result, code)


async def replay(queue: Queue, filters: str = "", *, dry_run: bool = False) -> list[tuple[Any, ...]]:
    """Replay by filter; ids and what they became."""
    return await queue.sql(f"SELECT id::text, replayed_as::text FROM queue_message_replay_many({filters}dry_run => {dry_run})")


@pytest.mark.ids("B13")
@pytest.mark.parametrize("result", ["success", "discarded", "rejected", "failed", "lock_expired"])
async def test_a_replay_is_a_new_message_with_its_origin(queue: Queue, result: str) -> None:
    """Everything the application gave is there again; the dead one counts as answered."""
    old = await archived(queue, result, routing_key="k", content='{"n": 1.0}', options='{"type": "t"}', ordering_key="o")

    new = str(await queue.value("SELECT queue_message_replay(%s)", old))

    row = await queue.row(new)
    assert new != old
    assert [(await queue.archived(old))[c] for c in COLUMNS] == [row[c] for c in COLUMNS]
    assert (old, 0, None) == (row["replay_of"], row["attempts"], row["available_at"])
    assert 0 == await queue.value("SELECT dead_unacknowledged FROM queue_message_status")
    notes = await queue.sql("SELECT note FROM queue_message_dead_list")
    assert notes == ([] if result in {"success", "discarded"} else [(f"replayed as {new}",)])


async def test_a_replay_may_keep_the_id(queue: Queue) -> None:
    """For consumers that must drop what they had; not while it is queued."""
    old = await archived(queue)

    assert UUID(old) == await queue.value("SELECT queue_message_replay(%s, same_id => true)", old)

    assert old == (await queue.row(old))["replay_of"]
    with pytest.raises(errors.ObjectInUse, match="is still in the queue"):
        await queue.sql("SELECT queue_message_replay(%s, same_id => true)", old)


async def test_what_is_not_archived_cannot_be_replayed(queue: Queue) -> None:
    """A queued message goes out by itself; an unknown one is named."""
    [queued] = await queue.insert()
    with pytest.raises(errors.ObjectInUse, match=f"Message {queued} is still in the queue; it goes out from there"):
        await queue.sql("SELECT queue_message_replay(%s)", queued)
    with pytest.raises(errors.NoDataFound, match=r"No archived message has the id [0-9a-f-]{36}\."):
        await queue.sql("SELECT queue_message_replay(%s)", uuid4())


async def test_a_deadline_that_has_passed_is_left_out(queue: Queue) -> None:
    """Else the replay would only be rejected as expired; one to come stays."""
    past = await archived(queue, "rejected", expires_at="2020-01-01")
    future = await archived(queue, expires_at="2999-01-01 00:00+00")
    await queue.sql("SELECT queue_message_replay(id) FROM unnest(%s::uuid[]) AS id", [past, future])
    assert [(UUID(past), None), (UUID(future), True)] == await queue.sql(
        "SELECT replay_of, expires_at = '2999-01-01 00:00+00' FROM queue_message ORDER BY seq"
    )


@pytest.mark.parametrize(
    ("filters", "found"),
    [("", "abcd"), ("exchange => 'orders', ", "abd"), ("result => 'failed', ", "bc"), ("error_code => 'no_route', ", "b"),
     ("routing_key => 'order.*', ", "ab"), ("routing_key => '*.new', ", "ac"), ("routing_key => '%', ", ""),
     ("routing_key => 'o_der.new', ", ""),
     ("routing_key => 'back\\slash', ", "d"), ("most => 2, ", "ab"), ("archived_from => now() + interval '1 h', ", ""),
     ("archived_from => now() - interval '1 h', archived_to => now() + interval '1 s', ", "abcd"),
     ("archived_to => now() - interval '1 h', ", "")],
)  # fmt: skip
async def test_a_filter_selects_what_is_replayed(queue: Queue, filters: str, found: str) -> None:
    """Time, exchange, routing key with stars, result, code, number; a dry run changes nothing."""
    made = {
        await archived(queue, routing_key="order.new"): "a",
        await archived(queue, "failed", "no_route", routing_key="order.old"): "b",
        await archived(queue, "failed", "nacked", exchange="audit", routing_key="audit.new"): "c",
        await archived(queue, routing_key="back\\slash"): "d",
    }

    wanted = await replay(queue, filters, dry_run=True)
    assert 0 == await queue.waiting()
    replayed = await replay(queue, filters)

    assert (list(found), {None}) == ([made[id_] for id_, _ in wanted], {new for _, new in wanted} or {None})
    assert [id_ for id_, _ in wanted] == [id_ for id_, _ in replayed]
    assert replayed == await queue.sql("SELECT replay_of::text, id::text FROM queue_message ORDER BY seq")


async def test_nothing_is_replayed_twice_unless_asked(queue: Queue) -> None:
    """A call that was cut off can be repeated."""
    old = await archived(queue)

    assert [old] == [id_ for id_, _ in await replay(queue)]
    assert [] == await replay(queue)
    await settle(queue)
    assert [] == await replay(queue)
    assert [] == await replay(queue, "result => 'success', ")
    assert 2 == len(await replay(queue, "again => true, ", dry_run=True))


async def test_a_replay_is_left_out_also_when_its_origin_is_out_of_the_time_or_gone(queue: Queue) -> None:
    """A length of time moves on, and days are dropped: what was sent again once is not sent again and again."""
    old = await archived(queue)
    [(_, new)] = await replay(queue)
    await settle(queue)
    later = f"archived_from => (SELECT archived_at FROM queue_message_archive WHERE id = '{new}'), "

    assert [] == await replay(queue, later)
    await queue.sql("SELECT set_config('relay.retention', 'on', false)")
    await queue.sql("DELETE FROM queue_message_archive WHERE id = %s", old)
    assert [] == await replay(queue, later)
    assert [] == await replay(queue, later + "result => 'success', ")


@pytest.mark.parametrize("same_id", [False, True])
@pytest.mark.parametrize("result", ["failed", "discarded"])
async def test_a_replay_that_did_not_go_out_is_like_any_other(queue: Queue, same_id: bool, result: str) -> None:
    """It is what there is to send again, and not what it replays; also when it has the same id."""
    await archived(queue, result, "x")
    filters = f"result => '{result}', error_code => 'x', same_id => {same_id}, "

    for _ in range(3):
        [(_, new)] = await replay(queue, filters)
        assert [] == await replay(queue, filters)
        await settle(queue, result, "x")
    [(last, _)] = await replay(queue, filters)
    assert new == last


async def test_many_messages_of_one_id_are_found_as_fast_as_others(queue: Queue) -> None:
    """Producers choose ids: each message reads what audit and ledger say of itself, and not of all with the id."""
    message = str(uuid4())
    for _ in range(COUNT):
        await archived(queue, "failed", id=message)
    assert COUNT == len(await replay(queue, "job => 'first', "))
    await settle(queue)
    for _ in range(COUNT):
        await archived(queue, "failed", id=message)
    await queue.sql("ANALYZE queue_message_audit, queue_message_replay_ledger")

    async with queue.connection.transaction():
        assert COUNT == len(await replay(queue, "result => 'failed', ", dry_run=True))
        read = await queue.value(READ)
        looks = await queue.value("SELECT pg_stat_get_xact_numscans(to_regclass('queue_message_replay_ledger_place_idx'))")
    assert looks >= COUNT
    assert COUNT <= read <= EACH * COUNT


async def test_many_replays_of_one_id_are_judged_as_fast_as_others(queue: Queue) -> None:
    """Each reads what audit and ledger say of itself, and of what it was made from, also before statistics are there."""
    message = str(uuid4())
    for _ in range(COUNT // 2):
        await archived(queue, "failed", id=message)
    await queue.sql(LAKE)
    for _ in range(COUNT // 2):
        await archived(queue, "failed", id=message)
    assert COUNT // 2 == len(await replay(queue))
    await settle(queue)

    async with queue.connection.transaction():
        assert COUNT == len(await replay(queue, "result => 'success', ", dry_run=True))
        assert [] == await replay(queue, "result => 'failed', ", dry_run=True)
        await queue.sql("SELECT queue_message_replays_before(id, xid, seq, 5) FROM queue_message_archive WHERE replay_of IS NOT NULL")
        read = await queue.value(READ)
    assert COUNT <= read <= EACH * COUNT


async def test_messages_of_one_id_are_one_message_where_the_id_is_kept(queue: Queue) -> None:
    """A message and its replay are both selected again, and two of one id cannot be in the queue."""
    old = await archived(queue)
    await replay(queue, "same_id => true, ")
    await settle(queue)

    assert [(old, old)] * 2 == await replay(queue, "same_id => true, again => true, ")
    assert 1 == await queue.waiting()


async def test_a_replay_that_was_the_first_to_go_out_is_replayed_where_the_filter_selects_it_alone(queue: Queue) -> None:
    """Consumers that lost what they got, and ask for successes, got it as a replay of what had died; then that is the origin."""
    await archived(queue, "failed", "x")
    [(_, repaired)] = await replay(queue, "result => 'failed', ")
    await settle(queue)

    assert [] == await replay(queue)
    assert [repaired] == [id_ for id_, _ in await replay(queue, "result => 'success', ")]
    await settle(queue)
    assert [] == await replay(queue, "result => 'success', ")


async def test_a_replay_of_a_replay_repeats_what_the_filter_selected_first(queue: Queue) -> None:
    """A success was replayed, the replay died, and an operator sent that once more."""
    await archived(queue)
    [(_, died)] = await replay(queue, "result => 'success', ")
    await settle(queue, "failed", "x")
    await queue.sql("SELECT queue_message_replay(%s)", died)
    await settle(queue)

    assert [] == await replay(queue, "result => 'success', ")


async def test_a_page_costs_one_walk_over_the_queue_and_its_own_rows_of_the_archive(queue: Queue) -> None:
    """Whatever is believed of both; else a replay slows down with each message that waits, and with each that was archived."""
    await queue.sql("ANALYZE")
    await queue.insert(2000)
    for _ in range(4):
        await settle(queue, limit=500)
    await queue.insert(1000)
    page = "SELECT count(*) FROM queue_message_replay_many(most => 50, dry_run => {})"
    read = """SELECT sum(seq_scan) FILTER (WHERE relname = 'queue_message'), sum(seq_tup_read) FILTER (WHERE relname <> 'queue_message'),
        sum(idx_tup_fetch) FILTER (WHERE relname <> 'queue_message')
        FROM pg_stat_xact_user_tables WHERE relname ~ '^queue_message($|_archive|_dead$)'"""
    for dry_run, fetched in ((True, 600), (False, 650)):
        with psycopg.connect(queue.url) as connection:
            assert (50,) == connection.execute(page.format(dry_run).encode()).fetchone()
            walks, walked, found = connection.execute(read).fetchone() or ()
            assert (1, 0) == (walks, walked)
            assert 50 <= found <= fetched


async def test_pages_follow_each_other(queue: Queue) -> None:
    """The last row of a page is where the next begins."""
    ids = [await archived(queue) for _ in range(5)]
    after = "after_archived_xid => %s, after_xid => %s, after_seq => %s, most => 2"
    page = f"SELECT id::text, archived_xid, xid, seq FROM queue_message_replay_many({after})"
    seen: list[str] = []
    place: tuple[object, ...] = ("0", "0", 0)
    while rows := await queue.sql(page, *place):
        seen += [row[0] for row in rows]
        place = rows[-1][1:]
    assert ids == seen
