"""An archived message becomes a new one, with lineage."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import errors

from tests.support.queue import Queue

COLUMNS = ("exchange", "routing_key", "content", "body", "options", "ordering_key")


async def archived(queue: Queue, result: str = "success", code: str | None = None, **columns: object) -> str:
    """Insert a message and settle it; return its id."""
    [id_] = await queue.insert(**columns)
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], %s, %s, NULL, 'test')", id_, result, code)
    return id_


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
    with pytest.raises(errors.NoDataFound, match="No archived message has the id"):
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
    await queue.sql("SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'test') FROM queue_message")
    assert 1 == len(await replay(queue, "result => 'success', "))
    assert 2 == len(await replay(queue, "again => true, ", dry_run=True))


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
