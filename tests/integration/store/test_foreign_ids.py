"""Messages of another cluster, as from a restored dump, get transaction ids of this one, in their order and before own messages."""

from __future__ import annotations

import psycopg
import pytest

from relay.postgres.schema.migrate import check_ids, migrate
from tests.support.database.claimers import Claimer
from tests.support.database.foreign import FAR, bring, keys, pass_ids, places, renumber
from tests.support.database.queue import MakeStore, Queue, unchecked

EVERYTHING = "SELECT to_jsonb(m) - 'xid' - 'seq' FROM queue_message m ORDER BY xid, seq"


@pytest.mark.parametrize("most", [1, 2, 1000])
async def test_foreign_messages_stand_before_own_ones_in_their_order(queue: Queue, most: int) -> None:
    """However far their ids are apart, and in however many steps it is done."""
    await queue.insert(ordering_key="own")
    await bring(queue, *({"xid": FAR + 10**number, "key": str(number)} for number in range(5)))
    await queue.insert(ordering_key="own")

    assert 5 == await renumber(queue, most)

    assert [*(("restored", str(number)) for number in range(5)), ("orders", "own"), ("orders", "own")] == await places(queue)
    assert 0 == await renumber(queue)


async def test_a_restored_message_goes_before_own_ones_of_its_key(queue: Queue, claimer: Claimer) -> None:
    """This holds even if a relay knows where the key's messages began: the restore is not reported to it."""
    await queue.insert(ordering_key="k")
    async for batch in claimer.batches():
        await claimer.settle(batch)
    await bring(queue, {"xid": FAR, "key": "k"})
    await renumber(queue)
    await queue.insert(ordering_key="k")

    found = []
    async for batch in claimer.batches():
        found += [claim.exchange for claim in batch.claims]
        await claimer.settle(batch)

    assert ["restored", "orders"] == found


async def test_a_later_restore_stands_behind_an_earlier_one(queue: Queue) -> None:
    """From a higher cluster to a lower one and so on: each time behind what was renumbered before, and before own messages."""
    await bring(queue, {"xid": FAR, "key": "first"})
    await renumber(queue)
    await queue.insert(ordering_key="own")
    await bring(queue, {"xid": FAR - 5, "key": "second", "seq": 9})

    assert 1 == await renumber(queue)

    assert ["first", "second", "own"] == await keys(queue)


async def test_a_dump_whose_ids_lie_around_those_of_this_cluster_keeps_its_order(queue: Queue) -> None:
    """They lie below, between and above. The writer of a row shows which ids this cluster has passed since the restore."""
    now = int(await queue.value("SELECT pg_current_xact_id()::text"))
    await bring(queue, {"xid": 5, "key": "below"}, {"xid": now + 4, "key": "between"}, {"xid": FAR, "key": "above"})
    await pass_ids(queue, 10)
    await queue.insert(ordering_key="own")

    assert 3 == await renumber(queue)

    assert ["below", "between", "above", "own"] == await keys(queue)


async def test_what_this_cluster_has_passed_before_anybody_looked_is_found(queue: Queue) -> None:
    """No id is in the future any more, but the cluster is another one than was noted."""
    now = int(await queue.value("SELECT pg_current_xact_id()::text"))
    await bring(queue, {"xid": now + 20, "key": "restored"})
    await queue.sql("INSERT INTO queue_message_cluster (system_identifier) VALUES (1)")
    await queue.insert(ordering_key="own")
    await pass_ids(queue, 30)

    assert 1 == await renumber(queue)

    assert ["restored", "own"] == await keys(queue)


async def test_a_dump_of_a_lower_cluster_stays_as_it_is(queue: Queue) -> None:
    """Its messages stand before own ones by themselves."""
    await bring(queue, {"xid": 5, "key": "a"}, {"xid": 6, "key": "b"})
    await queue.insert(ordering_key="own")
    before = await queue.sql("SELECT xid, seq FROM queue_message ORDER BY 1, 2")

    assert 0 == await renumber(queue)

    assert before == await queue.sql("SELECT xid, seq FROM queue_message ORDER BY 1, 2")


async def test_own_messages_are_never_renumbered(queue: Queue) -> None:
    """Written by a transaction, by savepoints of one, by one that committed late, or rewritten by a claim."""
    await queue.insert(3)
    async with await psycopg.AsyncConnection.connect(queue.url) as late:
        await late.execute("INSERT INTO queue_message (exchange) VALUES ('late')")
        for _ in range(3):
            async with late.transaction():
                await late.execute("INSERT INTO queue_message (exchange) VALUES ('savepoint')")
        await pass_ids(queue, 5)
        assert 0 == await renumber(queue)
        await late.commit()
    await queue.sql("UPDATE queue_message SET available_at = now() WHERE exchange = 'late'")
    before = await queue.sql("SELECT xid, seq FROM queue_message ORDER BY 1, 2")
    await queue.sql("DELETE FROM queue_message_cluster")

    assert 0 == await renumber(queue)

    assert before == await queue.sql("SELECT xid, seq FROM queue_message ORDER BY 1, 2")
    assert not await queue.value("SELECT queue_message_has_foreign_ids()")


async def test_renumbering_changes_nothing_else(queue: Queue) -> None:
    """Locks stay, expired or not. If a locked head were left in its place, the next message of its key would overtake it."""
    lock = {"lock_token": "00000000-0000-4000-8000-000000000001", "locked_by": 7, "attempts": 1}
    await bring(
        queue,
        {"xid": FAR, "key": "k", "lock_expires_at": "2999-01-01T00:00:00Z", **lock},
        {"xid": FAR, "key": "k", "available_at": "2998-01-01T00:00:00Z"},
        {"xid": FAR + 1, "lock_expires_at": "2001-01-01T00:00:00Z", **lock},
    )
    before = await queue.sql(EVERYTHING)

    assert 3 == await renumber(queue)

    assert before == await queue.sql(EVERYTHING)
    assert [("2",)] == await queue.sql("SELECT DISTINCT xid::text FROM queue_message")


async def test_numbers_that_a_copy_left_behind_are_moved_ahead(queue: Queue, make_store: MakeStore) -> None:
    """A relay registers, and an application inserts messages with a key, although the copy brought no sequences."""
    store = make_store("relay")
    await queue.sql(
        "INSERT INTO queue_message_relay (id, name, version, host, pid) OVERRIDING SYSTEM VALUE "
        "SELECT g, 'old', '1', 'h', 1 FROM generate_series(1, 5) g"
    )
    async with unchecked(queue):
        await queue.sql(
            "INSERT INTO queue_message_keyed_row (xid, seq, exchange, coalesce_key, due_at) "
            "SELECT '900', g, 'e', 'c' || g, 'infinity' FROM generate_series(1, 5) g"
        )

    assert 0 == await renumber(queue)

    assert await store.register() > 5
    await queue.sql("INSERT INTO queue_message_keyed (exchange, coalesce_key) VALUES ('e', 'new')")
    assert not await queue.value("SELECT queue_message_has_foreign_ids()")


@pytest.mark.parametrize("xid", [5, FAR])
async def test_no_relay_gets_an_id_that_foreign_locks_carry(queue: Queue, make_store: MakeStore, xid: int) -> None:
    """Its own locks and those of the old cluster's relays are kept apart, whether or not the relays' rows came along."""
    await bring(queue, {"xid": xid, "lock_expires_at": "2999-01-01T00:00:00Z", "locked_by": 4711, "attempts": 1})

    await renumber(queue)

    assert await make_store("relay").register() > 4711


async def test_a_relay_of_another_cluster_is_silent_and_holds_no_lanes(queue: Queue, make_store: MakeStore) -> None:
    """Its heartbeat may look fresh, or even lie ahead; its positions bound no sweep here."""
    store = make_store("relay")
    old = await queue.value(
        "INSERT INTO queue_message_relay (name, version, host, pid, heartbeat_at, top_xid) "
        "VALUES ('old', '1', 'h', 1, now() + interval '1 hour', %s::text::xid8) RETURNING id",
        str(FAR),
    )
    await queue.sql("UPDATE queue_message_lane SET owner = %s, lease_expires_at = 'infinity', epoch = 3", old)

    await bring(queue, {"xid": FAR})
    await renumber(queue)

    assert await queue.value("SELECT bool_and(heartbeat_at < now()) FROM queue_message_relay")
    await store.register()
    assert 64 == len(await store.keep_lanes())
    assert [("0",)] == await queue.sql("SELECT top_xid::text FROM queue_message_relay WHERE id = %s", old)
    assert [(5,)] == await queue.sql("SELECT DISTINCT epoch FROM queue_message_lane")


async def test_relays_of_this_cluster_go_on_while_a_dump_is_restored_beside_them(queue: Queue, make_store: MakeStore) -> None:
    """A restore into a running queue takes neither their lanes nor their life."""
    store = make_store("relay")
    await store.register()
    await store.keep_lanes()
    await queue.insert()
    await renumber(queue)
    before = await queue.sql("SELECT to_jsonb(r) FROM queue_message_relay r UNION ALL SELECT to_jsonb(l) FROM queue_message_lane l")

    await bring(queue, {"xid": FAR})

    assert 1 == await renumber(queue)
    assert before == await queue.sql("SELECT to_jsonb(r) FROM queue_message_relay r UNION ALL SELECT to_jsonb(l) FROM queue_message_lane l")


async def test_migrate_renumbers_and_its_check_names_foreign_ids(queue: Queue) -> None:
    """A person who restores can have it done before any relay starts."""
    await queue.insert(ordering_key="own")
    await bring(queue, *({"xid": FAR, "key": str(number)} for number in range(3)))
    said: list[str] = []

    assert check_ids(queue.url)
    migrate(queue.url, say=said.append)

    assert ["3 messages of another cluster got transaction ids of this one; they go out before what was inserted here."] == said
    assert not check_ids(queue.url)
    assert ["0", "1", "2", "own"] == await keys(queue)
