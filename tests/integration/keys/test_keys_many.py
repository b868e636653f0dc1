"""Many keys at once: a flood of them slows no fold, and keeps no key waiting that was due before."""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.support.database.keyed import contents, fates, fold, insert, keyed, other, queued
from tests.support.database.plans import explain
from tests.support.database.queue import Queue
from tests.support.servers.shared import Say

KINDS = pytest.mark.parametrize("kind", ["coalesce_key", "bundle_key"])
FLOOD = """
    INSERT INTO queue_message_keyed (exchange, content, {kind}) SELECT 'flood', to_jsonb(n), %s || n %% %s FROM generate_series(1, %s) AS n
"""
AGE = """
    UPDATE queue_message_keyed_row SET due_at = due_at - interval '1 s' * %s, created_at = created_at - interval '1 s' * %s
    WHERE coalesce(coalesce_key, bundle_key) LIKE %s
"""
SLOW = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RAISE EXCEPTION 'not today'; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON queue_message FOR EACH ROW EXECUTE FUNCTION slow()
"""
SLOW_LEAVE = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1.1); RETURN NULL; END $$;
    CREATE TRIGGER slow AFTER UPDATE OF large ON queue_message_keyed_row FOR EACH STATEMENT EXECUTE FUNCTION slow();
"""
LARGE = "UPDATE queue_message_keyed_row SET large = true, size = 5000000 WHERE content = '[2]'"
SMALL = "SELECT count(DISTINCT bundle_key) FROM queue_message_keyed_row WHERE NOT large"
TEN = b"SELECT queue_message_fold(most => %(most)s)"
TAKE = "INSERT INTO queue_message (id, exchange) VALUES (%s, 'elsewhere')"


async def flood(queue: Queue, kind: str, count: int, *, keys: int | None = None, age: float = 60) -> None:
    """Insert so many messages under as many keys, or fewer, that have been due for so many seconds."""
    await queue.sql(FLOOD.format(kind=kind), f"{age}-", keys or count, count)
    await queue.sql(AGE, age, age, f"{age}-%")


async def refuse(queue: Queue, which: str) -> None:
    """Have a trigger raise an exception for these."""
    await queue.sql(SLOW.replace("PERFORM pg_sleep(0.02);", f"IF {which} THEN").replace("today';", "today'; END IF; RETURN NEW;"))


async def seconds(queue: Queue, kind: str, keys: int) -> float:
    """How long 3,000 messages under so many keys take; the shorter of two times."""
    taken = []
    for _ in range(2):
        await flood(queue, kind, 3000, keys=keys)
        begun = time.monotonic()
        while await fold(queue):
            pass
        taken.append(time.monotonic() - begun)
        await queue.sql("TRUNCATE queue_message")
    return min(taken)


@KINDS
async def test_a_message_of_its_own_key_costs_about_what_one_of_a_shared_key_does(queue: Queue, kind: str, say: Say) -> None:
    """One by one they took ten to twenty times as long."""
    await seconds(queue, kind, 3000)
    own, shared = await seconds(queue, kind, 3000), await seconds(queue, kind, 1)
    say(f"{kind}: {3000 / own:,.0f} messages a second of as many keys, {3000 / shared:,.0f} of one key")
    assert own < 6 * shared


@KINDS
@pytest.mark.parametrize("flooding", ["coalesce_key", "bundle_key"])
async def test_a_key_that_was_due_first_leaves_first_however_fast_others_come(queue: Queue, kind: str, flooding: str) -> None:
    """Also where the others were inserted before it, and come faster than folds take them."""
    await flood(queue, flooding, 30)
    first = await keyed(queue, content="first", **{kind: "first"})
    await queue.sql(AGE, 3600, 3600, "first")
    await flood(queue, flooding, 30, age=50)
    await queue.sql("SELECT queue_message_fold(most => 10)")
    assert 10 == await queue.waiting()
    assert "keyed" != await queue.value("SELECT min(state) FROM queue_message_state WHERE id = %s", first)


@KINDS
async def test_a_flood_that_goes_on_leaves_no_key_behind(queue: Queue, kind: str) -> None:
    """Each fold takes ten of thirty new ones; the hundred that were due before have left after ten of them."""
    await flood(queue, kind, 100, age=600)
    for age in range(10, 0, -1):
        await flood(queue, kind, 30, age=age)
        await queue.sql("SELECT queue_message_fold(most => 10)")
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE due_at < now() - interval '5 min'")


async def test_no_limit_lets_an_older_version_through(queue: Queue) -> None:
    """The newest goes with the first of them, and what is left says that it was replaced."""
    ids = [await keyed(queue, coalesce_key="c", content=n) for n in range(7)]
    for _ in range(4):
        await queue.sql("SELECT queue_message_fold(most => 2)")
        assert [(ids[-1], 6)] == await queued(queue)
    assert dict.fromkeys(ids[:-1], other(ids[-1])) == await fates(queue)


async def test_parts_with_a_time_of_their_own_pass_no_older_ones_that_are_due(queue: Queue) -> None:
    """However few parts of their key a call takes, and those of how many others."""
    await flood(queue, "bundle_key", 40, keys=1)
    await queue.sql("UPDATE queue_message_keyed_row SET due_at = now() + interval '1 min' WHERE content[0]::int > 5")
    for n in range(4):
        time_ = await queue.value("SELECT now() + interval '3 s'") if n % 2 else None
        await keyed(queue, content=n, bundle_key="b", available_at=time_)
    while await queue.value("SELECT folded FROM queue_message_fold(now() + interval '1 hour', most => 10)"):
        pass
    sent = await queue.sql("SELECT content FROM queue_message WHERE exchange = 'orders' ORDER BY xid, seq")
    assert [0, 1, 2, 3] == [n for (content,) in sent for n in content]


@KINDS
@pytest.mark.parametrize("keys", [1, 20_000], ids=["one key", "many keys"])
async def test_a_fold_reads_as_much_whatever_waits_behind_it(queue: Queue, kind: str, keys: int) -> None:
    """With the plans that the session made, and the numbers that were counted, while nearly nothing waited."""
    read = []
    for count in (20, 500, 20_000):
        await flood(queue, kind, count, keys=min(keys, count))
        if count == 20:
            await queue.sql("ANALYZE queue_message_keyed_row, queue_message, queue_message_coalesced")
        read.append((await explain(queue.connection, TEN, {"most": 10}, {})).pages)
    assert read[2] < 2 * read[1] + 500


@KINDS
async def test_a_call_ends_after_two_seconds_and_the_next_goes_on(queue: Queue, kind: str) -> None:
    """Here each key is refused by itself, after 20 ms; what was not tried is due as before."""
    await queue.sql(SLOW)
    await flood(queue, kind, 300)
    assert 0 == await fold(queue)
    tried = await queue.value("SELECT count(*) FROM queue_message_keyed_failing")
    assert 0 < tried < 300
    assert await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE due_at < now()") == 300 - tried
    await queue.sql("DROP TRIGGER slow ON queue_message")
    assert 300 - tried == await fold(queue)


async def test_what_a_call_leaves_to_the_large_keys_takes_of_its_time(queue: Queue) -> None:
    """Here it takes more than the second that small keys have, so the next call continues. The call ended only after all were left."""
    for key in range(3):
        for part in (1, 2):
            await keyed(queue, content=part, bundle_key=f"k{key}")
    await keyed(queue, content=1, bundle_key="small")
    await queue.sql(LARGE)
    await queue.sql(SLOW_LEAVE)
    await fold(queue, "1 min")
    assert 0 < await queue.value(SMALL)

    await queue.sql("DROP TRIGGER slow ON queue_message_keyed_row")
    while await fold(queue, "1 min"):
        pass
    assert [*4 * [[1]], *3 * [[2]]] == sorted(await contents(queue))


@KINDS
async def test_what_is_in_the_way_of_one_key_is_in_that_of_no_other(queue: Queue, kind: str) -> None:
    """Among many: what the queue refuses, what a trigger refuses, and ids that are taken or that an open transaction inserts."""
    ids = [await keyed(queue, content=n, **{kind: f"k{n}"}) for n in range(60)]
    await queue.sql("UPDATE queue_message_keyed_row SET options = '{\"priority\": 300}' WHERE id = ANY (%s::uuid[])", ids[3:5])
    await refuse(queue, "NEW.content IN ('17', '[17]')")
    await queue.sql(TAKE, ids[30])
    async with await psycopg.AsyncConnection.connect(queue.url) as foe:
        await foe.execute(TAKE, (ids[50],))
        assert 59 == await fold(queue, "1 min")
        await foe.rollback()
    sent = [content[0] if isinstance(content, list) else content for content in await contents(queue) if content != {}]
    assert [n for n in range(60) if n not in {3, 4, 17}] == sorted(sent)
    assert ["rejected"] * 2 == [(await fates(queue))[id_][0] for id_ in ids[3:5]]
    assert [("not today",)] == await queue.sql("SELECT why FROM queue_message_keyed_failing")
    if kind == "coalesce_key":
        new = {n: id_ for id_, n in await queued(queue) if n != {}}
        assert [30, 50] == sorted(n for n in new if new[n] != ids[n])


@KINDS
@pytest.mark.parametrize(("count", "most"), [(50, 10), (25_000, 10_000)])
async def test_a_key_that_cannot_be_sent_waits_whole_and_lets_others_go(queue: Queue, kind: str, count: int, most: int) -> None:
    """Also where more waits under it than a call takes. Nothing is due earlier for it, nor waits longer than its own time."""
    await refuse(queue, "NEW.exchange = 'flood'")
    await flood(queue, kind, count, keys=1)
    for wait in ("1 day", "1 s") if kind == "bundle_key" else ("1 day",):
        later = f"INSERT INTO queue_message_keyed (exchange, available_at, {kind}) VALUES ('flood', now() + %s::interval, '60-0')"
        await queue.sql(later, wait)
    await keyed(queue, content="other", **{kind: "other"})
    for _ in range(4):
        await queue.sql("SELECT queue_message_fold(now() + interval '2 s', most => %s)", most)
    assert [["other"] if kind == "bundle_key" else "other"] == await contents(queue)
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE due_at <= now() + interval '2 s'")
    assert 1 == await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE due_at = available_at")
    assert 1 == await queue.value("SELECT count(*) FROM queue_message_keyed_failing")


@pytest.mark.parametrize("locked", [False, True], ids=["late", "locked"])
async def test_no_older_version_is_sent_while_a_newer_one_waits_for_its_next_try(queue: Queue, locked: bool) -> None:
    """One that commits late, or that somebody was about to cancel: it waits with it, and is replaced by it."""
    await refuse(queue, "NEW.content = '2'")
    async with await psycopg.AsyncConnection.connect(queue.url) as late:
        first = await keyed(queue, content=1, coalesce_key="c") if locked else await insert(late, content=1, coalesce_key="c")
        if locked:
            await late.execute("SELECT queue_message_cancel(%s)", (first,))
        newest = await keyed(queue, content=2, coalesce_key="c")
        assert 0 == await fold(queue)
        await (late.rollback() if locked else late.commit())
    assert 0 == await fold(queue)
    await queue.sql("DROP TRIGGER slow ON queue_message")
    assert 2 == await fold(queue, "1 hour")
    assert ([(newest, 2)], {first: other(newest)}) == (await queued(queue), await fates(queue))


@pytest.mark.parametrize("first", ["body_too_large", "refused"])
async def test_no_part_passes_one_that_cannot_be_sent_where_another_is_dead(queue: Queue, first: str) -> None:
    """The dead part is out of the way. Parts behind one that a trigger refuses wait with it."""
    await refuse(queue, "NEW.content = '[2]'")
    await queue.sql("SELECT queue_message_config_set('max_body_bytes', '100'), queue_message_config_set('bundle_max_messages', '1')")
    for n in range(5):
        await keyed(queue, content="x" * 200 if n == 1 and first == "body_too_large" else n, bundle_key="b")
    if first == "refused":
        await queue.sql("UPDATE queue_message_keyed_row SET options = '{\"priority\": 300}' WHERE content = '[1]'")
    while await fold(queue, "1 min"):
        pass
    assert [[0]] == await contents(queue)
    assert [(first,)] == await queue.sql("SELECT error_code FROM queue_message_dead")
    await queue.sql("DROP TRIGGER slow ON queue_message")
    while await fold(queue, "1 hour"):
        pass
    assert [[0], [2], [3], [4]] == await contents(queue)
