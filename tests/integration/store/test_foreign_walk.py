"""The queue is searched for messages of another cluster in pages: each is bounded, and whatever happens in between keeps the order."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.database.foreign import FAR, bring, keys, pass_ids, renumber
from tests.support.database.queue import Queue

STEP = "SELECT renumbered, more, looked FROM queue_message_renumber(%s)"
READ = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'queue_message'"
PLACE = "SELECT looking, walked_xid::text, walked_seq FROM queue_message_cluster"
SWEPT = {"lock_expires_at": "2001-01-01T00:00:00Z", "lock_token": "00000000-0000-4000-8000-000000000001", "locked_by": 7, "attempts": 1}


async def step(queue: Queue, most: int = 2) -> tuple[int, bool, int | None]:
    """Do one page."""
    [(renumbered, more, looked)] = await queue.sql(STEP, most)
    return renumbered, more, looked


async def walk_until(queue: Queue, *, looking: bool, most: int = 2) -> None:
    """Look at two pages: of the first pass, or, behind all of that, of the second."""
    pages = 0
    while pages < 2:
        [(before, *_)] = await queue.sql(PLACE) or [(True,)]
        assert (await step(queue, most))[1]
        pages += before == looking


@pytest.mark.parametrize("kind", ["own", "foreign", "both"])
async def test_no_call_looks_at_more_than_a_page(queue: Queue, kind: str) -> None:
    """However few messages of another cluster there are, and wherever; three times for those that are locked and renumbered."""
    if kind != "foreign":
        await queue.insert(3000)
    if kind != "own":
        await bring(queue, *({"xid": FAR} for _ in range(1 if kind == "both" else 3000)))
    await queue.sql("VACUUM ANALYZE queue_message")
    steps, more = 0, True
    while more:
        async with queue.connection.transaction():
            before = await queue.value(READ)
            _, more, looked = await step(queue, 100)
            assert await queue.value(READ) - before <= 310
        steps += looked is not None

    assert steps >= 30


async def test_one_caller_at_a_time_renumbers(queue: Queue) -> None:
    """The second one learns that it is another's turn, and does not take numbers in between."""
    await bring(queue, *({"xid": FAR} for _ in range(3)))
    async with await psycopg.AsyncConnection.connect(queue.url) as first:
        assert (0, True, 1) == await (await first.execute(STEP, [1])).fetchone()

        assert (0, True, None) == await step(queue)

    assert 3 == await renumber(queue)


@pytest.mark.parametrize("looking", [True, False])
async def test_a_walk_that_was_broken_off_goes_on(queue: Queue, *, looking: bool) -> None:
    """A page that was not committed is looked at again; nothing before it is."""
    await bring(queue, *({"xid": FAR, "key": str(number)} for number in range(8)))
    await walk_until(queue, looking=looking)
    place = await queue.sql(PLACE)
    killed = await psycopg.AsyncConnection.connect(queue.url)
    await killed.execute(STEP, [2])
    await killed.close()

    assert place == await queue.sql(PLACE)
    assert (8 if looking else 4) == await renumber(queue, 2)
    assert list("01234567") == await keys(queue)


@pytest.mark.parametrize("looking", [True, False])
async def test_a_restore_that_commits_beside_the_walk_keeps_its_order(queue: Queue, *, looking: bool) -> None:
    """Half of it is behind the place of the walk. The other half does not overtake it."""
    await queue.insert(ordering_key="own")
    await bring(queue, *({"xid": FAR + number, "key": f"a{number}"} for number in range(8)))
    await walk_until(queue, looking=looking)
    await bring(queue, *({"xid": FAR + number, "key": f"b{number}", "seq": 50 + number} for number in range(8)))

    assert (16 if looking else 13) == await renumber(queue, 2)

    first, second = [f"a{number}" for number in range(8)], [f"b{number}" for number in range(8)]
    came = await keys(queue)
    assert (first, second) == ([key for key in came if key[0] == "a"], [key for key in came if key[0] == "b"])
    assert "own" == came[-1]


@pytest.mark.parametrize("looking", [True, False])
async def test_own_messages_that_come_beside_the_walk_stay(queue: Queue, *, looking: bool) -> None:
    """They stand behind all that was restored, as those before them; what is settled meanwhile is no longer there."""
    await queue.insert(2, ordering_key="own")
    await bring(queue, *({"xid": FAR, "key": str(number)} for number in range(8)))
    await walk_until(queue, looking=looking)
    [(_, xid, seq)] = await queue.sql(PLACE)
    await queue.sql("DELETE FROM queue_message WHERE (xid, seq) = (%s::text::xid8, %s) OR ordering_key = '7'", xid, seq)
    await queue.insert(ordering_key="own")
    before = await queue.sql("SELECT xid, seq FROM queue_message WHERE ordering_key = 'own' ORDER BY xid, seq")

    await renumber(queue, 2)

    assert before == await queue.sql("SELECT xid, seq FROM queue_message WHERE ordering_key = 'own' ORDER BY xid, seq")
    assert [key for key in "0123456" if key in await keys(queue)] == [key for key in await keys(queue) if key != "own"]
    assert ["own"] * len(before) == (await keys(queue))[-len(before) :]


@pytest.mark.parametrize("looking", [True, False])
async def test_what_a_sweep_rewrites_beside_the_walk_keeps_its_place(queue: Queue, *, looking: bool) -> None:
    """Heads of keys whose locks ended, with lower and with higher ids than this cluster's: their keys' next do not overtake them."""
    now = int(await queue.value("SELECT pg_current_xact_id()::text"))
    around = ({"xid": 5, "key": "low"}, {"xid": 6, "key": "low"}, {"xid": FAR, "key": "high"}, {"xid": FAR, "key": "high"})
    await bring(queue, *({**one, **(SWEPT if number % 2 == 0 else {})} for number, one in enumerate(around)), {"xid": now + 5, "key": "z"})
    await pass_ids(queue, 9)
    await walk_until(queue, looking=looking, most=1)
    heads = "SELECT DISTINCT ON (ordering_key) id FROM queue_message WHERE ordering_key <> 'z' ORDER BY ordering_key, xid, seq"
    order = await queue.sql(heads)
    assert 2 == await queue.value("SELECT released FROM queue_message_sweep() AS released")

    await renumber(queue, 1)

    assert order == await queue.sql(heads)
    assert [("2",)] == await queue.sql("SELECT DISTINCT xid::text FROM queue_message")


@pytest.mark.parametrize("looking", [True, False])
@pytest.mark.parametrize("state", ["claimed", "retried"])
async def test_what_a_relay_claims_beside_the_walk_keeps_its_place(queue: Queue, state: str, *, looking: bool) -> None:
    """The head of a key whose id is a low one, so that claims find it at once: its key's next does not overtake it."""
    now = int(await queue.value("SELECT pg_current_xact_id()::text"))
    await bring(queue, {"xid": 5, "key": "low"}, {"xid": 6, "key": "low"}, {"xid": now + 5, "key": "z"})
    await pass_ids(queue, 9)
    await walk_until(queue, looking=looking, most=1)
    head = "SELECT id FROM queue_message WHERE ordering_key = 'low' ORDER BY xid, seq LIMIT 1"
    first = await queue.value(head)
    locked = "lock_token = gen_random_uuid(), lock_expires_at = now() + interval '1 min', locked_by = 7"
    change = locked if state == "claimed" else "available_at = now()"
    await queue.sql(f"UPDATE queue_message SET {change}, attempts = 1 WHERE id = %s", first)

    await renumber(queue, 1)

    assert first == await queue.value(head)


async def test_a_call_that_may_look_at_nothing_is_refused(queue: Queue) -> None:
    """It would end the walk."""
    with pytest.raises(psycopg.errors.RaiseException, match="At least 1 message"):
        await step(queue, 0)


@pytest.mark.parametrize("looking", [True, False])
async def test_a_dump_that_was_taken_beside_a_walk_is_looked_at_from_the_left(queue: Queue, *, looking: bool) -> None:
    """What the walk of the other cluster found means nothing here, nor its place; what it has renumbered stays in front."""
    now = int(await queue.value("SELECT pg_current_xact_id()::text"))
    await bring(queue, *({"xid": xid, "key": str(number)} for number, xid in enumerate((2, 2, now + 5))))
    await bring(queue, *({"xid": now + number, "key": str(number - 3)} for number in (6, 7)))
    await queue.sql(
        "INSERT INTO queue_message_cluster (system_identifier, looking, walked_xid, walked_seq, first_brought, last_brought) "
        "SELECT 1, %s, xid, seq, last.brought, last.brought FROM queue_message, "
        "(SELECT max(xmin::text::bigint) AS brought FROM queue_message) AS last WHERE ordering_key = '2'",
        looking,
    )
    await pass_ids(queue, 9)

    assert 3 == await renumber(queue, 2)

    assert list("01234") == await keys(queue)


async def test_a_noted_cluster_that_comes_beside_a_walk_begins_it_again(queue: Queue) -> None:
    """A restore of data alone adds its row to the one that is here."""
    await bring(queue, *({"xid": FAR, "key": str(number)} for number in range(8)))
    await walk_until(queue, looking=True)
    await queue.sql("INSERT INTO queue_message_cluster (system_identifier, walked_xid, walked_seq) VALUES (1, '9', 9)")

    assert 8 == await renumber(queue, 2)

    here = await queue.sql("SELECT system_identifier FROM pg_control_system()")
    assert here == await queue.sql("SELECT system_identifier FROM queue_message_cluster")


async def test_an_empty_queue_is_not_noted(queue: Queue) -> None:
    """What is copied into it later is looked at once."""
    await queue.sql("INSERT INTO queue_message_cluster (system_identifier) VALUES (1)")

    assert 0 == await renumber(queue)

    assert [] == await queue.sql(PLACE)
